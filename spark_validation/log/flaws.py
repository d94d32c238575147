"""What tables of the database say of each other, judged by PostgreSQL under the snapshot: one query per audit.

These tables are small beside the log. A query returns the rows that contradict others, as ``inputs.Flaw``.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

LIMIT = 10_000
"""The most flaws of one audit."""

_DAY_S = 86_400
_LEASE_DAYS_MAX = 7
_PLACE = """
FROM queen.partition_consumers AS c
JOIN queen.partitions AS p ON p.id = c.part_id
JOIN queen.queues AS q ON q.id = p.queue_id
JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id
LEFT JOIN queen.log_ends AS l ON l.part_id = c.part_id
"""

_CURSORS = f"""
SELECT q.name, p.name, g.name, c.acked, f.text
FROM (
    SELECT k.*, e.lowest
    FROM queen.partition_consumers AS k
    LEFT JOIN (
        SELECT s.part_id, min(s.last_off - s.n + 1) AS lowest FROM queen.segments AS s GROUP BY s.part_id
    ) AS e ON e.part_id = k.part_id
) AS c
{_PLACE.partition("AS c")[2]}
LEFT JOIN queen.deleted_messages AS d ON d.part_id = c.part_id
CROSS JOIN (
    SELECT NOT EXISTS (SELECT 1 FROM queen.clock_steps)
        AND NOT EXISTS (SELECT 1 FROM queen.pending_configurations) AS yes
) AS settled
CROSS JOIN LATERAL (VALUES
    (c.acked < -1, format('has its cursor at %s, below all offsets', c.acked)),
    (c.acked >= l.next_off, format('has its cursor at %s, but the log ends before offset %s', c.acked, l.next_off)),
    (c.acked < c.lowest - 1, format('has its cursor at %s, below the oldest offset, %s', c.acked, c.lowest)),
    (c.ready_at = 'infinity' AND c.acked < l.next_off - 1,
        format('waits for a push, but its cursor at %s is not at the log end, %s', c.acked, l.next_off)),
    (upper(c.ahead) > l.next_off, format('has finished %s, beyond the log end, %s', c.ahead, l.next_off)),
    (lower(c.ahead) <= c.acked + 1 OR isempty(c.ahead),
        format('has finished %s ahead, but its cursor is at %s', c.ahead, c.acked)),
    (greatest(c.upto, c.seen) >= l.next_off,
        format('was given offsets up to %s, beyond the log end, %s', greatest(c.upto, c.seen), l.next_off)),
    (c.seen_before > c.seen AND c.seen_before >= l.next_off,
        format('was given offsets up to %s, beyond the log end, %s', c.seen_before, l.next_off)),
    (least(c.upto, c.seen, c.seen_before) < -1, 'has been given an offset below all'),
    (c.seen < c.upto AND c.lease IS NOT NULL, format('has a lease up to %s, but was given only %s', c.upto, c.seen)),
    (c.attempts < 0 OR (c.attempts = 0 AND c.lease IS NOT NULL AND c.acked < c.seen),
        format('has a lease after %s deliveries', c.attempts)),
    (c.attempts > 0 AND c.seen < 0, format('counts %s deliveries, but was given nothing', c.attempts)),
    (c.ready_at = '-infinity' OR (
        isfinite(c.ready_at) AND c.lease IS NULL AND c.ready_at > clock_timestamp()
            + make_interval(secs => greatest(q.delayed_processing, q.window_buffer) + 1)
        AND c.ready_at IS DISTINCT FROM c.retry_at AND settled.yes
    ) OR (isfinite(c.ready_at) AND c.ready_at > clock_timestamp() + interval '{_LEASE_DAYS_MAX} days'
            + make_interval(secs => greatest(q.delayed_processing, q.window_buffer))
        AND c.retry_at IS DISTINCT FROM c.ready_at),
        format('waits until %s, which nothing explains', c.ready_at)),
    (c.ready_at < q.created_at AND c.ready_at < g.created_at AND settled.yes,
        format('is ready since %s, before there was its queue', c.ready_at)),
    (c.prefetched_until > clock_timestamp() + interval '1 minute',
        format('is held for a pop until %s', c.prefetched_until)),
    (c.retry_at > clock_timestamp() + make_interval(secs => coalesce(q.retry_delay, 0) / 1000.0)
        + interval '{_DAY_S} seconds', format('waits for a retry until %s, which nothing explains', c.retry_at)),
    (d.offsets IS NOT NULL AND NOT d.offsets <@ (
            coalesce(c.ahead, '{{}}') + int8multirange(int8range(NULL, c.acked, '[]'))),
        'has not finished a message that was deleted'),
    (EXISTS (
            SELECT 1 FROM jsonb_each(CASE jsonb_typeof(c.retries) WHEN 'object' THEN c.retries ELSE '{{}}' END) AS r
            WHERE r.key !~ '^\\d{{1,18}}$' OR jsonb_typeof(r.value) <> 'number' OR r.value::numeric < 1
                OR r.key::numeric <= c.acked OR r.key::numeric >= l.next_off OR c.ahead @> r.key::bigint
        ) OR jsonb_typeof(c.retries) <> 'object' OR c.retries = '{{}}',
        format('counts failures %s of no open message', c.retries))
) AS f (wrong, text)
WHERE f.wrong
"""

_GROUPS = """
SELECT q.name, p.name, g.name, NULL::bigint, 'has no cursor in this partition'
FROM queen.consumer_groups_metadata AS g
JOIN queen.queues AS q ON q.id = g.queue_id
JOIN queen.partitions AS p ON p.queue_id = g.queue_id
LEFT JOIN queen.partition_consumers AS c ON c.part_id = p.id AND c.grp_id = g.id
WHERE g.subscribed_upto >= p.id AND c.part_id IS NULL
UNION ALL
SELECT min(q.name), min(p.name), min(g.name), min(c.acked), format('has %s cursors', count(*))
FROM queen.partition_consumers AS c
LEFT JOIN queen.partitions AS p ON p.id = c.part_id
LEFT JOIN queen.queues AS q ON q.id = p.queue_id
LEFT JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id
GROUP BY c.part_id, c.grp_id HAVING count(*) > 1
UNION ALL
SELECT q.name, p.name, g.name, c.acked, CASE
        WHEN p.id IS NULL THEN format('has a cursor in partition %s, which does not exist', c.part_id)
        ELSE format('is group %s of another queue, or of none', c.grp_id) END
