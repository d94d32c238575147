"""A second implementation of the audits, in DuckDB: what each reports, written down once more as plain SQL.

Nothing is shared with the Spark audits but the rows that both are given. Here everything is compared with everything
by EXISTS, message by message, which is slow and short; there it is windows and aggregations that grow with the rows.
"""

from collections import Counter

import duckdb
import pyarrow as pa

from spark_validation.columns import arrow_table
from spark_validation.inputs import Cursor, DeadLetter, Deleted, Flaw, Group, Head, IdSum, LogRow, Queue, Waiting
from spark_validation.journal.schema import Call
from spark_validation.log.flaws import QUERIES
from tests.support.runs import Tables

NEVER = 1 << 60

VIEWS = f"""
CREATE MACRO offset_in(id) AS CASE WHEN length(id) = 36 AND substr(id, 14, 11) = '-8001-8000-'
    THEN ('0x' || substr(id, 25))::BIGINT END;
CREATE TABLE numbered AS
SELECT queue, part, left(id, 13) AS number, sum(weight) AS weight, min(sent) AS sent, max(made) AS made FROM (
    SELECT * EXCLUDE (agent, number), (SELECT sent FROM calls AS c WHERE (c.agent, c.number) = (t.agent, t.number))
        AS sent FROM (
    SELECT DISTINCT i.queue, i.partition AS part, i.message_id AS id, 1000 AS weight, NULL AS made, agent, number
    FROM (SELECT agent, number, unnest(pushes) AS i FROM calls WHERE kind IN ('push', 'transaction', 'sql'))
    UNION ALL SELECT DISTINCT i.queue, i.partition, i.message_id, 1, NULL, agent, number
    FROM (SELECT agent, number, unnest(deliveries) AS i FROM calls WHERE kind = 'pop')
    UNION ALL SELECT DISTINCT i.queue, i.partition, i.message_id, 1, NULL, agent, number
    FROM (SELECT agent, number, unnest(acks) AS i FROM calls WHERE kind IN ('ack', 'transaction'))
    UNION ALL SELECT queue, partition,
        format('{{:08x}}-{{:04x}}-8001-8000-000000000000', part_id // 65536, part_id % 65536), 1000000000000,
        CASE WHEN database IS NULL AND created_at > 0 THEN created_at ELSE {NEVER} END, '', 0
    FROM heads) AS t
) WHERE offset_in(id) IS NOT NULL GROUP BY queue, part, left(id, 13);
CREATE TABLE parts AS SELECT queue, part, list(number) AS numbers FROM numbered AS n WHERE NOT EXISTS (
    SELECT 1 FROM numbered AS o WHERE o.number = n.number
        AND (o.weight > n.weight OR (o.weight = n.weight AND (o.queue, o.part) < (n.queue, n.part)))
) AND NOT coalesce(n.made IS NULL AND n.sent > (
    SELECT max(made) FROM numbered AS o WHERE (o.queue, o.part) = (n.queue, n.part)), false) GROUP BY ALL;
CREATE MACRO is_own(numbers, id) AS offset_in(id) IS NOT NULL
    AND (numbers IS NULL OR list_contains(numbers, left(id, 13)));
CREATE MACRO is_foreign(numbers, id) AS coalesce(
    offset_in(id) IS NOT NULL AND numbers IS NOT NULL AND NOT list_contains(numbers, left(id, 13)), false);
CREATE MACRO key_of(numbers, id, off) AS CASE WHEN id IS NULL OR is_own(numbers, id) THEN 'offset ' || off
    ELSE ('0x' || left(sha256(id), 15))::BIGINT::VARCHAR END;
CREATE MACRO place_of(numbers, off, message, id) AS CASE WHEN NOT is_foreign(numbers, message) THEN
    coalesce(off, offset_in(message), CASE WHEN is_own(numbers, id) THEN offset_in(id) END) END;

CREATE TABLE compared AS SELECT agent, sent // 30000000 AS half_minute,
    sent - server_time - server_precision AS low, answered - server_time AS high
FROM calls WHERE kind = 'clock' AND answered + server_time + server_precision IS NOT NULL;
CREATE TABLE bounds AS SELECT agent, coalesce(b.low, 0) AS low, coalesce(b.high, 0) AS high
FROM (SELECT DISTINCT agent FROM calls) LEFT JOIN (
    SELECT agent, CASE WHEN apart THEN lowest ELSE low END AS low, CASE WHEN apart THEN highest ELSE high END AS high
    FROM (
        SELECT agent, min(CASE WHEN apart THEN lowest ELSE low END) AS lowest, max(low) AS low, min(high) AS high,
            max(CASE WHEN apart THEN highest ELSE high END) AS highest, bool_or(apart) OR max(low) > min(high) AS apart
        FROM (
            SELECT agent, min(low) AS lowest, max(low) AS low, min(high) AS high, max(high) AS highest,
                max(low) > min(high) AS apart
            FROM compared GROUP BY agent, half_minute
        ) GROUP BY agent
    )
) AS b USING (agent);
CREATE TABLE c AS SELECT calls.*, coalesce("group", '__QUEUE_MODE__') AS grp, sent - high AS began,
    coalesce(answered - low, {NEVER}) AS ended
FROM calls JOIN bounds USING (agent);

CREATE TABLE h AS SELECT part_id, queue, partition AS part, next_offset AS next, oldest_offset AS oldest,
    coalesce(live_oldest, oldest_offset) AS live FROM heads;
CREATE TABLE l AS SELECT h.queue, h.part, log."offset" AS off, created_at,
    coalesce(log.hash::VARCHAR, 'offset ' || log."offset") AS key
FROM log JOIN h USING (part_id) WHERE damage IS NULL;
CREATE TABLE unread AS SELECT h.queue, h.part, damage, min(log."offset") AS first, max(log."offset") AS last
FROM log JOIN h USING (part_id) WHERE damage IS NOT NULL GROUP BY ALL;

CREATE TABLE p AS
SELECT agent, number, pos, kind, outcome AS call, began, ended, i.queue, i.partition AS part, i.outcome AS said,
    i.duplicate AS dup, i.spooled, i.payload_hash AS ph, is_foreign(numbers, i.message_id) AS astray,
    place_of(numbers, i."offset", i.message_id, i.transaction_id) AS off,
    key_of(numbers, i.transaction_id, off) AS key
FROM (
    SELECT *, unnest(pushes) AS i, generate_subscripts(pushes, 1) AS pos FROM c
    WHERE kind IN ('push', 'transaction', 'sql')
) LEFT JOIN parts ON (parts.queue, parts.part) = (i.queue, i.partition);
CREATE TABLE d AS
SELECT agent, number, pos, began, ended, grp, auto_ack, coalesce(lease, '') AS lease, lease_seconds AS seconds, i.queue,
    i.partition AS part, i.attempt, i.created_at, i.payload_hash AS ph,
    is_foreign(numbers, i.message_id) AS astray,
    place_of(numbers, i."offset", i.message_id, i.transaction_id) AS off,
    key_of(numbers, i.transaction_id, off) AS key
FROM (SELECT *, unnest(deliveries) AS i, generate_subscripts(deliveries, 1) AS pos FROM c WHERE kind = 'pop')
LEFT JOIN parts ON (parts.queue, parts.part) = (i.queue, i.partition);
CREATE TABLE a AS
SELECT *, said <> 'fail' AND status <> 'retry' AND (status <> 'failed' OR dead OR said = 'unknown') AS may_finish,
    may_finish AND said = 'ok' AS finishes
FROM (
    SELECT agent, number, pos, kind, outcome AS call, began, ended, i.queue, i.partition AS part, i."group" AS grp,
        i.status, i.lease, i.outcome AS said, i.dead, i.noop,
        place_of(numbers, i."offset", i.message_id, i.transaction_id) AS off,
        key_of(numbers, i.transaction_id, off) AS key
    FROM (SELECT *, unnest(acks) AS i, generate_subscripts(acks, 1) AS pos FROM c WHERE kind IN ('ack', 'transaction'))
    LEFT JOIN parts ON (parts.queue, parts.part) = (i.queue, i.partition)
);
CREATE TABLE gone AS SELECT DISTINCT l.queue, l.part, l.key
FROM l JOIN h USING (queue, part) JOIN deleted AS t ON t.part_id = h.part_id AND l.off BETWEEN t.first AND t.last
UNION SELECT queue, part, key FROM (
    SELECT queue, part, key FROM l UNION ALL SELECT queue, part, key FROM p UNION ALL SELECT queue, part, key FROM d
    UNION ALL SELECT queue, part, key FROM a
) SEMI JOIN (FROM parts WHERE len(numbers) > 1) USING (queue, part);
DELETE FROM p WHERE (queue, part, key) IN (SELECT (queue, part, key) FROM gone);
DELETE FROM d WHERE (queue, part, key) IN (SELECT (queue, part, key) FROM gone);
DELETE FROM a WHERE (queue, part, key) IN (SELECT (queue, part, key) FROM gone);
CREATE TABLE given_up AS
SELECT queue, part, grp, off FROM l SEMI JOIN gone USING (queue, part, key)
JOIN (SELECT queue, part, grp FROM d UNION SELECT queue, partition, "group" FROM cursors) USING (queue, part)
UNION SELECT queue, partition, "group", "offset" FROM dead_letters;
CREATE TABLE silent AS SELECT queue FROM queues WHERE max_wait_seconds > 0 AND NOT keeps_dead_letters;
CREATE MACRO excused(q, w, g, o) AS q IN (SELECT queue FROM silent) OR (q, w) NOT IN (SELECT (queue, part) FROM h)
    OR EXISTS (FROM given_up AS t WHERE (t.queue, t.part, t.grp, t.off) = (q, w, g, o))
    OR EXISTS (FROM h AS t WHERE (t.queue, t.part) = (q, w) AND t.live > coalesce(o, 0));
CREATE MACRO held(q, w, o, stored) AS EXISTS (FROM queues AS t WHERE t.queue = q AND t.created_at <= stored)
    AND NOT EXISTS (FROM h AS t WHERE (t.queue, t.part) = (q, w) AND t.oldest > coalesce(o, 0))
    AND NOT EXISTS (
        FROM unread AS t WHERE (t.queue, t.part) = (q, w) AND coalesce(o BETWEEN t.first AND t.last, true));
CREATE MACRO all_given_up(q, w, g, low, high) AS q IN (SELECT queue FROM silent) OR high - low = (
    SELECT count(*) FROM given_up AS t WHERE (t.queue, t.part, t.grp) = (q, w, g) AND t.off BETWEEN low AND high - 1);

CREATE TABLE m AS
SELECT queue, part, key, count(began) AS pushed, sum(queued) AS queued, sum(direct) AS direct,
    sum(refused) AS refused, min(began) AS began,
    min(answered) AS answered, bool_or(spooled) AS spooled, min(off) AS off, max(off) AS off_high,
    count(logged) AS logged, max(logged) AS log_off, count(seen) AS given, min(seen) AS seen,
    count(seen) + count(logged) > 0 AS there
FROM (
    SELECT queue, part, key, began, CASE WHEN said = 'ok' AND kind <> 'sql' THEN ended END AS answered,
        (said = 'ok' AND NOT dup)::INT AS queued,
        (said = 'ok' AND NOT dup AND NOT spooled AND kind <> 'sql')::INT AS direct,
        (said = 'fail')::INT AS refused, said = 'ok' AND spooled AS spooled,
        CASE WHEN said = 'ok' AND NOT dup THEN off END AS off, NULL AS logged, NULL AS seen
    FROM p
    UNION ALL SELECT queue, part, key, NULL, NULL, 0, 0, 0, false, off, NULL, ended FROM d
    UNION ALL SELECT queue, part, key, NULL, NULL, 0, 0, 0, false, off, off, NULL FROM l
    ANTI JOIN gone USING (queue, part, key)
)
WHERE key IS NOT NULL GROUP BY queue, part, key;
CREATE TABLE meant AS SELECT p.* FROM p JOIN m USING (queue, part, key)
WHERE said = 'ok' AND NOT dup AND NOT p.spooled AND kind <> 'sql' OR direct = 0 AND said <> 'fail';
CREATE TABLE done AS SELECT queue, part, grp, key, min(ended) AS moment FROM (
    SELECT queue, part, grp, key, ended FROM d WHERE auto_ack
    UNION ALL SELECT queue, part, grp, key, ended FROM a WHERE finishes
) GROUP BY ALL;
CREATE TABLE finished AS SELECT DISTINCT queue, part, grp, key FROM (
    SELECT queue, part, grp, key FROM d WHERE auto_ack UNION ALL SELECT queue, part, grp, key FROM a WHERE may_finish
);
CREATE TABLE empty AS SELECT queue, grp, max(began) AS moment FROM c WHERE kind = 'drained' GROUP BY ALL;
CREATE TABLE last_calls AS SELECT agent, min(last) AS last FROM (
    SELECT agent, max(began + greatest(coalesce(answered - sent, 0), 0)) AS last FROM c
    WHERE kind NOT IN ('end', 'clock', 'configured', 'fault') GROUP BY agent, client
) GROUP BY agent;
CREATE TABLE cut AS
SELECT agent, last IS NULL AS blank,
    CASE WHEN lowest > 0 THEN 0 WHEN complete AND last IS NOT NULL THEN last ELSE first END AS since FROM (
    SELECT agent, min(number) AS lowest, min(began) AS first, bool_or(kind = 'end') AS over,
        count(DISTINCT number) = max(number) + 1 AS complete
    FROM c GROUP BY agent
) LEFT JOIN last_calls USING (agent) WHERE NOT (over AND complete);
CREATE TABLE hidden AS
SELECT queue, grp, min(since) AS since, bool_or(auto_ack) AS swallowed, bool_or(tail) AS tail FROM (
    SELECT queue, grp, auto_ack, false AS tail, began AS since FROM c
    WHERE kind = 'pop' AND outcome = 'unknown' AND queue IS NOT NULL
    UNION ALL SELECT queue, grp, auto_ack, true, since FROM c JOIN cut USING (agent)
    WHERE kind = 'pop' AND queue IS NOT NULL
    UNION ALL SELECT queue, grp, true, true, since FROM c JOIN cut ON blank
    WHERE kind IN ('pop', 'drained') AND queue IS NOT NULL
) GROUP BY ALL;
CREATE TABLE placed AS SELECT p.* REPLACE (coalesce(p.off, m.off, m.log_off) AS off)
FROM p JOIN m USING (queue, part, key) WHERE coalesce(p.off, m.off, m.log_off) IS NOT NULL AND said <> 'fail';
CREATE TABLE held AS SELECT queue, part, grp, agent, number, min(lease) AS lease, min(began) AS began,
    min(ended) AS ended, min(seconds) * 1e6 AS length, bool_or(auto_ack) AS auto_ack, count(*) AS n
FROM d WHERE NOT astray GROUP BY ALL;
CREATE TABLE nameless AS SELECT DISTINCT (queue, part) FROM p WHERE key IS NULL AND said <> 'fail';
CREATE TABLE own AS SELECT p.*, m.there, m.seen FROM p JOIN m USING (queue, part, key) WHERE m.pushed = 1;
"""

