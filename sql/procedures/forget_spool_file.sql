-- Purpose:   forgets how far a spool file is stored; to be called when the file is gone for good.
-- Arguments: p_file      the file
-- Writes:    spool_files.
CREATE OR REPLACE FUNCTION queen.forget_spool_file_v1(p_file uuid) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM queen.spool_files WHERE file = p_file;
END $$;
COMMENT ON FUNCTION queen.forget_spool_file_v1 IS 'Forgets how far a spool file is stored, once the file is gone.';