FROM queen.partition_consumers AS c
LEFT JOIN queen.partitions AS p ON p.id = c.part_id
LEFT JOIN queen.queues AS q ON q.id = p.queue_id
LEFT JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id
WHERE p.id IS NULL OR g.id IS NULL OR g.queue_id <> p.queue_id
UNION ALL
SELECT q.name, NULL, g.name, NULL, f.text
FROM queen.consumer_groups_metadata AS g
LEFT JOIN queen.queues AS q ON q.id = g.queue_id
LEFT JOIN queen.retired_groups AS r ON r.id = g.id
CROSS JOIN LATERAL (VALUES
    (q.id IS NULL, format('is a group of queue %s, which does not exist', g.queue_id)),
    (g.name = '', 'has no name'),
    (r.id IS NOT NULL AND (r.queue_id, r.name) <> (g.queue_id, g.name), format('has the number of %s', r.name)),
    (r.id IS NULL AND EXISTS (
        SELECT 1 FROM queen.retired_groups AS t WHERE (t.queue_id, t.name) = (g.queue_id, g.name)),
        'has come again under another number'),
    ((g.subscription_mode = 'all') <> (g.since = '-infinity') AND g.subscription_mode <> 'timestamp',
        format('began in the mode %s, but after %s', g.subscription_mode, g.since)),
    (g.subscription_mode = 'new' AND g.since > g.created_at + interval '1 second',
        format('began with what was new, but after %s', g.since)),
    (g.starts_at IS NOT NULL AND (g.subscription_mode <> 'timestamp' OR g.starts_at <> g.since),
        format('waits for its start at %s, and begins after %s', g.starts_at, g.since)),
    (g.begins AND g.starts_at IS NULL, 'is to begin, but waits for no start'),
    (g.subscribed_upto <> 9223372036854775807
        AND g.subscribed_upto > coalesce((SELECT max(p.id) FROM queen.partitions AS p), 0)
        AND NOT EXISTS (SELECT 1 FROM queen.removed_partitions AS p WHERE p.part_id = g.subscribed_upto),
        format('has cursors up to partition %s, which never was', g.subscribed_upto)),
    (g.subscribed_upto < -1, format('has cursors up to partition %s', g.subscribed_upto))
) AS f (wrong, text)
WHERE f.wrong
UNION ALL
SELECT q.name, NULL, NULL, NULL, format('has figures of group %s, which does not exist', t.grp_id)
FROM queen.group_stats AS t
LEFT JOIN queen.queues AS q ON q.id = t.queue_id
WHERE NOT EXISTS (SELECT 1 FROM queen.consumer_groups_metadata AS g WHERE g.id = t.grp_id AND g.queue_id = t.queue_id)
"""

_LETTERS = """
SELECT q.name, p.name, d.consumer_group, d.off, f.text
FROM queen.dead_letter_queue AS d
LEFT JOIN queen.partitions AS p ON p.id = d.part_id
LEFT JOIN queen.queues AS q ON q.id = d.queue_id
LEFT JOIN queen.log_ends AS l ON l.part_id = d.part_id
LEFT JOIN queen.partition_consumers AS c ON c.part_id = d.part_id AND c.grp_id = d.grp_id
CROSS JOIN LATERAL (VALUES
    (p.id IS NULL OR p.queue_id <> d.queue_id, 'is a dead letter of a partition that its queue does not have'),
    (d.off < 0 OR d.off >= l.next_off, format('is a dead letter, but the log ends before offset %s', l.next_off)),
    (NOT EXISTS (
            SELECT 1 FROM queen.consumer_groups_metadata AS g
            WHERE (g.id, g.queue_id, g.name) = (d.grp_id, d.queue_id, d.consumer_group)
        ) AND NOT EXISTS (
            SELECT 1 FROM queen.retired_groups AS r
            WHERE (r.id, r.queue_id, r.name) = (d.grp_id, d.queue_id, d.consumer_group)
        ), 'is a dead letter of a group that never was'),
    (d.error = '', 'is a dead letter without an error'),
    (d.retry_count < 0, format('is a dead letter after %s failures', d.retry_count)),
    (d.failed_at < d.created_at AND NOT EXISTS (SELECT 1 FROM queen.clock_steps),
        format('failed at %s, before it was stored, at %s', d.failed_at, d.created_at)),
    (d.transaction_id = '', 'is a dead letter without a transaction id'),
    (EXISTS (SELECT 1 FROM queen.deleted_messages AS m WHERE m.part_id = d.part_id AND m.offsets @> d.off),
        'is a dead letter of a deleted message'),
    (jsonb_typeof(d.headers) <> 'object', 'is a dead letter with headers that are no names and texts')
) AS f (wrong, text)
WHERE f.wrong AND NOT EXISTS (SELECT 1 FROM queen.removed_partitions AS x WHERE x.part_id = d.part_id)
"""

_PARTS = """
SELECT q.name, p.name, NULL, NULL::bigint, format('belongs to queue %s, which does not exist', p.queue_id)
FROM queen.partitions AS p LEFT JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.id IS NULL
UNION ALL
SELECT q.name, p.name, NULL, NULL, 'has no row in partition_locks, so that nothing can be pushed'
FROM queen.partitions AS p LEFT JOIN queen.queues AS q ON q.id = p.queue_id
WHERE NOT EXISTS (SELECT 1 FROM queen.partition_locks AS l WHERE l.part_id = p.id)
UNION ALL
SELECT NULL, NULL, NULL, o.off, format('%s has partition %s, which does not exist', o.what, o.part_id)
FROM (
    SELECT 'partition_locks' AS what, l.part_id, NULL::bigint AS off FROM queen.partition_locks AS l
    UNION ALL SELECT 'segments', s.part_id, max(s.last_off) FROM queen.segments AS s GROUP BY s.part_id
    UNION ALL SELECT 'deleted_messages', d.part_id, NULL FROM queen.deleted_messages AS d
    UNION ALL SELECT 'traces', t.part_id, min(t.off) FROM queen.traces AS t GROUP BY t.part_id
    UNION ALL SELECT 'stream_state', t.part_id, NULL FROM queen.stream_state AS t
    UNION ALL SELECT 'stream_cycles', t.part_id, NULL FROM queen.stream_cycles AS t
) AS o
WHERE NOT EXISTS (SELECT 1 FROM queen.partitions AS p WHERE p.id = o.part_id)
    AND NOT EXISTS (SELECT 1 FROM queen.removed_partitions AS p WHERE p.part_id = o.part_id)
