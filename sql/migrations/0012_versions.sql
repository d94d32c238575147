-- A row that is updated per call leaves a dead version each time, for as long as some transaction holds a snapshot. So what is
-- looked up has a key under which the newest version comes first, and what is only locked is never updated (ADR 45).

CREATE TABLE queen.partition_locks (part_id bigint PRIMARY KEY);
INSERT INTO queen.partition_locks (part_id) SELECT l.part_id FROM queen.partition_lookup AS l;
COMMENT ON TABLE queen.partition_locks IS
'One row per partition, locked and never updated. A push locks it until its commit, so commit order is offset order and no reader can pass a message that commits later.';

-- Where the log of a partition ends is what its newest segment says, also when retention has removed all messages.
INSERT INTO queen.segments (part_id, last_off, n, created_at, flush, ids, ends, data)
SELECT l.part_id, l.next_off - 1, 0, l.last_at, '00000000-0000-0000-0000-000000000000', NULL, '', '[]'
FROM queen.partition_lookup AS l
WHERE l.next_off > 0 AND NOT EXISTS (SELECT 1 FROM queen.segments AS s WHERE s.part_id = l.part_id);
COMMENT ON TABLE queen.segments IS
'The messages of one partition that one flush wrote: offsets last_off - n + 1 to last_off. The newest segment stays when its messages are removed, with n = 0: it says where the log ends. See the view queen.messages for one row per message.';

-- With the functions and views that read it; they are made anew after the migrations.
DROP TABLE queen.partition_lookup CASCADE;

-- Where the log of a partition ends: the offset of the next message, and when the newest was created. Here, and not among what
-- is replaced at every start: that would wait for whoever has read it in a transaction that is still open.
CREATE VIEW queen.log_ends AS
SELECT
    l.part_id,
    coalesce(s.last_off + 1, 0) AS next_off,
    coalesce(s.created_at, '-infinity') AS last_at
FROM queen.partition_locks AS l
LEFT JOIN LATERAL (
    SELECT e.last_off, e.created_at FROM queen.segments AS e
    WHERE e.part_id = l.part_id ORDER BY e.last_off DESC LIMIT 1
) AS s ON true;
COMMENT ON VIEW queen.log_ends IS
'The log end of each partition: offset of the next message, and created_at of the newest segment. Who has locked the partition reads it in a later statement, to see what was committed before.';

ALTER TABLE queen.partition_consumers ADD COLUMN ver bigint NOT NULL DEFAULT 0;
-- Not compressed: a large one is written anew by each ack that completes a message out of order, and compressing it took most of
-- the time.
ALTER TABLE queen.partition_consumers ALTER COLUMN ahead SET STORAGE EXTERNAL;
ALTER TABLE queen.partition_consumers DROP CONSTRAINT partition_consumers_pkey;
ALTER TABLE queen.partition_consumers ADD PRIMARY KEY (part_id, grp_id, ver);
-- + 0, so that each question is answered by one index only: a plan that was made while tables were small stays, and would read
-- all cursors of a group for one of them, or all versions of a partition's cursors for the parked ones.
DROP INDEX queen.partition_consumers_ready;
CREATE INDEX partition_consumers_ready ON queen.partition_consumers (grp_id, ready_at, (part_id + 0))
WHERE ready_at < 'infinity';
CREATE INDEX partition_consumers_parked ON queen.partition_consumers ((part_id + 0), acked) WHERE ready_at = 'infinity';
COMMENT ON TABLE queen.partition_consumers IS
'Cursor and lease of each (partition, group): one row. Every update raises ver, so a look-up that begins at the highest finds the live version first.';
COMMENT ON COLUMN queen.partition_consumers.ver IS 'How often the row was updated.';
COMMENT ON INDEX queen.partition_consumers_ready IS
'For a pop: the cursors of a group by the time at which they may be claimed, without the parked ones.';
COMMENT ON INDEX queen.partition_consumers_parked IS
'For a push: the cursors that stand at the end of the log and wait for it.';

-- Their arguments, results or names have changed.
DROP FUNCTION IF EXISTS queen.wake(bigint[], timestamptz);
DROP FUNCTION IF EXISTS queen.append_without_duplicates(
    uuid, timestamptz, bigint[], int[], bytea[], bytea[], bytea[], bigint[], int[], uuid[]);
DROP FUNCTION IF EXISTS queen.visible(bigint, bigint, bigint, timestamptz, int, int, timestamptz);
DROP FUNCTION IF EXISTS queen.run_end(bigint, int8multirange, bigint, int);
DROP FUNCTION IF EXISTS queen.park(bigint[], bigint[]);
DROP FUNCTION IF EXISTS queen.rest(queen.claims, timestamptz);
DROP FUNCTION IF EXISTS queen.complete_deliveries(bigint, bigint, timestamptz);
DROP FUNCTION IF EXISTS queen.claim_in_one(int[], int[], uuid[], int[], int[], bigint[], bigint[], timestamptz);
DROP FUNCTION IF EXISTS queen.claim_one_by_one(int[], int[], uuid[], int[], int[], bigint[], bigint[], timestamptz);
DROP FUNCTION IF EXISTS queen.ack_cursor(
    bigint, bigint, timestamptz, bool, int[], uuid[], text[], bigint[], bigint[], text[]);
DROP FUNCTION IF EXISTS queen.bury(bigint, bigint, bigint, bigint, text, text, int, timestamptz);
DROP FUNCTION IF EXISTS queen.pop_unified_batch_v1(int[], int[], uuid[], int[], int[], bigint[], bigint[]);
DROP FUNCTION IF EXISTS queen.commit_group_v1(
    uuid, bool, bigint[], int[], bytea[], bytea[], bytea[], bigint[], int[], uuid[], bigint, bigint[],
    bigint[], bigint[], uuid[], text[], bigint[], bigint[], uuid[], text[],
    int[], int[], uuid[], int[], int[], bigint[], bigint[]);
DROP TYPE queen.ack_result CASCADE;
DROP TYPE queen.claims CASCADE;

CREATE TYPE queen.ack_result AS (
    ord int, kind text, first bigint, last bigint, error text, tries int, verdict text,
    problem text, done_upto bigint, also_done bigint [], within bigint
);
COMMENT ON TYPE queen.ack_result IS
'Internal: one element of an ack and what becomes of it. verdict: c completed, d dead, f failed, r retry; null: refused or done before.';

CREATE TYPE queen.claims AS (
    complete bool,
    pop int [], part_id bigint [], grp_id bigint [], ver bigint [], acked bigint [], upto bigint [],
    ahead int8multirange [], seen bigint [], attempt int [], ready_at timestamptz [],
    unparked bigint [], cut_short bool
);
COMMENT ON TYPE queen.claims IS
'Internal: what a pop call claims, one array per column, NULL for none; the partitions whose cursor has nothing to deliver and could not be parked; and whether the call stopped at one of its limits.';
