-- Purpose:   sets a switch of the whole installation.
-- Arguments: p_key, p_enabled
-- Writes:    system_state.
CREATE OR REPLACE FUNCTION queen.set_switch_v1(p_key text, p_enabled bool) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO queen.system_state (key, value, updated_at) VALUES (p_key, to_jsonb(p_enabled), clock_timestamp())
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at;
END;
COMMENT ON FUNCTION queen.set_switch_v1 IS 'Sets a switch of all servers, such as maintenance_mode.';
