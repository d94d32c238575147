CREATE OR REPLACE FUNCTION queen.percentage(p_part bigint, p_rest bigint) RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN round(coalesce(100.0 * p_part / nullif(p_part + p_rest, 0), 0), 2);
COMMENT ON FUNCTION queen.percentage IS 'Internal: a part of a whole in percent, given the part and the rest.';