AUDITS = {
    "first_deliveries_in_offset_order": """
WITH f AS (
    SELECT *, min(began) OVER (PARTITION BY queue, part, grp, off) AS known FROM d
    WHERE off IS NOT NULL AND (attempt = 1 OR attempt IS NULL AND NOT EXISTS (
        FROM hidden AS o WHERE o.queue = d.queue AND o.grp = d.grp))
)
SELECT queue, off FROM f AS x WHERE began <= known AND EXISTS (FROM f AS y
    WHERE (y.queue, y.part, y.grp) = (x.queue, x.part, x.grp) AND y.off > x.off AND y.ended < x.began)
UNION ALL SELECT queue, off FROM (
    SELECT *, lag(off) OVER (PARTITION BY agent, number, queue, part ORDER BY pos) AS above FROM d WHERE off IS NOT NULL
) WHERE above >= off""",
    "deliveries_leave_no_gap": """
WITH o AS (SELECT DISTINCT queue, part, grp, off FROM d WHERE off IS NOT NULL)
SELECT queue, off FROM (SELECT *, lag(off) OVER (PARTITION BY queue, part, grp ORDER BY off) AS below FROM o) AS x
JOIN h USING (queue, part) WHERE x.off > below + 1 AND h.live < x.off
AND NOT all_given_up(x.queue, x.part, x.grp, below + 1, x.off)
AND NOT EXISTS (
    FROM hidden AS o WHERE o.queue = x.queue AND o.grp = x.grp AND (o.swallowed OR o.tail))""",
    "the_log_has_no_gap": """
WITH wanted AS (SELECT queue, part, unnest(range(oldest, next)) AS off FROM h),
missing AS (
    FROM wanted ANTI JOIN l USING (queue, part, off)
    WHERE NOT EXISTS (
        FROM unread AS t WHERE (t.queue, t.part) = (wanted.queue, wanted.part) AND off BETWEEN first AND last)
)
SELECT queue, coalesce(
    (SELECT min(off) FROM l WHERE l.queue = x.queue AND l.part = x.part AND l.off > x.off),
    (SELECT next FROM h WHERE h.queue = x.queue AND h.part = x.part)) AS off
FROM missing AS x WHERE NOT EXISTS (FROM missing AS y WHERE (y.queue, y.part, y.off + 1) = (x.queue, x.part, x.off))
UNION ALL SELECT queue, off FROM l GROUP BY queue, part, off HAVING count(*) > 1
UNION ALL SELECT l.queue, h.next FROM l JOIN h USING (queue, part) WHERE l.off >= h.next""",
    "pushes_keep_their_order": """
WITH direct AS (SELECT * FROM placed WHERE said = 'ok' AND NOT dup AND NOT spooled AND kind <> 'sql'),
others AS (
    FROM (FROM placed ANTI JOIN direct USING (queue, part, key))
    ANTI JOIN (FROM placed WHERE kind = 'sql') USING (queue, part, key)
),
spans AS (
    SELECT queue, part, off, began, ended FROM direct
    UNION ALL SELECT queue, part, min(off), min(began),
        coalesce(min(CASE WHEN said = 'ok' THEN ended END), 1152921504606846976)
    FROM others AS o
    WHERE NOT EXISTS (FROM cut) GROUP BY queue, part, key
)
SELECT queue, off FROM spans AS x
WHERE EXISTS (FROM spans AS y WHERE (y.queue, y.part) = (x.queue, x.part) AND y.off > x.off AND y.ended < x.began)""",
    "a_request_keeps_its_order": """
SELECT queue, off FROM (
    SELECT queue, off, lag(off) OVER (PARTITION BY agent, number, queue, part ORDER BY pos) AS above
    FROM placed SEMI JOIN own USING (queue, part, key) WHERE NOT dup AND kind <> 'sql'
) WHERE above >= off""",
    "delivered_times_never_fall": """
SELECT queue, off FROM (
    SELECT *, lag(told) OVER (PARTITION BY queue, part ORDER BY off, told) AS before FROM (
        SELECT DISTINCT queue, part, off, created_at AS told FROM d
    ) WHERE off IS NOT NULL AND told IS NOT NULL
) WHERE before > told""",
    "logged_times_never_fall": """
SELECT queue, off FROM (
    SELECT *, lag(created_at) OVER (PARTITION BY queue, part ORDER BY off, created_at) AS before FROM l
) WHERE before > created_at""",
    "answered_pushes_are_in_the_log": """
SELECT queue, off FROM m WHERE (answered IS NOT NULL OR pushed > 0 AND given > 0)
AND (logged = 0 OR logged = 1 AND log_off <> off) AND held(m.queue, m.part, off, coalesce(answered, seen))""",
    "every_segment_can_be_read": "SELECT queue, first FROM unread",
    "deliveries_are_what_was_pushed": """
WITH known AS (FROM m WHERE given > 0 AND (queued > 0 OR NOT EXISTS (FROM cut WHERE since <= m.seen)))
SELECT queue, off FROM known WHERE pushed = 0 AND (queue, part) NOT IN (FROM nameless)
    AND (queue, part, key) NOT IN (SELECT (queue, part, key) FROM d WHERE astray)
UNION ALL SELECT queue, off FROM d WHERE astray
UNION ALL SELECT queue, off FROM known WHERE seen < began AND NOT EXISTS (FROM cut WHERE since <= known.seen)
UNION ALL SELECT queue, off FROM d SEMI JOIN known USING (queue, part, key) WHERE ph IS NOT NULL AND ph NOT IN (
    SELECT ph FROM meant AS p WHERE (p.queue, p.part, p.key) = (d.queue, d.part, d.key) AND ph IS NOT NULL
) AND EXISTS (FROM meant AS p WHERE (p.queue, p.part, p.key) = (d.queue, d.part, d.key) AND ph IS NOT NULL)""",
    "the_log_holds_what_was_pushed": """
SELECT queue, off FROM m WHERE logged > 0 AND pushed = 0 AND (queue, part) IN (SELECT (queue, part) FROM p)
AND NOT EXISTS (FROM cut) AND (queue, part) NOT IN (FROM nameless)""",
    "a_request_is_stored_whole_or_not_at_all": """
SELECT min(queue), NULL FROM (SELECT *, NOT there AND held(own.queue, own.part, off, ended) AS missing FROM own)
WHERE kind = 'push' AND call <> 'ok' GROUP BY agent, number
HAVING bool_or(there) AND (min(call) = 'fail' OR bool_or(missing))""",
    "what_was_delivered_is_done_in_the_end": """
SELECT queue, min(d.off) FROM d JOIN empty USING (queue, grp) ANTI JOIN finished USING (queue, part, grp, key)
WHERE NOT EXISTS (FROM hidden AS o WHERE o.queue = d.queue AND o.grp = d.grp AND o.tail)
GROUP BY d.queue, d.part, d.grp, key, empty.moment
HAVING min(d.ended) < empty.moment AND NOT excused(d.queue, d.part, d.grp, min(d.off))""",
    "cursors_pass_only_what_is_done": """
SELECT l.queue, l.off FROM (FROM l ANTI JOIN gone USING (queue, part, key)) AS l
JOIN cursors AS k ON k.queue = l.queue AND k.partition = l.part AND (l.off <= k.acked
    OR len(list_filter(k.ahead, lambda r: l.off BETWEEN r.first AND r.last)) > 0)
JOIN groups AS g ON g.queue = k.queue AND g."group" = k."group" AND g.whole
WHERE (k.queue, k."group") IN (SELECT (queue, grp) FROM d UNION SELECT (queue, grp) FROM a)
AND NOT EXISTS (FROM hidden AS o WHERE o.queue = k.queue AND o.grp = k."group" AND (o.tail OR o.swallowed))
AND NOT EXISTS (FROM finished AS f WHERE (f.queue, f.part, f.grp, f.key) = (l.queue, l.part, k."group", l.key))
AND NOT excused(l.queue, l.part, k."group", l.off)""",
    "a_transaction_id_is_stored_once": """
SELECT queue, off FROM m WHERE (off <> off_high OR logged > 1 OR direct > 1)
AND NOT EXISTS (FROM h AS t WHERE (t.queue, t.part) = (m.queue, m.part) AND t.live > coalesce(m.off, 0))
AND (queue, part) IN (SELECT (queue, part) FROM h)
AND EXISTS (FROM queues AS t WHERE t.queue = m.queue AND t.created_at <= coalesce(m.answered, t.created_at))""",
    "a_duplicate_has_an_original_in_its_partition": """
SELECT queue, min(m.off) FROM p JOIN m USING (queue, part, key)
WHERE p.dup AND p.said = 'ok' AND m.queued = 0 AND NOT m.there AND NOT EXISTS (FROM cut)
GROUP BY queue, part, key, m.pushed, m.refused HAVING count(*) = m.pushed - m.refused""",
    "a_lease_excludes_all_others": """
WITH said AS (
    SELECT queue, part, grp, lease, agent, number, key, began,
        status = 'retry' OR status = 'failed' AND NOT dead AS nack
    FROM a WHERE said <> 'fail' AND lease IS NOT NULL
    UNION ALL SELECT queue, part, grp, d.lease, a.agent, a.number, key, a.began,
        status = 'retry' OR status = 'failed' AND NOT dead
    FROM a JOIN d USING (queue, part, grp, key) WHERE said <> 'fail' AND a.lease IS NULL
),
until AS (
    SELECT x.*, CASE WHEN NOT auto_ack AND length IS NOT NULL THEN least(
        greatest(began + length, (SELECT max(r.began + r.lease_seconds * 1e6) FROM c AS r
            WHERE r.kind = 'renew' AND r.outcome = 'ok' AND r.lease = x.lease)),
        (SELECT min(s.began) FROM said AS s WHERE (s.queue, s.part, s.grp, s.lease) = (x.queue, x.part, x.grp, x.lease)
            AND (s.nack OR x.n <= (SELECT count(*) FROM said AS t
                WHERE (t.queue, t.part, t.grp, t.lease) = (x.queue, x.part, x.grp, x.lease) AND t.began <= s.began))),
        (SELECT CASE WHEN since >= x.ended THEN since ELSE 0 END FROM cut WHERE cut.agent = x.agent)
    ) ELSE 0 END AS until
    FROM held AS x
)
SELECT queue, NULL FROM until AS x WHERE EXISTS (
    FROM until AS y WHERE (y.queue, y.part, y.grp) = (x.queue, x.part, x.grp) AND y.until > x.ended
    AND CASE WHEN x.until > x.ended THEN (y.ended, y.agent, y.number) < (x.ended, x.agent, x.number)
        ELSE y.ended < x.began END)""",
    "an_ended_lease_acks_nothing": """
WITH over AS (
    SELECT x.*, least(
        CASE WHEN auto_ack THEN ended WHEN length IS NULL THEN 1152921504606846976
        ELSE greatest(ended + length, (SELECT max(r.ended + r.lease_seconds * 1e6) FROM c AS r
            WHERE r.kind = 'renew' AND r.outcome <> 'fail' AND r.lease = x.lease)) END,
        (SELECT min(y.ended) FROM held AS y
            WHERE (y.queue, y.part, y.grp) = (x.queue, x.part, x.grp) AND y.began >= x.ended)) AS until
    FROM held AS x WHERE lease <> '' AND agent NOT IN (SELECT agent FROM cut)
)
SELECT a.queue, a.off FROM a JOIN over AS x USING (queue, part, grp, lease)
WHERE a.said = 'ok' AND a.call = 'ok' AND NOT a.noop AND a.began > x.until
AND NOT EXISTS (FROM a AS b WHERE (b.queue, b.part, b.grp, b.key) = (a.queue, a.part, a.grp, a.key) AND b.may_finish
    AND (b.agent, b.number, b.pos) <> (a.agent, a.number, a.pos) AND b.began <= a.ended)
AND NOT EXISTS (FROM done WHERE (done.queue, done.part, done.grp, done.key) = (a.queue, a.part, a.grp, a.key)
    AND done.moment < a.began)""",
    "attempts_rise": """
WITH t AS (
    SELECT *, row_number() OVER w AS place, lead(began) OVER w AS next FROM d WHERE attempt IS NOT NULL
    WINDOW w AS (PARTITION BY queue, part, grp, key ORDER BY began, ended, agent, number)
)
SELECT queue, off FROM t WHERE place = 1 AND attempt <> 1 AND coalesce(next > ended, true)
AND NOT EXISTS (FROM hidden AS o WHERE o.queue = t.queue AND o.grp = t.grp AND o.since <= t.ended)
UNION ALL SELECT queue, off FROM t AS x WHERE EXISTS (FROM t AS y
    WHERE (y.queue, y.part, y.grp, y.key) = (x.queue, x.part, x.grp, x.key)
    AND (y.attempt >= x.attempt AND y.ended < x.began
        OR y.attempt = x.attempt AND y.off IS NOT DISTINCT FROM x.off
            AND (y.began, y.ended, y.agent, y.number) < (x.began, x.ended, x.agent, x.number)))""",
    "what_is_done_does_not_come_again": """
SELECT queue, off FROM d JOIN done USING (queue, part, grp, key) WHERE d.began > done.moment AND NOT EXISTS (
    FROM d AS x, d AS y WHERE (x.queue, x.part, x.grp, x.key) = (d.queue, d.part, d.grp, d.key)
    AND (y.queue, y.part, y.grp, y.key) = (d.queue, d.part, d.grp, d.key) AND x.off < y.off)""",
    "answered_acks_are_below_the_cursor": """
SELECT queue, o.off FROM done JOIN (
    SELECT queue, part, key, coalesce(min(d.off), min(m.off), min(m.log_off)) AS off
    FROM m LEFT JOIN d USING (queue, part, key) GROUP BY queue, part, key
) AS o USING (queue, part, key)
JOIN cursors AS k ON (k.queue, k.partition, k."group") = (done.queue, done.part, done.grp)
WHERE o.off > k.acked AND NOT list_bool_or(list_concat([false], list_transform(k.ahead,
    lambda r: r.first <= o.off AND o.off <= r.last)))""",
    "dead_letters_come_in_time": """
WITH limits AS (
    SELECT queue, coalesce(max(t.retry_limit), max(q.retry_limit)) AS most
    FROM queues AS q FULL JOIN (SELECT queue, retry_limit FROM c WHERE kind = 'configured') AS t USING (queue)
    GROUP BY queue
),
tried AS (SELECT *, (agent, number) AS id FROM a WHERE status = 'failed' AND said <> 'fail'),
counted AS (
    SELECT x.*, most,
        (SELECT count(DISTINCT y.id) FROM tried AS y
            WHERE (y.queue, y.part, y.grp, y.key) = (x.queue, x.part, x.grp, x.key) AND y.id <> x.id
            AND y.said = 'ok' AND y.ended < x.began) AS surely,
        (SELECT count(DISTINCT y.id) FROM tried AS y
            WHERE (y.queue, y.part, y.grp, y.key) = (x.queue, x.part, x.grp, x.key) AND y.id <> x.id
            AND y.began < x.ended) AS perhaps
    FROM tried AS x JOIN limits USING (queue) WHERE x.said = 'ok' AND x.kind = 'ack' AND most IS NOT NULL
)
SELECT queue, off FROM counted AS x WHERE NOT dead AND surely >= most OR dead AND perhaps < most
    AND NOT EXISTS (FROM hidden AS o WHERE o.queue = x.queue AND o.grp = x.grp AND o.tail)
UNION ALL
SELECT queue, min(off) FROM a WHERE dead AND said = 'ok' GROUP BY queue, part, grp, key HAVING count(*) > 1""",
    "answered_dead_letters_are_kept": """
SELECT queue, m.off FROM (SELECT DISTINCT queue, part, grp, key FROM a JOIN queues USING (queue)
    WHERE dead AND said = 'ok' AND ended >= queues.created_at) AS x
JOIN m USING (queue, part, key) JOIN queues AS q USING (queue)
WHERE q.keeps_dead_letters AND m.off IS NOT NULL AND 1 <> (SELECT count(*) FROM dead_letters AS t
    WHERE (t.queue, t.partition, t."group", t."offset") = (x.queue, x.part, x.grp, m.off))""",
    "a_transaction_happens_whole_or_not_at_all": """
WITH t AS (
    SELECT agent, number, min(queue) AS queue, min(call) AS call, bool_or(there) AS there,
        least(min(ended), min(CASE WHEN there THEN seen END)) AS moment
    FROM own WHERE kind = 'transaction' GROUP BY agent, number
),
happened AS (FROM t WHERE call = 'ok' OR call = 'unknown' AND there)
SELECT queue, NULL FROM t WHERE call = 'fail' AND there
UNION ALL SELECT min(x.queue), NULL FROM happened AS x JOIN own USING (agent, number)
WHERE NOT own.there AND held(own.queue, own.part, own.off, own.ended) GROUP BY agent, number
UNION ALL SELECT min(x.queue), NULL FROM happened AS x JOIN a USING (agent, number)
JOIN d ON (d.queue, d.part, d.grp, d.key) = (a.queue, a.part, a.grp, a.key)
WHERE d.began > x.moment GROUP BY agent, number
UNION ALL SELECT min(x.queue), NULL FROM happened AS x JOIN a USING (agent, number)
JOIN m ON (m.queue, m.part, m.key) = (a.queue, a.part, a.key)
JOIN cursors AS k ON (k.queue, k.partition, k."group") = (a.queue, a.part, a.grp)
WHERE x.call = 'unknown' AND a.status IN ('completed', 'success') AND coalesce(m.off, m.log_off) > k.acked
AND len(list_filter(k.ahead, lambda r: coalesce(m.off, m.log_off) BETWEEN r.first AND r.last)) = 0
GROUP BY agent, number""",
    "each_input_makes_its_output_once": """
WITH done AS (SELECT DISTINCT agent, number, queue, part, grp, key FROM a WHERE kind = 'transaction' AND (call = 'ok'
    OR EXISTS (FROM own WHERE (own.agent, own.number) = (a.agent, a.number) AND own.there)))
SELECT queue, NULL FROM done GROUP BY queue, part, grp, key HAVING count(*) > 1""",
    "every_group_gets_every_message": """
SELECT queue, m.off FROM m JOIN empty USING (queue) WHERE answered < empty.moment
AND NOT EXISTS (FROM hidden AS o WHERE o.queue = m.queue AND o.grp = empty.grp AND (o.swallowed OR o.tail))
AND NOT EXISTS (FROM d WHERE (d.queue, d.part, d.grp, d.key) = (m.queue, m.part, empty.grp, m.key))
AND NOT excused(m.queue, m.part, empty.grp, coalesce(m.off, m.log_off))""",
    "groups_begin_at_the_beginning": """
SELECT d.queue, min(d.off) AS off FROM d JOIN groups AS g ON g.queue = d.queue AND g."group" = d.grp AND g.whole
JOIN h ON h.queue = d.queue AND h.part = d.part
WHERE NOT EXISTS (FROM hidden AS o WHERE o.queue = d.queue AND o.grp = d.grp)
GROUP BY d.queue, d.part, d.grp, h.live
HAVING min(d.off) > h.live AND NOT all_given_up(d.queue, d.part, d.grp, h.live, min(d.off))""",
    "only_what_may_go_is_gone": """
WITH r AS (
    SELECT h.*, least(nullif(retention_seconds, 0), nullif(completed_retention_seconds, 0),
        nullif(ttl_seconds, 0)) * 1000000 AS keeps
    FROM h JOIN queues USING (queue) WHERE live > 0
)
SELECT queue, live FROM r WHERE keeps IS NULL
UNION ALL SELECT queue, m.off FROM m JOIN r USING (queue, part)
WHERE coalesce(answered, seen) IS NOT NULL AND m.off < live AND $taken_at - began < keeps""",
    "pops_keep_to_their_limits": """
WITH r AS (FROM c WHERE kind = 'pop' AND outcome = 'ok' AND len(deliveries) > 0)
SELECT coalesce(queue, agent || '.'), NULL FROM r WHERE len(deliveries) > batch
UNION ALL SELECT coalesce(queue, agent || '.'), NULL FROM r WHERE len(list_distinct(list_transform(deliveries,
    lambda d: struct_pack(a := d.queue, b := d.partition)))) > CASE WHEN partitions >= 1 THEN partitions ELSE 1000 END
UNION ALL SELECT coalesce(queue, agent || '.'), NULL FROM r
WHERE len(list_filter(deliveries, lambda d: d.queue <> r.queue)) > 0
UNION ALL SELECT coalesce(queue, agent || '.'), NULL FROM r
WHERE len(list_filter(deliveries, lambda d: d.partition <> r.partition)) > 0
UNION ALL SELECT coalesce(queue, agent || '.'), NULL FROM r WHERE NOT auto_ack AND coalesce(lease, '') = ''
UNION ALL SELECT coalesce(queue, agent || '.'), NULL FROM r WHERE auto_ack AND lease <> ''
UNION ALL SELECT max(queue), NULL FROM r WHERE lease <> '' GROUP BY lease HAVING count(*) > 1""",
    "answers_do_not_contradict_themselves": """
SELECT queue, off FROM a WHERE dead AND status NOT IN ('failed', 'dlq')
UNION ALL SELECT queue, off FROM a WHERE noop AND status NOT IN ('completed', 'success')
UNION ALL SELECT queue, off FROM a WHERE said = 'ok'
    AND status NOT IN ('completed', 'success', 'failed', 'retry', 'dlq')
UNION ALL SELECT queue, off FROM a WHERE said = 'fail' AND (dead OR noop)
UNION ALL SELECT queue, off FROM p WHERE said = 'fail' AND (dup OR spooled)
UNION ALL SELECT queue, off FROM p WHERE dup AND spooled
UNION ALL SELECT queue, off FROM p WHERE said = 'ok' AND astray
UNION ALL SELECT queue, off FROM p WHERE spooled AND off IS NOT NULL AND key <> 'offset ' || off
UNION ALL SELECT queue, log_off FROM m WHERE pushed > 0 AND refused = pushed AND logged > 0
    AND key <> 'offset ' || log_off
UNION ALL SELECT coalesce(queue, agent || '.'), NULL FROM c WHERE kind = 'pop'
    AND len(list_filter(deliveries, lambda d: d."offset" <> offset_in(d.message_id))) > 0
UNION ALL SELECT coalesce(queue, agent || '.'), NULL FROM (
    SELECT *, len(list_filter(pushes, lambda i: i.outcome = 'ok')) + len(list_filter(acks, lambda i: i.outcome = 'ok'))
        + len(deliveries) AS results,
        len(list_filter(pushes, lambda i: i.outcome = 'unknown'))
        + len(list_filter(acks, lambda i: i.outcome = 'unknown')) AS open
    FROM c WHERE kind IN ('push', 'pop', 'ack', 'renew', 'transaction')
), LATERAL (SELECT unnest([
    outcome = 'ok' AND answered IS NULL, outcome = 'unknown' AND answered IS NOT NULL, answered < sent,
    outcome <> 'ok' AND results > 0, outcome = 'ok' AND open > 0]) AS wrong) WHERE wrong""",
    "a_duplicate_names_the_stored_message": """
SELECT queue, m.off FROM p JOIN m USING (queue, part, key)
WHERE p.dup AND p.said = 'ok' AND p.off NOT IN (m.off, m.off_high)
AND NOT EXISTS (FROM h AS t WHERE (t.queue, t.part) = (p.queue, p.part) AND t.live > p.off)""",
    "only_leases_that_were_given_can_ack": """
WITH told AS (SELECT queue, part, grp FROM d WHERE NOT auto_ack
    AND NOT EXISTS (FROM hidden AS o WHERE o.queue = d.queue AND o.grp = d.grp) GROUP BY ALL HAVING min(lease) <> ''),
named AS (
    SELECT a.*, (queue, part, grp, lease) IN (SELECT (queue, part, grp, lease) FROM held) AS given
    FROM a SEMI JOIN told USING (queue, part, grp)
    WHERE said = 'ok' AND call = 'ok' AND NOT noop AND agent NOT IN (SELECT agent FROM cut)
)
SELECT queue, off FROM named WHERE lease <> '' AND NOT given
UNION ALL SELECT queue, off FROM named AS x WHERE lease IS NOT NULL AND (given OR lease = '') AND finishes
AND NOT EXISTS (FROM d WHERE (d.queue, d.part, d.grp, d.key) = (x.queue, x.part, x.grp, x.key))""",
    "a_renewal_revives_no_lease": """
WITH r AS (FROM c WHERE kind = 'renew' AND coalesce(lease, '') <> ''),
ends AS (
    SELECT lease, max(queue) AS queue, max(ended + lease_seconds * 1e6) AS moment,
        bool_or(lease_seconds IS NULL) AS endless
    FROM c WHERE kind = 'pop' AND coalesce(lease, '') <> '' AND NOT auto_ack GROUP BY lease
)
SELECT coalesce(e.queue, r.agent || '.'), NULL FROM r LEFT JOIN ends AS e USING (lease)
WHERE r.outcome = 'ok' AND r.agent NOT IN (SELECT agent FROM cut) AND (e.lease IS NULL OR NOT endless
    AND r.began > greatest(moment, coalesce((SELECT max(o.ended + o.lease_seconds * 1e6) FROM r AS o
        WHERE o.lease = r.lease AND o.outcome <> 'fail' AND (o.agent, o.number) <> (r.agent, r.number)
        AND o.began <= r.ended), 0)))""",
    "attempts_are_at_most_the_deliveries": """
SELECT queue, off FROM d AS x WHERE attempt > (SELECT count(DISTINCT (agent, number)) FROM d AS y
    WHERE (y.queue, y.part, y.grp) = (x.queue, x.part, x.grp))
AND NOT EXISTS (FROM hidden AS o WHERE o.queue = x.queue AND o.grp = x.grp)""",
    "no_group_is_forgotten": """
SELECT queue, NULL FROM d JOIN queues AS q USING (queue)
WHERE (queue, grp) NOT IN (SELECT (queue, "group") FROM groups UNION SELECT (queue, "group") FROM retired)
GROUP BY queue, grp HAVING max(d.began) > max(q.created_at)""",
    "delivered_times_are_those_of_the_log": """
SELECT d.queue, d.off FROM (FROM d WHERE created_at IS NOT NULL) AS d JOIN m USING (queue, part, key)
JOIN l ON (l.queue, l.part, l.off) = (d.queue, d.part, m.log_off)
WHERE logged = 1 AND NOT EXISTS (FROM d AS o WHERE (o.queue, o.part, o.grp, o.key) = (d.queue, d.part, d.grp, d.key)
    AND o.off <> m.log_off) AND d.off IS NOT NULL
GROUP BY d.queue, d.part, d.off
HAVING min(d.created_at) < min(l.created_at) - 1000 OR max(d.created_at) > min(l.created_at) + 1000""",
    "messages_have_the_time_of_their_push": """
SELECT m.queue, m.off FROM m JOIN l ON (l.queue, l.part, l.off) = (m.queue, m.part, m.log_off)
WHERE logged = 1 AND direct = 1 AND NOT EXISTS (FROM p WHERE (p.queue, p.part, p.key) = (m.queue, m.part, m.key)
    AND agent NOT IN (SELECT agent FROM compared))
AND (l.created_at < m.began - 1000 OR l.created_at > m.answered + 1000)""",
    "cursors_know_what_was_delivered": """
WITH k AS (
    SELECT queue, partition AS part, "group" AS grp, lease, upto, seen FROM cursors AS k
    WHERE seen IS NOT NULL AND NOT EXISTS (FROM hidden AS o WHERE o.queue = k.queue AND o.grp = k."group")
    AND (queue, "group") IN (SELECT (queue, grp) FROM d UNION SELECT (queue, grp) FROM a)
)
SELECT k.queue, max(d.off) FROM k JOIN d USING (queue, part, grp) GROUP BY k.queue, k.part, k.grp, seen
HAVING seen < max(d.off)
UNION ALL SELECT k.queue, x.last FROM k LEFT JOIN (
    SELECT queue, part, grp, lease, max(off) AS last FROM d WHERE NOT auto_ack GROUP BY ALL
) AS x USING (queue, part, grp, lease)
WHERE k.lease IS NOT NULL AND (x.last IS NULL OR x.last <> k.upto)""",
    "pushes_with_sql_keep_their_order": """
WITH s AS (FROM placed SEMI JOIN own USING (queue, part, key) WHERE kind = 'sql')
SELECT queue, off FROM (
    SELECT queue, off, lag(off) OVER (PARTITION BY agent, number, queue, part ORDER BY pos) AS above FROM s
) WHERE above >= off
UNION ALL SELECT queue, off FROM s AS x WHERE EXISTS (
    FROM s AS y WHERE (y.queue, y.part) = (x.queue, x.part) AND y.off > x.off AND y.call = 'ok'
    AND y.ended < x.began)""",
    "pushes_with_sql_commit_with_their_transaction": """
WITH s AS (
    SELECT p.*, m.pushed, m.refused, m.there, m.logged, m.log_off,
        held(p.queue, p.part, p.off, p.ended)
        AND (p.queue, p.part) NOT IN (SELECT (queue, partition) FROM waiting) AS due
    FROM p JOIN m USING (queue, part, key) WHERE p.kind = 'sql'
)
SELECT queue, log_off FROM s WHERE call = 'ok' AND due AND logged <> 1
UNION ALL SELECT queue, log_off FROM s WHERE call = 'fail' AND there AND pushed = refused
UNION ALL SELECT queue, NULL FROM s WHERE call = 'unknown' AND due AND NOT there AND EXISTS (
    FROM s AS t WHERE (t.agent, t.number) = (s.agent, s.number) AND t.there AND t.pushed = 1)""",
    "transaction_ids_are_those_of_the_log": """
WITH k AS (
    FROM log AS g WHERE NOT EXISTS (FROM deleted AS t WHERE t.part_id = g.part_id
        AND g."offset" BETWEEN t.first AND t.last) AND damage IS NULL
),
sums AS (
    SELECT h.part_id, h.queue, coalesce(max(i.ids), 0) AS ids, coalesce(max(i.checksum), 0) AS checksum
    FROM h LEFT JOIN id_sums AS i USING (part_id) GROUP BY ALL
),
own AS (
    SELECT part_id, count(*) AS n, bit_xor(xor(id_key, (id_key & 4294967295) * ("offset" & 1073741823))) AS checksum
    FROM k JOIN h USING (part_id) WHERE id_key IS NOT NULL AND "offset" >= live GROUP BY part_id
)
SELECT h.queue, k."offset" FROM k JOIN h USING (part_id) WHERE k.id_differs
UNION ALL SELECT queue, NULL FROM sums LEFT JOIN own USING (part_id)
WHERE (ids <> coalesce(n, 0) OR sums.checksum <> coalesce(own.checksum, 0))
AND part_id NOT IN (SELECT part_id FROM log WHERE damage IS NOT NULL)""",
    "the_log_has_the_pushed_payloads": """
WITH t AS (
    SELECT m.queue, m.log_off, ph = payload_hash OR coalesce(ph = sorted_hash, false) AS alike, pusher
    FROM m JOIN (
        SELECT queue, part, key, max(ph) AS ph, min(agent) AS pusher FROM meant GROUP BY ALL HAVING max(ph) = min(ph)
    ) USING (queue, part, key)
    JOIN h USING (queue, part) JOIN log AS g ON g.part_id = h.part_id AND g."offset" = m.log_off
    WHERE m.logged = 1 AND payload_hash IS NOT NULL
)
SELECT queue, log_off FROM t WHERE NOT alike AND pusher IN (SELECT pusher FROM t WHERE alike)""",
    "dead_letters_are_of_their_messages": """
WITH b AS (
    SELECT t.queue, t."offset" AS off, g.payload_hash <> t.payload_hash AS one,
        g.id_key IS NOT NULL AND g.hash <> t.id_hash AS two, g.created_at <> t.created_at AS three
    FROM dead_letters AS t JOIN h ON (h.queue, h.part) = (t.queue, t.partition)
    JOIN log AS g ON g.part_id = h.part_id AND g."offset" = t."offset"
)
SELECT queue, off FROM b WHERE one UNION ALL SELECT queue, off FROM b WHERE two
UNION ALL SELECT queue, off FROM b WHERE three
UNION ALL SELECT queue, "offset" FROM flaws WHERE audit = 'dead_letters_are_of_their_messages'""",
    "spooled_messages_are_stored_once": """
SELECT queue, off FROM m WHERE spooled AND logged <> 1 AND held(m.queue, m.part, off, answered)""",
}
# What PostgreSQL has found with a query is not looked for once more.
AUDITS |= {
    name: f"""SELECT queue, "offset" FROM flaws WHERE audit = '{name}'""" for name in QUERIES if name not in AUDITS
}


def as_tables(rows: Tables) -> dict[str, pa.Table]:
    """The rows as what ``judge`` reads."""
    kinds = {"calls": Call, "log": LogRow, "heads": Head, "cursors": Cursor, "dead_letters": DeadLetter}
    kinds |= {"queues": Queue, "groups": Group, "deleted": Deleted, "retired": Group, "waiting": Waiting}
    kinds |= {"id_sums": IdSum, "flaws": Flaw}
    return {name: arrow_table(kind, getattr(rows, name)) for name, kind in kinds.items()}


def judge(tables: dict[str, pa.Table], taken_at: int) -> dict[str, Counter[tuple[str, int | None]]]:
    """By audit: what it reports, as (run, offset) with how often; the offset where it has one."""
    found = {}
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(f"{name}_given", table)
            connection.execute(f"CREATE TABLE {name} AS FROM {name}_given")
        connection.execute(VIEWS)
        for audit, query in AUDITS.items():
            given = {"taken_at": taken_at} if "$taken_at" in query else {}
            reported = connection.execute(query, given).fetchall()
            found[audit] = Counter((queue.rpartition(".")[0], offset) for queue, offset in reported)
    return found
