-- Purpose:   forgets how far the lanes of a spool file are stored; to be called when the file is gone for good.
-- Arguments: p_lanes     the lanes
-- Writes:    spool_lanes.
CREATE OR REPLACE FUNCTION queen.forget_spool_lanes_v1(p_lanes uuid[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM queen.spool_lanes WHERE lane = ANY(p_lanes);
END $$;
COMMENT ON FUNCTION queen.forget_spool_lanes_v1 IS
    'Deletes the replay positions of a spool file that no longer exists.';
