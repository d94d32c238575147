-- Purpose:   the switches of the whole installation.
-- Returns:   one row per switch that was ever set: key and value.
CREATE OR REPLACE FUNCTION queen.switches_v1() RETURNS TABLE (key text, enabled bool)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT s.key, s.value::bool FROM queen.system_state AS s WHERE jsonb_typeof(s.value) = 'boolean';
END;
COMMENT ON FUNCTION queen.switches_v1 IS 'The switches of all servers, such as maintenance_mode.';