UNION ALL
SELECT NULL, p.name, NULL, NULL, 'is there, and removed'
FROM queen.partitions AS p JOIN queen.removed_partitions AS r ON r.part_id = p.id
UNION ALL
SELECT q.name, p.name, NULL, upper(d.offsets) - 1, CASE
        WHEN isempty(d.offsets) THEN 'has an entry of deleted messages, and no messages in it'
        ELSE format('has the deleted messages %s, but the log has offsets %s to %s', d.offsets, s.first, s.last) END
FROM queen.deleted_messages AS d
JOIN queen.partitions AS p ON p.id = d.part_id
JOIN queen.queues AS q ON q.id = p.queue_id
LEFT JOIN LATERAL (
    SELECT min(s.last_off - s.n + 1) AS first, max(s.last_off) AS last
    FROM queen.segments AS s WHERE s.part_id = d.part_id
) AS s ON true
WHERE isempty(d.offsets) OR lower(d.offsets) < coalesce(s.first, 0) OR upper(d.offsets) - 1 > coalesce(s.last, -1)
UNION ALL
SELECT q.name, p.name, NULL, t.off, 'is a deleted message, but has its transaction id'
FROM queen.deleted_messages AS d
JOIN queen.transaction_ids AS t ON t.part_id = d.part_id AND d.offsets @> t.off
JOIN queen.partitions AS p ON p.id = d.part_id
JOIN queen.queues AS q ON q.id = p.queue_id
UNION ALL
SELECT q.name, p.name, NULL, s.last_off, f.text
FROM queen.segments AS s
JOIN queen.partitions AS p ON p.id = s.part_id
JOIN queen.queues AS q ON q.id = p.queue_id
CROSS JOIN LATERAL (VALUES
    (s.n < 0 OR s.cut < 0 OR s.last_off - s.n < -1,
        format('is the last offset of %s messages, after %s that were cut off', s.n, s.cut)),
    (s.last_off - s.n - s.cut < -1, format('is the last offset of %s messages, of which %s were cut off', s.n, s.cut)),
    (s.cut > 0 AND s.n > 0 AND EXISTS (
        SELECT 1 FROM queen.segments AS t WHERE t.part_id = s.part_id AND t.last_off < s.last_off),
        format('is in a segment of which %s messages were cut off, which is not the oldest', s.cut)),
    (s.flush = '00000000-0000-0000-0000-000000000000' AND s.n > 0, 'was written by no call')
) AS f (wrong, text)
WHERE f.wrong
UNION ALL
SELECT q.name, p.name, NULL, t.off, format('has a trace, but the log ends before offset %s', l.next_off)
FROM queen.traces AS t
JOIN queen.partitions AS p ON p.id = t.part_id
JOIN queen.queues AS q ON q.id = p.queue_id
JOIN queen.log_ends AS l ON l.part_id = t.part_id
WHERE t.off >= l.next_off OR t.off < 0 OR t.queue_id <> p.queue_id
"""

_PAST: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "queues": ("created_at",),
        "partitions": ("created_at",),
        "segments": ("created_at",),
        "consumer_groups_metadata": ("created_at",),
        "dead_letter_queue": ("created_at", "failed_at"),
        "traces": ("created_at",),
        "streams": ("created_at", "registered_at"),
        "stream_state": ("updated_at",),
        "stream_cycles": ("cycled_at",),
        "outbox": ("pushed_at",),
        "outbox_held": ("pushed_at",),
        "outbox_held_partitions": ("since",),
        "timers": ("asked_at",),
        "schedules": ("last_at",),
        "fenced_flushes": ("fenced_at",),
        "spool_lanes": ("replayed_at",),
        "system_state": ("updated_at",),
        "queue_sizes": ("asked_at",),
        "earlier_procedures": ("replaced_at",),
        "clock": ("looked_at",),
    }
)
"""Columns with times at which something has happened."""

_OF_QUEUE = frozenset(
    {"partitions", "consumer_groups_metadata", "dead_letter_queue", "traces", "outbox", "outbox_held",
     "outbox_held_partitions", "timers", "schedules", "queue_sizes"}
)  # fmt: skip
_OF_PARTITION = frozenset({"segments", "dead_letter_queue", "traces", "stream_state", "stream_cycles"})
_WITH_OFFSET = {"segments": "t.last_off", "dead_letter_queue": "t.off", "traces": "t.off"}


def _ahead(table: str, column: str) -> str:
    queue, partition, joins = "NULL::text", "NULL::text", ""
    if table in _OF_PARTITION:
        joins = " LEFT JOIN queen.partitions AS p ON p.id = t.part_id LEFT JOIN queen.queues AS q ON q.id = p.queue_id"
        queue, partition = "q.name", "p.name"
    elif table in _OF_QUEUE:
        joins, queue = " LEFT JOIN queen.queues AS q ON q.id = t.queue_id", "q.name"
    elif table == "queues":
        queue = "t.name"
    return f"""
