-- Retention removes the first messages of a segment, and keeps the others.
ALTER TABLE queen.segments ADD COLUMN cut int NOT NULL DEFAULT 0;
COMMENT ON COLUMN queen.segments.cut IS
'Messages that retention has removed from its beginning. A flush that is repeated is answered with the offset at which the segment began.';

-- It is queen.remove_upto now.
DROP FUNCTION IF EXISTS queen.remove_segments(bigint, bigint, timestamptz);
