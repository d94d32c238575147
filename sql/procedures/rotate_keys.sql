-- Purpose:   counts the work of a key rotation: segments of queues that are or were encrypted, and their dead letters
--            that have to be encrypted.
CREATE OR REPLACE FUNCTION queen.count_encrypted_v1(p_key_id text) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT (
        SELECT count(*)
        FROM queen.segments AS s
        JOIN queen.partitions AS p ON p.id = s.part_id
        JOIN queen.queues AS q ON q.id = p.queue_id AND q.ever_encrypted
    ) + (
        SELECT count(*)
        FROM queen.dead_letter_queue AS d
        JOIN queen.queues AS q ON q.id = d.queue_id AND q.ever_encrypted
        WHERE d.key_id IS DISTINCT FROM p_key_id AND (d.key_id IS NOT NULL OR q.encryption_enabled)
    );
$$;
COMMENT ON FUNCTION queen.count_encrypted_v1 IS 'The number of rows that a key rotation has to examine.';

-- Purpose:   the next partitions, by number, of queues that are or were encrypted.
-- Returns:   one row per partition; plain_too: the queue is encrypted now, so nothing may stand there in clear.
CREATE OR REPLACE FUNCTION queen.find_encrypted_partitions_v1(p_after bigint, p_limit int)
RETURNS TABLE (part_id bigint, queue text, partition text, plain_too bool)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT p.id, q.name, p.name, q.encryption_enabled
    FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id
    WHERE p.id > p_after AND q.ever_encrypted ORDER BY p.id LIMIT p_limit;
END $$;
COMMENT ON FUNCTION queen.find_encrypted_partitions_v1 IS 'The next partitions of queues that are or were encrypted.';

-- Purpose:   the next segments of a partition.
CREATE OR REPLACE FUNCTION queen.find_segments_v1(p_part bigint, p_last_off bigint, p_limit int)
RETURNS TABLE (last_off bigint, ends bytea, data bytea)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT s.last_off, s.ends, s.data FROM queen.segments AS s
    WHERE s.part_id = p_part AND s.last_off > p_last_off ORDER BY s.last_off LIMIT p_limit;
END $$;
COMMENT ON FUNCTION queen.find_segments_v1 IS 'The next segments of a partition.';

-- Purpose:   replaces a segment by the same messages under another key, if it is still what was read.
-- Locks, writes: the segment. Concurrent reads get the old one or the new one, whole.
CREATE OR REPLACE FUNCTION queen.replace_segment_v1(
    p_part bigint, p_last_off bigint, p_old bytea, p_data bytea, p_ends bytea
) RETURNS bool
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    UPDATE queen.segments AS s SET data = p_data, ends = p_ends
    WHERE s.part_id = p_part AND s.last_off = p_last_off AND s.data = p_old;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION queen.replace_segment_v1 IS 'Replaces a segment by the same messages, encrypted with another key.';

-- Purpose:   finds the end of a page of dead letters of all kinds.
-- Returns:   the number of the p_limit-th after p_after; null: there is no such one.
CREATE OR REPLACE FUNCTION queen.end_of_letters_v1(p_after bigint, p_limit int) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    RETURN (SELECT d.id FROM queen.dead_letter_queue AS d WHERE d.id > p_after ORDER BY d.id OFFSET p_limit - 1 LIMIT 1);
END $$;
COMMENT ON FUNCTION queen.end_of_letters_v1 IS 'The end of a page of dead letters.';

-- Purpose:   finds the next dead letters, by id, whose payload has to be encrypted; p_upto: only up to this one (null:
--            all).
CREATE OR REPLACE FUNCTION queen.find_encrypted_letters_v1(p_after bigint, p_upto bigint, p_key_id text, p_limit int)
RETURNS TABLE (id bigint, queue text, partition text, key_id text, payload text)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT d.id, q.name, p.name, d.key_id, d.payload::text
    FROM queen.dead_letter_queue AS d
    JOIN queen.queues AS q ON q.id = d.queue_id AND q.ever_encrypted
    JOIN queen.partitions AS p ON p.id = d.part_id
    WHERE d.id > p_after AND d.id <= coalesce(p_upto, 9223372036854775807)
        AND d.key_id IS DISTINCT FROM p_key_id AND (d.key_id IS NOT NULL OR q.encryption_enabled)
    ORDER BY d.id LIMIT p_limit;
END $$;
COMMENT ON FUNCTION queen.find_encrypted_letters_v1 IS
    'The next dead letters whose payload has to be encrypted with the current key.';

-- Purpose:   replaces the payload of a dead letter by the same under another key, if it is still what was read.
CREATE OR REPLACE FUNCTION queen.replace_letter_v1(p_id bigint, p_old text, p_payload text, p_key_id text) RETURNS bool
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE queen.dead_letter_queue AS d SET payload = p_payload::json, key_id = p_key_id
    WHERE d.id = p_id AND d.payload::text = p_old;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION queen.replace_letter_v1 IS
    'Replaces the payload of a dead letter by the same, encrypted with another key.';