SELECT {queue}, {partition}, NULL::text, {_WITH_OFFSET.get(table, "NULL")}::bigint,
    format('%s is later than the snapshot: {table}.{column}', t.{column})
FROM queen.{table} AS t{joins}
WHERE t.{column} > clock_timestamp() + interval '1 second'
    AND NOT EXISTS (SELECT 1 FROM queen.clock_steps) AND NOT EXISTS (
        SELECT 1 FROM queen.clock AS k WHERE k.repaired_part IS NOT NULL)
"""


_TIMES = (
    "UNION ALL".join(_ahead(table, column) for table, columns in _PAST.items() for column in columns)
    + """
UNION ALL
SELECT q.name, p.name, NULL, NULL, format('was made at %s, before its queue, at %s', p.created_at, q.created_at)
FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id
WHERE p.created_at < q.created_at AND NOT EXISTS (SELECT 1 FROM queen.clock_steps)
UNION ALL
SELECT q.name, NULL, g.name, NULL, format('was made at %s, before its queue, at %s', g.created_at, q.created_at)
FROM queen.consumer_groups_metadata AS g JOIN queen.queues AS q ON q.id = g.queue_id
WHERE g.created_at < q.created_at AND NOT EXISTS (SELECT 1 FROM queen.clock_steps)
UNION ALL
SELECT q.name, p.name, NULL, s.last_off,
    format('was stored at %s, before its partition was made, at %s', s.created_at, p.created_at)
