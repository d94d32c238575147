-- How many messages a transaction of a service takes on next: 100 at first, then as many as all before, as long as that fits
-- into 6 ms as far as can be told; 0: the transaction ends. What a message costs depends on its size, on how its id was made
-- and on how much larger the tables are than memory (10 to 50 µs); who wants what the transaction holds waits for its end.
CREATE OR REPLACE FUNCTION queen.portion(p_began timestamptz, p_done bigint, p_most int) RETURNS int
LANGUAGE sql VOLATILE
RETURN CASE
    WHEN clock_timestamp() - p_began > interval '3 ms' THEN 0
    ELSE least(p_most - p_done, greatest(p_done, 100))::int
END;
COMMENT ON FUNCTION queen.portion IS 'Internal: how many messages a transaction of a service takes on next.';
