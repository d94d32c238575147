-- Purpose:   how much there is to look at: segments of queues that are or were encrypted, and their dead letters that have
--            to come under a key.
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
COMMENT ON FUNCTION queen.count_encrypted_v1 IS 'How much a rotation of keys has to look at.';

-- Purpose:   the next segments of queues that are or were encrypted, in order of their key.
-- Returns:   one row a segment; plain_too: the queue is encrypted now, so nothing may stand there in clear.
CREATE OR REPLACE FUNCTION queen.find_encrypted_segments_v1(p_part bigint, p_last_off bigint, p_limit int)
RETURNS TABLE (
    part_id bigint, last_off bigint, queue text, partition text, plain_too bool, ends bytea, data bytea
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT s.part_id, s.last_off, q.name, p.name, q.encryption_enabled, s.ends, s.data
    FROM queen.segments AS s
    JOIN queen.partitions AS p ON p.id = s.part_id
    JOIN queen.queues AS q ON q.id = p.queue_id AND q.ever_encrypted
    WHERE (s.part_id, s.last_off) > (p_part, p_last_off)
    ORDER BY s.part_id, s.last_off LIMIT p_limit;
END $$;
COMMENT ON FUNCTION queen.find_encrypted_segments_v1 IS 'The next segments of queues that are or were encrypted.';

-- Purpose:   replaces a segment by the same messages under another key, if it is still what was read.
-- Locks, writes: the segment. Who reads it meanwhile gets the old or the new one, whole.
CREATE OR REPLACE FUNCTION queen.replace_segment_v1(
    p_part bigint, p_last_off bigint, p_old bytea, p_data bytea, p_ends bytea
) RETURNS bool
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
BEGIN
    UPDATE queen.segments AS s SET data = p_data, ends = p_ends
    WHERE s.part_id = p_part AND s.last_off = p_last_off AND s.data = p_old;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION queen.replace_segment_v1 IS 'Replaces a segment by the same messages under another key.';

-- Purpose:   the next dead letters, by id, whose payload has to come under a key.
CREATE OR REPLACE FUNCTION queen.find_encrypted_letters_v1(p_after bigint, p_key_id text, p_limit int)
RETURNS TABLE (id bigint, queue text, partition text, key_id text, payload text)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT d.id, q.name, p.name, d.key_id, d.payload::text
    FROM queen.dead_letter_queue AS d
    JOIN queen.queues AS q ON q.id = d.queue_id AND q.ever_encrypted
    JOIN queen.partitions AS p ON p.id = d.part_id
    WHERE d.id > p_after AND d.key_id IS DISTINCT FROM p_key_id AND (d.key_id IS NOT NULL OR q.encryption_enabled)
    ORDER BY d.id LIMIT p_limit;
END $$;
COMMENT ON FUNCTION queen.find_encrypted_letters_v1 IS 'The next dead letters whose payload has to come under a key.';

-- Purpose:   replaces the payload of a dead letter by the same under another key, if it is still what was read.
CREATE OR REPLACE FUNCTION queen.replace_letter_v1(p_id bigint, p_old text, p_payload text, p_key_id text) RETURNS bool
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE queen.dead_letter_queue AS d SET payload = p_payload::json, key_id = p_key_id
    WHERE d.id = p_id AND d.payload::text = p_old;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION queen.replace_letter_v1 IS 'Replaces the payload of a dead letter by the same under another key.';