FROM queen.segments AS s
JOIN queen.partitions AS p ON p.id = s.part_id
JOIN queen.queues AS q ON q.id = p.queue_id
WHERE s.created_at < p.created_at - interval '1 minute' AND NOT EXISTS (SELECT 1 FROM queen.clock_steps)
"""
)

_WAITING = """
SELECT q.name, o.partitions[1], NULL, NULL::bigint, f.text
FROM queen.outbox AS o
CROSS JOIN LATERAL (SELECT string_to_array(o.payloads, E'\\n') AS payloads) AS m
CROSS JOIN queen.outbox_position AS a
LEFT JOIN queen.queues AS q ON q.id = o.queue_id
CROSS JOIN LATERAL (VALUES
    (pg_visible_in_snapshot(o.xid, a.seen), 'is in the outbox, behind what was moved: it is never moved'),
    (a.target IS NOT NULL AND pg_visible_in_snapshot(o.xid, a.target) AND (o.xid, o.seq) <= (a.last_xid, a.last_seq),
        'is in the outbox, behind what was moved: it is never moved'),
    (o.xid >= pg_snapshot_xmax(pg_current_snapshot()), 'is in the outbox, of a transaction that never was'),
    (o.queue_id > (SELECT max(m.id) FROM queen.queues AS m), 'is in the outbox of a queue that never was'),
    ('' = ANY(o.partitions) OR '' = ANY(o.transaction_ids) OR '' = ANY(m.payloads) OR o.partitions = '{}',
        'is in the outbox with an empty name or payload'),
    (o.n <> cardinality(m.payloads) OR cardinality(o.partitions) NOT IN (1, o.n)
        OR cardinality(o.transaction_ids) <> o.n OR cardinality(o.fields) NOT IN (1, o.n),
        format('is in the outbox with %s messages, and the columns have others', o.n))
) AS f (wrong, text)
WHERE f.wrong
UNION ALL
SELECT NULL, NULL, NULL, NULL, f.text
FROM (SELECT count(*) AS rows FROM queen.outbox_position) AS a
CROSS JOIN LATERAL (
    VALUES (a.rows <> 1, format('outbox_position has %s rows: the outbox is not moved', a.rows))
) AS f (wrong, text)
WHERE f.wrong
UNION ALL
SELECT NULL, NULL, NULL, NULL, format('outbox_position has seen %s, beyond the snapshot', a.seen)
FROM queen.outbox_position AS a
WHERE pg_snapshot_xmax(coalesce(a.target, a.seen)) > pg_snapshot_xmax(pg_current_snapshot()) OR a.moves < 0
UNION ALL
SELECT q.name, h.partition, NULL, NULL, f.text
FROM queen.outbox_held AS h
LEFT JOIN queen.outbox_held_partitions AS p ON p.queue_id = h.queue_id AND p.partition = h.partition
LEFT JOIN queen.queues AS q ON q.id = h.queue_id
CROSS JOIN LATERAL (VALUES
    (p.queue_id IS NULL, 'is held back in a partition that is not: it is never moved'),
    (h.seq <= p.moved_seq, 'is held back, but counts as moved: it is never moved'),
    (h.payload = '' OR h.transaction_id = '', 'is held back with an empty id or payload')
) AS f (wrong, text)
WHERE f.wrong
UNION ALL
SELECT q.name, h.partition, NULL, NULL, format('is tried again at %s, after %s tries', h.retry_at, h.tries)
FROM queen.outbox_held_partitions AS h LEFT JOIN queen.queues AS q ON q.id = h.queue_id
WHERE h.tries < 0 OR h.reason = '' OR h.retry_at > clock_timestamp() + interval '1 day'
UNION ALL
SELECT q.name, t.partition, NULL, NULL, format('timer %s: %s', t.key, f.text)
FROM queen.timers AS t
LEFT JOIN queen.queues AS q ON q.id = t.queue_id
CROSS JOIN LATERAL (VALUES
    (q.id IS NULL, format('queue %s does not exist', t.queue_id)),
    (t.asked_at > t.deliver_at, format('it was asked for at %s, after its time, %s', t.asked_at, t.deliver_at)),
    (t.deliver_at < q.created_at AND t.asked_at IS NULL AND t.deliver_at < q.created_at - interval '1 day',
        format('its time, %s, was before there was its queue', t.deliver_at)),
    (t.deliver_at > clock_timestamp() + interval '3661 days', format('its time is %s', t.deliver_at)),
    (strpos(t.message, '"payload":') = 0 OR left(t.message, 1) <> '{' OR right(t.message, 1) <> '}',
        'it has no message'),
    (strpos(t.message, '"transactionId":' || to_json(t.transaction_id)::text) = 0
        AND strpos(t.message, '"transactionId":') > 0 AND NOT t.transaction_id ~ '[^ -~]',
        format('its message has another transaction id than %s', t.transaction_id)),
    (t.transaction_id = '' OR t.partition = '' OR t.key = '', 'it lacks an id, a partition or a key')
) AS f (wrong, text)
WHERE f.wrong
UNION ALL
SELECT q.name, s.partition, NULL, NULL, format('schedule %s: %s', s.name, f.text)
FROM queen.schedules AS s
LEFT JOIN queen.queues AS q ON q.id = s.queue_id
CROSS JOIN LATERAL (VALUES
    (q.id IS NULL, format('queue %s does not exist', s.queue_id)),
    (s.next_at < s.last_at, format('it is looked at next at %s, before %s', s.next_at, s.last_at)),
    (s.next_at > clock_timestamp() + interval '10 years', format('it is looked at next at %s', s.next_at)),
    (s.cron !~ '^\\s*(@\\w+|\\S+(\\s+\\S+){4,6})\\s*$', format('%s is no cron expression', s.cron)),
    (s.catch_up NOT BETWEEN 0 AND 1000, format('it makes up for %s times', s.catch_up)),
    (strpos(s.message, '"payload":') = 0 OR left(s.message, 1) <> '{' OR right(s.message, 1) <> '}',
        'it has no message'),
    (s.partition = '' OR s.name = '', 'it lacks a partition or a name')
) AS f (wrong, text)
WHERE f.wrong
"""

QUERIES: Mapping[str, str] = MappingProxyType(
    {
        "cursors_stand_in_the_log": _CURSORS,
        "groups_have_their_cursors": _GROUPS,
        "dead_letters_are_of_their_messages": _LETTERS,
        "partitions_are_complete": _PARTS,
        "no_time_lies_ahead": _TIMES,
        "what_waits_can_enter_the_log": _WAITING,
    }
)
"""By audit: the query for its flaws, as rows of queue, partition, group, offset and text."""

_TEXTS = """
SELECT sum(length(w.text::json::text)) FROM (
    SELECT m.payload FROM queen.outbox AS o, unnest(string_to_array(o.payloads, E'\\n')) AS m (payload)
    UNION ALL SELECT h.payload FROM queen.outbox_held AS h
    UNION ALL SELECT t.message FROM queen.timers AS t
    UNION ALL SELECT s.message FROM queen.schedules AS s
) AS w (text)
"""
PARSED: Sequence[tuple[str, str, str]] = (
    ("what_waits_can_enter_the_log", "the outbox, a timer or a schedule holds what is no JSON", _TEXTS),
    (
        "what_waits_can_enter_the_log",
        "a schedule has a time zone that does not exist",
        "SELECT max(now() AT TIME ZONE s.time_zone) FROM queen.schedules AS s",
    ),
)
"""Audits, what is wrong, and a query that fails then."""

IDS = """
SELECT
    t.part_id, count(*) AS ids,
    bit_xor(h.low # ((h.low & 4294967295) * (t.off & 1073741823))) AS checksum
FROM queen.transaction_ids AS t
CROSS JOIN LATERAL (SELECT replace(t.hash::text, '-', '') AS digits OFFSET 0) AS d
CROSS JOIN LATERAL (
    SELECT ('x' || left(d.digits, 15))::bit(60)::bigint # ('x' || right(d.digits, 15))::bit(60)::bigint AS low OFFSET 0
) AS h
WHERE NOT EXISTS (SELECT 1 FROM queen.removed_partitions AS r WHERE r.part_id = t.part_id)
GROUP BY t.part_id
"""
"""By partition: the number of its transaction ids, and a checksum over their hashes and offsets."""
