"""Deliberate faults: for each guarantee at least one, and the checks of its id have to notice.

Those of simple-mq are in `simple_mq.py`.
"""

from spec.guarantees import GUARANTEES
from tests.mutants.mutant import Mutant, mutant
from tests.mutants.shards import SHARDS
from tests.mutants.simple_mq import SIMPLE_MQ
from tests.mutants.sqs import SQS

PUSH, APPEND = "sql/procedures/push_messages.sql", "sql/internal/030_push.sql"
POP, CLAIM, CURSOR = "sql/procedures/pop_unified_batch.sql", "sql/internal/045_claim.sql", "sql/internal/040_cursor.sql"
WRITE_CLAIMS = "sql/internal/044_write_claims.sql"
ACK, ACK_CURSOR = "sql/procedures/ack_messages.sql", "sql/internal/050_ack.sql"
TRANSACTION, SUBSCRIBE = "sql/internal/052_transaction.sql", "sql/procedures/subscribe.sql"
RENEW, RESOLVE = "sql/procedures/renew_lease.sql", "sql/procedures/resolve_partitions.sql"
CYCLE, INPUT, DELETED = "sql/procedures/cycle_stream.sql", "sql/internal/058_stream.sql", "sql/internal/047_deleted.sql"
SEEK, DELETE_GROUP = "sql/procedures/consumer_group/seek_group.sql", "sql/procedures/consumer_group/delete_group.sql"
SPOOL, REPLAY, REPLAY_SQL = "queen/spool/spool.py", "queen/engine/replay.py", "sql/procedures/replay_spool.sql"
EXPIRED, OVERDUE = "sql/procedures/remove_expired.sql", "sql/procedures/evict_overdue.sql"
EVICT = "sql/internal/056_evict.sql"
CONFIGURE = "sql/procedures/configure_queue.sql"
IDLE, SIZE = "sql/procedures/remove_idle_partitions.sql", "sql/internal/035_size.sql"
KEYRING, SEALING = "queen/security/keyring.py", "queen/security/messages.py"

RETENTION, KEPT = (
    "tests/integration/test_retention.py",
    "tests/integration/test_retention.py::test_what_the_options_keep_stays",
)
TIMES, REPAIR = "sql/internal/070_older_than.sql", "sql/procedures/clock/repair_times.sql"
STEPS = "tests/property/test_clock.py"
PAGES_OF_CONFIGURE = "tests/integration/test_pages_of_configure.py"
PAGES_OF_GROUPS = "tests/integration/test_pages_of_groups.py"
MAX_SIZE, SIZES = "tests/integration/test_max_size.py", "tests/integration/test_sizes.py"
SERVICES, BESIDE = "tests/integration/test_jobs.py", "tests/integration/test_retention_beside.py"
ENCRYPTION, KEYS = "tests/integration/test_encryption.py", "tests/property/test_keyring.py"
ACK_AND_POP = "tests/property/test_acks_beside_a_pop.py"
COMBINATIONS = "tests/property/test_combinations.py"
SPOOL_ON_A_DISK, SPOOL_CRASHES = "tests/property/test_spool.py", "tests/property/test_spool_crashes.py"
COMPLETE, NEXT_READY = "sql/procedures/complete_messages.sql", "sql/internal/048_next_ready.sql"
PREFETCH = "tests/integration/test_prefetch.py"
ACCEPTED = "sql/internal/036_append_accepted.sql"
LOW_WATER = "sql/internal/029_low_water.sql"
OPEN_CURSORS, SQL_ACK = "sql/internal/051_open_cursors.sql", "sql/procedures/sql_consumer/ack.sql"
SQL_CONSUMER, OPEN = "tests/integration/test_sql_consumer.py", "tests/integration/test_open_cursors.py"
MOVE, OUTBOX = "sql/procedures/outbox/move_outbox.sql", "tests/integration/test_outbox.py"
PAUSE, HEADERS = "tests/integration/test_pause.py", "tests/integration/test_headers.py"
HELD, OUTBOX_HELD = "sql/procedures/outbox/move_held_outbox.sql", "tests/integration/test_outbox_held.py"
MOVE_TIMERS, TIMERS = "sql/procedures/timers/move_timers.sql", "tests/integration/test_timers.py"
SOCKETS, STREAMS = "tests/integration/test_socket.py", "tests/integration/test_streams.py"


_sql = mutant
#: Edits of the server's Python look the same.
_engine = mutant

_LEASED = "attempts = u.attempt,\n        ready_at = u.ready_at"
_UNLEASED = _LEASED.replace("ready_at = u.ready_at", "ready_at = p_now")
_FAST_ACK = "a.completes AND c.lease = ALL(a.leases)"
_SLOW_ACK = "false AND c.lease = ALL(a.leases)"
_ONE_BY_ONE = (
    "sql/internal/045_claim.sql",
    "v_claims.complete := cardinality(p_pop)",
    "v_claims.complete := false AND cardinality(p_pop)",
)
_PUSH_FIRST = """        RETURN QUERY
        SELECT 'push', r.part_id, NULL::int, NULL, r.first_off, r.created_at, r.dup_pos, r.dup_off, NULL::bigint,
            NULL::bigint, NULL::bigint, NULL::bool, NULL::bool, NULL::bool
        FROM queen.push_messages_v1(
            p_flush, p_again, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash, p_version, NULL) AS r;
        kind := 'ack';
        FOR ord, problem,"""

MUTANTS: tuple[Mutant, ...] = (
    _sql(
        "G-ORD-1", "order by time, the youngest first, instead of by offset",
        (POP, "ORDER BY l.last_off OFFSET 0", "ORDER BY l.created_at DESC OFFSET 0"),
    ),
    _sql(
        "G-ORD-2", "an offset is left out between two flushes",
        (PUSH, "SELECT array_agg(e.next_off ORDER BY e.part_id)", "SELECT array_agg(e.next_off + 1 ORDER BY e.part_id)"),
    ),
    _sql(
        "G-ORD-3", "order by the id of the flush",
        (POP, "ORDER BY l.last_off OFFSET 0", "ORDER BY (SELECT f.flush FROM queen.segments AS f WHERE f.part_id = l.part_id AND f.last_off = l.last_off) OFFSET 0"),
    ),
    _engine(
        "G-ORD-4", "the items of a request are stored from the last to the first",
        ("queen/http/parsing.py", "members = [items[number] for number in numbers]", "members = [items[number] for number in numbers][::-1]"),
    ),
    _sql(
        "G-ORD-5", "createdAt is the clock of the moment, and that jumps",
        (PUSH, "array_agg(greatest(e.last_at, v_now) ORDER BY e.part_id)", "array_agg(v_now - random() * interval '1 minute' ORDER BY e.part_id)"),
    ),
    _engine(
        "G-DUR-1", "a push is answered before it is stored, and forgotten now and then",
        ("queen/engine/handlers/push.py", "    if not batch.part:\n", "    if not batch.part or not uuid4().int % 20:\n"),
        tests="tests/chaos/test_kill.py",
    ),
    _engine(
        "G-DUR-2", "an ack is answered before it is carried out, and forgotten now and then",
        ("queen/engine/handlers/ack.py", "    if gathered.columns.part:\n        rows, lost = await", "    if gathered.columns.part and time.time_ns() % 10 == 0:\n        return [Acked([AckResult(None) for _ in request.items]) for request in acks]\n    if gathered.columns.part:\n        rows, lost = await"),
        ("queen/engine/handlers/ack.py", "from uuid import UUID\n", "from uuid import UUID\nimport time\n"),
        tests="tests/chaos/test_kill.py",
    ),
    _engine(
        "G-DUR-3", "a payload loses its slashes",
        ("queen/log/segment.py", """% (_encode(text), payload)""", """% (_encode(text), bytes(payload).replace(b"/", b""))"""),
    ),
    _engine(
        "G-DUR-4", "the good items before a bad one are stored",
        ("queen/operations/push.py", "    items = parse_push_items(body)\n",
         "    try:\n        items = parse_push_items(body)\n    except Exception:\n        import json\n        told = json.loads(body)\n        first = parse_push_items(json.dumps({'items': told['items'][:1]}).encode())\n        await server.engine.submit(JobType.PUSH, to_push(first)).future\n        raise\n"),
    ),
    _engine(
        "G-IDEM-1", "no dedupe at all",
        ("queen/log/ids.py", "[sha256(text.encode()).digest()[:16] if text", "[__import__('os').urandom(16) if text"),
    ),
    _sql(
        "G-IDEM-2", "the answer to a duplicate names the message after the stored one",
        (APPEND, "array_agg(u.pos), array_agg(t.off) INTO d_part", "array_agg(u.pos), array_agg(t.off + 1) INTO d_part"),
    ),
    _sql(
        "G-IDEM-3", "dedupe across partitions",
        (PUSH, "            ORDER BY u.part_id, u.hash;\n", "            ORDER BY u.part_id, u.hash;\n            v_duplicates := true;\n            DELETE FROM queen.transaction_ids AS d USING unnest(p_hash_part, p_hash) AS u (part_id, hash) WHERE d.part_id = u.part_id AND d.hash = u.hash;\n"),
        (APPEND, "JOIN queen.transaction_ids AS t ON t.part_id = ANY(ARRAY[u.part_id]) AND t.hash = u.hash;", "JOIN queen.transaction_ids AS t ON t.hash = u.hash;"),
    ),
    _engine(
        "G-IDEM-4", "a message id is a transaction id like any other",
        ("queen/log/append.py", "if text.startswith(prefix) and (position := ids.parse_message_id(text)):", "if text == prefix and (position := ids.parse_message_id(text)):"),
    ),
    _engine(
        "G-POP-1", "a pop takes one message more than it was asked for",
        ("queen/http/pops.py", """batch=parse_integer(get("batch"), "batch", batch, 1, limits.BATCH_MESSAGES_MAX),""", """batch=1 + parse_integer(get("batch"), "batch", batch, 1, limits.BATCH_MESSAGES_MAX),"""),
    ),
    _sql(
        "G-POP-2", "the same partition first, however long the others wait",
        (CLAIM, "ORDER BY l.ready_at, l.part_id + 0 LIMIT w.slots", "ORDER BY l.part_id LIMIT w.slots"),
    ),
    _sql(
        "G-POP-3", "a pop takes one message of a partition, whatever it had room for",
        _ONE_BY_ONE,
        (CLAIM, "                p_batch[v_pop], least(v_bytes", "                1, least(v_bytes"),
    ),
    _engine(
        "G-POP-3", "a pop is let into a group that has begun, whatever is there already",
        ("queen/engine/handlers/pop.py", "(group.grp_id is not None and left >= _wanted(pop))", "group.grp_id is not None"),
        tests=PAGES_OF_GROUPS,
    ),
    _sql(
        "G-POP-1", "a pop of two queues beside a pop of none takes a partition of each",
        (CLAIM, "count(DISTINCT e.pop) = cardinality(p_pop)", "true"),
        tests="tests/integration/test_pops_of_one_call.py",
    ),
    _sql("G-POP-4", "the lowest priority first", (CLAIM, "q.priority DESC, c.ready_at", "q.priority, c.ready_at")),
    _sql("G-POP-5", "autoAck delivers and completes nothing", (WRITE_CLAIMS, "WHERE p_lease[u.pop] IS NULL;", "WHERE false HAVING false;")),
    _sql("G-LEASE-1", "a lease is not exclusive", (WRITE_CLAIMS, _LEASED, _UNLEASED)),
    _sql(
        "G-LEASE-2", "a lease lasts five seconds longer",
        (CLAIM, "nullif(t.lease_time, 0), 60)", "nullif(t.lease_time, 0) + 5, 60)"),
        (CLAIM, "nullif(v_cursor.lease_time, 0), 60)", "nullif(v_cursor.lease_time, 0) + 5, 60)"),
    ),
    _sql(
        "G-LEASE-3", "an ack is accepted under any lease",
        (ACK_CURSOR, "(NOT v_live OR u.lease <> v_cursor.lease)", "false"),
    ),
    _sql(
        "G-POP-6", "what a window buffer holds back counts as ready",
        ("sql/internal/061_ready.sql", " OR v_end.last_at + make_interval(secs => p_window) > p_now THEN", " THEN"),
        tests="tests/integration/test_catalogue.py",
    ),
    _sql(
        "G-LEASE-3", "an ack without a lease finishes what another consumer holds",
        (ACK_CURSOR, "v_live AND (u.kind <> 'c' OR u.first <= v_cursor.upto)", "v_live AND u.kind <> 'c'"),
        tests="tests/integration/test_ack.py",
    ),
    _sql(
        "G-LEASE-4", "a renewal shortens a lease",
        (RENEW, "greatest(c.ready_at, v_now + make_interval(secs => u.seconds))", "v_now + make_interval(secs => u.seconds)"),
    ),
    _sql(
        "G-LEASE-4", "a renewal is judged by the time before it waited",
        (RENEW, "v_now timestamptz;", "v_now timestamptz := queen.clock();"), (RENEW, "    v_now := queen.write_clock();\n", ""),
        tests="tests/integration/test_lease.py",
    ),
    _sql(
        "G-LEASE-5", "every delivery is the first",
        (CLAIM, "array_agg(t.attempts + 1)", "array_agg(t.attempts * 0 + 1)"),
        (CLAIM, "c_attempt || v_cursor.attempts + 1", "c_attempt || 1"),
    ),
    _engine(
        "G-LEASE-5", "the lease of a long poll that was lent to a killed worker is kept",
        ("queen/engine/lending.py", "            self._release(pop, lease)\n", ""),
        tests="tests/property/test_lending.py",
    ),
    _sql(
        "G-LEASE-7", "prefetched messages that no pop asks for are withheld until their lease ends",
        ("queen/engine/engine.py", "(late := prefetch.due())", "(late := prefetch.due()) and False"),
        tests=PREFETCH,
    ),
    _sql(
        "G-LEASE-7", "a pop does not know what a worker elsewhere holds",
        (NEXT_READY, "AND c.prefetched_until > p_now ORDER BY", "AND false ORDER BY"),
        (NEXT_READY, "RETURN coalesce(v_until > p_now - interval '0.25 s', false);", "RETURN false;"),
        tests=PREFETCH,
    ),
    _engine(
        "G-LEASE-7", "what a killed worker had prefetched is not released",
        ("queen/main.py", "engine.take_over(LEASES_OF_WORKERS.take_left())", "engine.take_over([])"),
        tests="tests/chaos/test_killed_while_prefetching.py",
    ),
    _engine(
        "G-LEASE-1", "a worker that was stopped hands out what is another's by now",
        ("queen/engine/prefetch.py", "if not batches or batches[0].since + HOLD_S <= self.now():", "if not batches:"),
        tests="tests/property/test_prefetched_batches.py",
    ),
    _sql(
        "G-LEASE-7", "what was given back counts as a delivery",
        ("sql/procedures/release_leases.sql", "attempts = greatest(c.attempts - 1, 0), seen = c.seen_before", "attempts = c.attempts, seen = c.seen"),
        tests=PREFETCH,
    ),
    _sql(
        "G-POP-2", "one partition is prefetched for ever",
        ("queen/engine/prefetch.py", "or self.now() - served[1] > CHAIN_S", ""),
        tests="tests/property/test_prefetched_batches.py",
    ),
    _engine(
        "G-GRP-5", "a seek does not wait for what was prefetched",
        ("queen/engine/handlers/consumer_groups.py", "    await context.outlive_prefetched(lambda: context.database.prefetched_for(seek.queue, seek.group, None))\n", ""),
        tests=PREFETCH,
    ),
    _engine(
        "G-RET-5", "the deletion of a message does not wait for what was prefetched",
        ("queen/engine/handlers/removal.py", "    await context.outlive_prefetched(lambda: context.database.prefetched_for(None, None, key.part_id))\n", ""),
        tests=PREFETCH,
    ),
    _sql(
        "G-LEASE-6", "a lease acks what its pop did not deliver",
        (ACK_CURSOR, "WHEN u.lease IS NULL THEN v_end_off ELSE v_cursor.upto END", "WHEN u.lease IS NULL THEN v_end_off ELSE v_end_off END"),
    ),
    _sql(
        "G-ACK-1", "a late ack moves the cursor back",
        (ACK_CURSOR, "    UPDATE queen.partition_consumers AS c\n    SET\n        acked = v_cursor.acked,", "    UPDATE queen.partition_consumers AS c\n    SET\n        acked = least(v_cursor.acked, (SELECT min(f) FROM unnest(p_first) AS f) - 1 + cardinality(p_first)),"),
    ),
    _sql(
        "G-ACK-2", "the last completed message of a run comes again",
        (ACK, "                acked = u.last,\n", "                acked = u.last - 1,\n"),
        (COMPLETE, "            acked = u.last,\n", "            acked = u.last - 1,\n"),
    ),
    _engine(
        "G-ACK-2", "an ack without lease does not wait until what was prefetched is released",
        ("queen/engine/handlers/unleased.py", "        if not cursors or not await", "        if cursors is not None or not await"),
        tests=PREFETCH,
    ),
    _sql("G-ACK-3", "the cursor jumps over a gap", (CURSOR, "SELECT upper(r) - 1 INTO acked FROM unnest(v_done) AS r LIMIT 1;", "SELECT max(upper(r)) - 1 INTO acked FROM unnest(v_done) AS r;")),
    _sql(
        "G-ACK-4", "a repeated ack is refused",
        (ACK_CURSOR, "WHEN a.done AND (u.kind <> 'c' OR p_final) THEN", "WHEN a.done THEN"),
    ),
    _sql(
        "G-ACK-5", "a lease lives on when everything under it is acked",
        (ACK, _FAST_ACK, _SLOW_ACK),
        (COMPLETE, "WHERE l.lease = e.lease", "WHERE false AND l.lease = e.lease"),
        (ACK_CURSOR, "v_end := v_live AND (NOT isempty(v_again) OR v_done @> int8range(NULL, v_cursor.upto, '[]'));", "v_end := v_live AND NOT isempty(v_again);"),
    ),
    _sql(
        "G-ACK-6", "no pause after a failure",
        (ACK_CURSOR, "v_delay := make_interval(secs => v_group.retry_delay / 1000.0);", "v_delay := '0';"),
    ),
    _sql(
        "G-ACK-6", "a change of the delays ends the pause after a failure",
        (CONFIGURE, "greatest(v_now, c.retry_at)", "v_now"),
        tests=COMBINATIONS,
    ),
    _engine(
        "G-ACK-7", "what an ack has done itself refuses it when it is sent again",
        ("queen/engine/handlers/ack.py", "if lost and _in_doubt(", "if False and _in_doubt("),
        tests="tests/chaos/test_lost_answers.py",
    ),
    _engine(
        "G-ACK-8", "a pop does not look again for what its acks have set free",
        ("queen/operations/acknowledge.py", "if _found_nothing(popping.future):", "if False and _found_nothing(popping.future):"),
        tests=ACK_AND_POP,
    ),
    _engine(
        "G-ACK-8", "what a pop has found stays leased when its acks fail",
        ("queen/operations/acknowledge.py", "        abandon(engine, popping)\n", ""),
        tests=ACK_AND_POP,
    ),
    _engine(
        "G-ACK-8", "a pop that fails takes the results of its acks with it",
        ("queen/operations/acknowledge.py", "    except Exception as error:\n", "    except ZeroDivisionError as error:\n"),
        tests=ACK_AND_POP,
    ),
    _engine(
        "G-DLQ-1", "a failure without a lease counts twice when it is sent again",
        ("queen/engine/handlers/ack.py", "_fenced(columns) if again else columns", "columns"),
        tests="tests/chaos/test_lost_answers.py",
    ),
    _sql("G-DLQ-1", "a dead letter one try early", (ACK_CURSOR, "j.tries >= v_group.retry_limit", "j.tries + 1 >= v_group.retry_limit")),
    _sql("G-DLQ-1", "a dead letter one try late", (ACK_CURSOR, "j.tries >= v_group.retry_limit", "j.tries > v_group.retry_limit")),
    _sql("G-DLQ-1", "a dead letter comes again, and is one twice", (ACK_CURSOR, "WHERE i.verdict IN ('c', 'd')), '{}'),", "WHERE i.verdict = 'c'), '{}'),"), (ACK_CURSOR, "WHERE i.verdict IN ('r', 'f'))", "WHERE i.verdict IN ('r', 'f', 'd'))")),
    _sql(
        "G-DLQ-2", "a failure counts for all messages of the lease",
        (ACK_CURSOR, "v_failed := v_failed - v_done;", "v_failed := CASE WHEN isempty(v_failed) THEN v_failed ELSE int8multirange(int8range(v_cursor.acked + 1, v_cursor.upto, '[]')) END - v_done;"),
    ),
    _sql("G-DLQ-3", "a dead letter is not done", (ACK_CURSOR, "WHERE i.verdict IN ('c', 'd')), '{}'),", "WHERE i.verdict = 'c'), '{}'),")),
    _sql(
        "G-DLQ-4", "every queue keeps dead letters",
        (ACK_CURSOR, "q.dead_letter_queue OR q.dlq_after_max_retries, q.dead_letter_queue, q.dlq_after_max_retries, true) AS buries", "true) AS buries"),
    ),
    _sql(
        "G-DLQ-4", "one false of the two options is not enough",
        (ACK_CURSOR, "q.dead_letter_queue OR q.dlq_after_max_retries, q.dead_letter_queue, q.dlq_after_max_retries, true) AS buries", "coalesce(q.dead_letter_queue, true) OR coalesce(q.dlq_after_max_retries, true)) AS buries"),
        tests="tests/integration/test_ack.py::test_ack_dlq_in_a_queue_that_wants_none_drops_the_message",
    ),
    _sql(
        "G-DLQ-5", "retention takes the dead letters of what it removes",
        (EXPIRED, "    -- The newest segment stays without", "    DELETE FROM queen.dead_letter_queue AS d WHERE d.part_id = p_part AND d.off <= p_upto;\n    -- The newest segment stays without"),
        tests=RETENTION,
    ),
    _sql(
        "G-DLQ-6", "a dead letter that is put back stays",
        ("sql/procedures/dead_letter/replay_dead_letter.sql", "    DELETE FROM queen.dead_letter_queue AS d WHERE d.id = p_id;", "    PERFORM 1 FROM queen.dead_letter_queue AS d WHERE d.id = p_id;"),
    ),
    _sql(
        "G-TXN-1", "what can happen of a transaction happens, as in two commits",
        (TRANSACTION, "        END IF;\n        IF v_failed THEN\n", "        END IF;\n        IF false THEN\n"),
    ),
    _sql(
        "G-TXN-1", "a transaction pushes into the room that its acks make",
        (TRANSACTION, "IF p_limited IS NOT NULL AND coalesce(", "IF false AND coalesce("),
        (TRANSACTION, "p_hash, p_version, NULL)", "p_hash, p_version, p_limited)"),
        tests=COMBINATIONS,
    ),
    _engine(
        "G-TXN-2", "transactions that ack the same message share a call",
        ("queen/engine/handlers/transaction.py", "not names.isdisjoint(taken[target]) or", "False or"),
        tests="tests/property/test_shared_calls.py",
    ),
    _sql(
        "G-TXN-2", "a transaction may ack what is done",
        (TRANSACTION, "NOT (p_again AND p_part = '{}' AND 'c' = ALL(p_ack_kind)))", "false)"),
    ),
    _sql(
        "G-TXN-3", "a transaction acks under a lease that is over",
        (ACK_CURSOR, "(NOT v_live OR u.lease <> v_cursor.lease)", "NOT p_final AND (NOT v_live OR u.lease <> v_cursor.lease)"),
    ),
    _sql(
        "G-TXN-3", "the fast path of transactions asks for no live lease",
        (TRANSACTION, "WHERE v.lease = a.lease AND v.ready_at > p_now AND", "WHERE"),
        tests="tests/integration/test_plain_transactions.py",
    ),
    _sql(
        "G-TXN-1", "the fast path of transactions leaves out an ack that is refused",
        (TRANSACTION, "IF v_moved < cardinality(p_ack_part) THEN", "IF false THEN"),
        tests="tests/integration/test_plain_transactions.py",
    ),
    _sql(
        "G-TXN-3", "a transaction acks what it pushes",
        (TRANSACTION, "        kind := 'ack';\n        FOR ord, problem,", _PUSH_FIRST),
        (TRANSACTION, "IF p_part <> '{}' AND NOT v_full THEN", "IF false THEN"),
        tests=COMBINATIONS,
    ),
    _sql(
        "G-STR-1", "a cycle whose ack is refused writes its state and its outputs",
        (CYCLE, "        IF v_problem IS NOT NULL THEN\n            RAISE EXCEPTION 'undo'", "        IF false THEN\n            RAISE EXCEPTION 'undo'"),
        tests=STREAMS,
    ),
    _sql(
        "G-STR-2", "a cycle that is sent again is carried out again",
        (INPUT, "WHEN v_off <= v_row.done_upto OR v_off = ANY(v_row.also_done) THEN 'Message already completed'", "WHEN false THEN 'Message already completed'"),
        tests=STREAMS,
    ),
    _sql(
        "G-STR-2", "a window is closed while a consumer holds its partition",
        (INPUT, "    IF queen.is_leased(p_source, p_grp, p_now) THEN", "    IF false THEN"),
        tests=STREAMS,
    ),
    _engine(
        "G-STR-3", "the credit of a socket bounds each batch, and not what it holds",
        ("queen/http/socket/credit.py", "return max(0, self.limit - self._count)", "return self.limit"),
        tests=SOCKETS,
    ),
    _engine(
        "G-STR-4", "a window is delivered before its slot is over",
        ("queen/log/window.py", "inside < len(times) or now >= over_at", "True"),
        tests="tests/property/test_window.py",
    ),
    _engine(
        "G-STR-5", "what a socket holds is not given back",
        ("queen/http/socket/session.py", "        await self._release()\n", ""),
        tests=SOCKETS,
    ),
    _engine(
        "G-GRP-1", "all groups are one",
        ("queen/http/pops.py", """group=check_group(get("consumerGroup"), "consumerGroup", QUEUE_MODE),""", "group=QUEUE_MODE,"),
    ),
    _engine(
        "G-GRP-1", "a pop leaves out partitions that are forgotten while it looks up others",
        ("queen/engine/metadata_cache.py", "        return {part_id: name for part_id, name in names.items() if name is not None}",
         "        return {part_id: self._names[part_id] for part_id in names if part_id in self._names}"),
        tests="tests/property/test_names_of_deliveries.py",
    ),
    _engine(
        "G-GRP-1", "an error after a committed pop is taken for one before it",
        ("queen/engine/handlers/pop.py", "            committed = True\n", ""),
        tests="tests/property/test_names_of_deliveries.py",
    ),
    _sql("G-GRP-2", "a new group gets the history, too", (SUBSCRIBE, "WHEN 'new' THEN v_now ELSE", "WHEN 'new' THEN '-infinity' ELSE")),
    _sql(
        "G-GRP-3", "a later partition is delivered from its second message on",
        (RESOLVE, "SELECT made.id, g.id, -1, -1, -1, 'infinity'", "SELECT made.id, g.id, 0, 0, 0, 'infinity'"),
    ),
    _sql(
        "G-GRP-1", "the first page of cursors is taken for the last",
        (SUBSCRIBE, "IF coalesce(cardinality(v_page), 0) < p_step THEN", "IF coalesce(cardinality(v_page), 0) <= p_step THEN"),
        tests=PAGES_OF_GROUPS,
    ),
    _sql(
        "G-GRP-3", "a start that has come moves no cursor",
        (SUBSCRIBE, "IF v_group.begins AND v_old IS NOT NULL THEN", "IF v_group.begins AND v_old = '{}' THEN"),
        tests=PAGES_OF_GROUPS,
    ),
    _engine(
        "G-GRP-4", "a pop makes the queue that it names",
        ("queen/engine/metadata_cache.py", "create_queue=pop.group != QUEUE_MODE, create_group=True", "create_queue=True, create_group=True"),
        tests="tests/integration/test_pop.py",
    ),
    _sql(
        "G-GRP-5", "a rewind leaves the first message out",
        (SEEK, "SELECT s.part_id, p_grp AS grp_id, l.ver, s.acked, s.ahead, s.last", "SELECT s.part_id, p_grp AS grp_id, l.ver, least(s.acked + 1, s.last) AS acked, s.ahead, s.last"),
    ),
    _sql(
        "G-GRP-6", "a new start of a group moves its cursors there",
        (
            "sql/procedures/consumer_group/update_subscription.sql", "    changed := true;\n",
            "    PERFORM queen.put_cursors(v_group.id, ARRAY(SELECT p.id FROM queen.partitions AS p WHERE p.queue_id = v_queue ORDER BY p.id), p_since);\n    changed := true;\n",
        ),
    ),
    _sql(
        "G-GRP-7", "a deletion does not count where a cursor is still to be made",
        (DELETE_GROUP, "        v_unmade := queen.unmade_cursors(v_group);", "        v_unmade := 0;"),
        tests=COMBINATIONS,
    ),
    _sql(
        "G-GRP-7", "a group that is put back begins at the oldest message",
        (DELETE_GROUP, "queen.put_cursors(v_group.id, v_parts, v_group.since)", "queen.put_cursors(v_group.id, v_parts, '-infinity')"),
    ),
    _sql(
        "G-GRP-7", "a pop finds a group that is being deleted, and goes on with it",
        (DELETE_GROUP, "SET subscribed_upto = -1", "SET subscribed_upto = 0"),
        tests=PAGES_OF_GROUPS,
    ),
    _engine(
        "G-WAIT-1", "a waiter is not woken",
        ("queen/engine/engine.py", "self._waiters.wake(news.queue, news.messages, news.group, news.served)", "self._waiters.wake(news.queue, 0, news.group)"),
        ("queen/engine/engine.py", "for job in self._waiters.offer(queue, number)]", "for job in ()]"),
        ("queen/config/areas.py", """"POP_WAIT_INITIAL_INTERVAL_MS POLL_DB_INTERVAL", 1, 60_000)] = 100""", """"POP_WAIT_INITIAL_INTERVAL_MS POLL_DB_INTERVAL", 1, 60_000)] = 60_000"""),
        ("queen/config/areas.py", """"POP_WAIT_MAX_INTERVAL_MS QUEUE_MAX_POLL_INTERVAL", 1, 60_000)] = 1000""", """"POP_WAIT_MAX_INTERVAL_MS QUEUE_MAX_POLL_INTERVAL", 1, 60_000)] = 60_000"""),
    ),
    _engine(
        "G-WAIT-1", "a group of which one pop was served hears of nothing more",
        ("queen/engine/offer.py", "if name == queue and number == messages]", "if name == queue]"),
        tests="tests/property/test_offer.py",
    ),
    _engine(
        "G-WAIT-1", "what came during a check is forgotten when the check finds something",
        ("queen/engine/waiters.py", "if wait_list is None or not (more or wait_list.news):", "if wait_list is None or not more:"),
        tests="tests/property/test_waiters.py",
    ),
    _engine(
        "G-WAIT-1", "a long poll does not look although messages have come since the last look",
        ("queen/engine/waiters.py", "        self._forget_empty(queue, group, served)\n", ""),
        tests="tests/property/test_waiters.py",
    ),
    _engine(
        "G-WAIT-1", "long polls that wait in a sibling are not recalled",
        ("queen/engine/lending.py", "lent.recalled = True\n", "continue\n"),
        tests="tests/property/test_lending.py",
    ),
    _sql(
        "G-WAIT-2", "a delayed message comes at once",
        (CURSOR, "IF p_delay > 0 AND", "IF p_delay < 0 AND"),
        (APPEND, "secs => greatest(q.delayed_processing, q.window_buffer)", "secs => q.window_buffer"),
    ),
    _sql(
        "G-WAIT-3", "a window holds nothing",
        (CURSOR, "IF p_window > 0 THEN", "IF p_window < 0 THEN"),
        (APPEND, "secs => greatest(q.delayed_processing, q.window_buffer)", "secs => q.delayed_processing"),
    ),
    _engine(
        "G-WAIT-4", "a poll whose client has gone goes on",
        ("queen/http/disconnect.py", "            abandon(engine, job, specs)\n", "            pass\n"),
    ),
    _sql(
        "G-RET-1", "retention is too eager: it removes what is younger than its seconds",
        (EXPIRED, "older := queen.older_than(make_interval(secs => p_queue.retention_seconds), p_not_after);", "older := queen.clock();"),
        tests=KEPT,
    ),
    _sql(
        "G-TIME-1", "what the clock says is believed, however it came to that",
        (TIMES, "v_before := v_before - make_interval(secs => v_step.distrusted);", "NULL;"),
        tests=STEPS,
    ),
    _sql(
        "G-TIME-1", "the clock is not bounded between two readings",
        (TIMES, "SELECT least(queen.clock(), coalesce(p_not_after, max(c.looked_at) + interval '1 minute')) - p_age", "SELECT queen.clock() - p_age"),
        tests=STEPS,
    ),
    _sql(
        "G-TIME-2", "leases that the clock has left in the future stay as they are",
        (REPAIR, "THEN c.ready_at - make_interval(secs => p_set_back)", "THEN c.ready_at"),
        tests=STEPS,
    ),
    _sql(
        "G-TIME-2", "messages that were created later than now stay so",
        (REPAIR, "UPDATE queen.segments AS s SET created_at = v_now", "UPDATE queen.segments AS s SET created_at = s.created_at"),
        tests=STEPS,
    ),
    _sql(
        "G-RET-2", "to completedRetentionSeconds everything is completed",
        (EXPIRED, "SELECT queen.lowest_cursor(p_part) INTO v_done", "SELECT 9223372036854775807 INTO v_done"),
        tests=KEPT,
    ),
    _sql(
        "G-RET-2", "to completedRetentionSeconds everything is completed that no group waits for, if there is another limit",
        (EXPIRED, "WHEN v_done IS NOT NULL AND v_segment", "WHEN v_segment"),
        tests="tests/property/test_engine_against_model.py::test_what_no_group_has_completed_is_no_completed_message",
    ),
    _sql(
        "G-RET-4", "what was pushed together stays as long as one of it must",
        (EXPIRED, "THEN least(v_segment.last_off, v_done)", "AND v_segment.last_off <= v_done THEN v_segment.last_off"),
        tests=COMBINATIONS,
    ),
    _sql(
        "G-RET-4", "completedRetentionSeconds waits for retentionEnabled",
        (EXPIRED, "    IF p_queue.completed_retention_seconds > 0 THEN", "    IF p_queue.retention_enabled AND p_queue.completed_retention_seconds > 0 THEN"),
        tests=COMBINATIONS,
    ),
    _sql(
        "G-IDEM-1", "a repeated flush is answered from where retention has cut it",
        (APPEND, "v_segment.last_off - v_segment.n - v_segment.cut + 1", "v_segment.last_off - v_segment.n + 1"),
        tests="tests/integration/test_repeated_flush.py",
    ),
    _sql(
        "G-RET-3", "deleting a queue leaves its transaction ids and cursors to the next one of the name",
        ("sql/procedures/delete_queue.sql", "    PERFORM queen.hide_partitions(v_parts);\n    INSERT INTO queen.removed_partitions (part_id) SELECT u FROM unnest(v_parts) AS u;\n", ""),
        ("sql/procedures/delete_queue.sql", "DELETE FROM queen.queues AS q WHERE q.id = v_queue;", "PERFORM 1 FROM queen.queues AS q WHERE q.id = v_queue;"),
    ),
    _sql(
        "G-RET-4", "what is too old stays until it is completed",
        (EXPIRED, "WHEN v_segment.created_at < p_older THEN v_segment.last_off", "WHEN v_segment.created_at < p_older AND v_segment.last_off <= v_done THEN v_segment.last_off"),
        tests=COMBINATIONS,
    ),
    _sql(
        "G-RET-4", "the lead of the background jobs stays with a worker that has ended",
        ("sql/procedures/lead_services.sql", "        holder = CASE WHEN l.expires_at <= clock_timestamp() THEN", "        holder = CASE WHEN false THEN"),
        ("sql/procedures/lead_services.sql", "    DELETE FROM queen.service_leader AS l WHERE l.holder = p_holder;", "    PERFORM 1 FROM queen.service_leader AS l WHERE l.holder = p_holder;"),
        tests=SERVICES,
    ),
    _sql(
        "G-RET-4", "retention and pushes wait for each other",
        (EXPIRED, "FOR KEY SHARE OF l FOR NO", "FOR UPDATE OF l FOR NO"),
        (EXPIRED, "FOR KEY SHARE OF l SKIP", "FOR UPDATE OF l SKIP"),
        tests=BESIDE,
    ),
    _sql(
        "G-RET-4", "retention does not mind who moves a cursor back",
        (EXPIRED, "    RETURN FOUND;\nEND $$;\nCOMMENT ON FUNCTION queen.lock_oldest", "    RETURN true;\nEND $$;\nCOMMENT ON FUNCTION queen.lock_oldest"),
        tests=BESIDE,
    ),
    _sql(
        "G-RET-4", "two remove the same at once",
        (EXPIRED, "FOR NO KEY UPDATE OF p;", ";"),
        (EXPIRED, "FOR KEY SHARE OF l SKIP LOCKED FOR NO KEY UPDATE OF p SKIP LOCKED;", "FOR KEY SHARE OF l SKIP LOCKED;"),
        tests=BESIDE,
    ),
    _engine(
        "G-RET-4", "a sweep that does not keep up gets no more of the time",
        ("queen/jobs/sweep.py", "max(1.0, lasted_s / interval_s)", "1.0"),
        tests="tests/property/test_sweep.py",
    ),
    _sql(
        "G-RET-5", "a rewind brings a deleted message back",
        (DELETED, "    IF v_deleted <> '{}' THEN", "    IF false THEN"),
    ),
    _sql(
        "G-RET-6", "eviction takes what is under a live lease",
        (EVICT, "greatest(v_upto, p_cursor.upto)", "v_upto"),
        tests=COMBINATIONS,
    ),
    _sql(
        "G-RET-6", "eviction leaves dead letters in a queue that keeps none",
        (EVICT, "IF coalesce(\n        p_queue.dead_letter_queue OR", "IF coalesce(\n        true OR p_queue.dead_letter_queue OR"),
        tests=COMBINATIONS,
    ),
    _sql(
        "G-RET-6", "eviction gives up for a group to come what it will not get",
        (OVERDUE, "g.queue_id = p_queue_id AND g.starts_at IS NOT NULL);", "g.queue_id = p_queue_id AND g.starts_at < v_now);"),
        tests="tests/property/test_engine_against_model.py::test_messages_before_the_start_of_a_pending_group_are_not_evicted_for_it",
    ),
    _sql(
        "G-RET-7", "clean-up takes a partition that has messages",
        (IDLE, ") AND NOT EXISTS (SELECT 1 FROM queen.segments AS s WHERE s.part_id = p_part AND s.n > 0)\n", ")\n"),
        tests=COMBINATIONS,
    ),
    _sql(
        "G-RET-7", "clean-up takes a partition of which a stream remembers something",
        (IDLE, "    AND NOT EXISTS (SELECT 1 FROM queen.stream_state AS s WHERE s.part_id = p_part);", "    ;"),
        tests=RETENTION,
    ),
    _sql(
        "G-RET-8", "a queue takes one message more than it has room for",
        (SIZE, "SELECT q.id, q.max_size, w.n, w.parts", "SELECT q.id, q.max_size + 1 AS max_size, w.n, w.parts"),
        tests=COMBINATIONS,
    ),
    _sql(
        "G-RET-8", "what is delivered counts as completed",
        (SIZE, "SELECT r.part_id, r.acked FROM", "SELECT r.part_id, r.seen AS acked FROM"),
        tests=COMBINATIONS,
    ),
    _sql(
        "G-RET-8", "what a group has to get where it has no cursor yet is no backlog",
        (SIZE, "CASE WHEN u.part_id > v_upto THEN", "CASE WHEN false THEN"),
        tests=PAGES_OF_GROUPS,
    ),
    _sql(
        "G-RET-8", "a seek back leaves what is known of the size",
        (SEEK, "PERFORM queen.forget_size(g.queue_id)", "PERFORM g.queue_id"), tests=MAX_SIZE,
    ),
    _sql(
        "G-RET-8", "the end of a group leaves what is known of the size",
        (DELETE_GROUP, "    PERFORM queen.forget_size(v_queue);\n", ""), tests=MAX_SIZE,
    ),
    _sql(
        "G-RET-8", "a new group leaves what is known of the size",
        (SUBSCRIBE, "PERFORM queen.forget_size(queue_id);", "NULL;"), tests=MAX_SIZE,
    ),
    _sql(
        "G-RET-8", "a limit that comes again takes the size for what it was",
        ("sql/procedures/configure_queue.sql", "v_forgets := v_limits OR ", "v_forgets := "), tests=MAX_SIZE,
    ),
    _sql(
        "G-RET-8", "longer waiting leaves what is known of the size",
        ("sql/procedures/configure_queue.sql", " OR v_old.max_wait_time_seconds <> p_max_wait_time_seconds", ""), tests=SIZES,
    ),
    _sql(
        "G-RET-8", "a step of the clock leaves what is known of the size",
        ("sql/procedures/clock/note_clock.sql", "PERFORM queen.forget_size(o.id)", "PERFORM o.id"), tests=SIZES,
    ),
    _sql(
        "G-RET-8", "what was spooled is not added to the size",
        (ACCEPTED, "        PERFORM queen.add_to_sizes(v_queues, v_n);\n", "        NULL;\n"), tests=SIZES,
    ),
    _sql(
        "G-RET-8", "a count does not see what was pushed meanwhile",
        ("sql/procedures/count_backlog.sql", " + s.pushed - v_before.pushed", ""), tests=SIZES,
    ),
    _sql(
        "G-RET-8", "a count holds although a cursor went back meanwhile",
        ("sql/procedures/count_backlog.sql", " AND s.resets = v_before.resets", ""), tests=SIZES,
    ),
    _sql(
        "G-RET-8", "a maximum is judged beside pushes that do not count",
        (SIZE, " AND c.limits)", " AND c.limits AND false)"),
        tests=PAGES_OF_CONFIGURE,
    ),
    _sql(
        "G-RET-8", "a maximum does not hold while another option comes to all partitions",
        (SIZE, " AND c.limits)", ")"),
        tests=PAGES_OF_CONFIGURE,
    ),
    _sql(
        "G-RET-8", "a count that began before all pushes counted holds",
        ("sql/procedures/configure_queue.sql", "v_change.limits AND NOT v_page.more", "false"), tests=SIZES,
    ),
    _engine(
        "G-ISO-1", "a bad ack fails the acks that it was fused with",
        ("queen/engine/handlers/ack.py", "    begin = 0\n    for request in acks:\n", "    if any(result.problem for result in results):\n        results = [AckResult('Message not found') for _ in results]\n    begin = 0\n    for request in acks:\n"),
    ),
    _engine(
        "G-ISO-1", "a call that is refused fails those of its transaction",
        ("queen/postgres/group_commit.py", "        except QueenError as problem:\n", "        except QueenError as problem:\n            raise\n"),
        tests="tests/integration/test_group_commit.py",
    ),
    _engine(
        "G-ISO-1", "a statement timeout is taken for an outage",
        ("queen/postgres/sqlstate.py", 'RETRYABLE = frozenset({"40P01", "40001"})', 'RETRYABLE = frozenset({"40P01", "40001", "57014"})'),
        tests="tests/integration/test_failures.py",
    ),
    _engine(
        "G-ISO-1", "requests that are too slow together all fail",
        ("queen/engine/failures.py", "        if len(requests) > 1:\n            self._halve", "        if len(requests) > 1:\n            self._timed_out += requests\n            return []\n            self._halve"),
        tests="tests/property/test_failures.py",
    ),
    _engine(
        "G-ISO-1", "what takes long is carried out in vain for each that is refused beside it",
        ("queen/engine/failures.py", "shorter_s if took_s > shorter_s else part.limit_s)", "part.limit_s)"),
        tests="tests/property/test_failures.py",
    ),
    _engine(
        "G-ISO-1", "those at fault have all of their time before others that were too slow for a moment",
        ("queen/engine/failures.py", "min(limit_s * _SHORTER, whole_s)", "whole_s"),
        tests="tests/property/test_failures.py",
    ),
    _engine(
        "G-ISO-1", "who needs what is locked is not told apart",
        ("queen/engine/failures.py", "        rest = [request for request in requests if request not in locks]\n", "        rest, locks = requests, {}\n"),
        tests="tests/property/test_failures.py",
    ),
    _engine(
        "G-ISO-1", "who waits for one lock for long holds others meanwhile",
        ("queen/engine/lock_waits.py", "return len(needs) == 1 and needs == self._queues[job.kind].locks_of(job)", "return True"),
        tests="tests/property/test_failures.py",
    ),
    _engine(
        "G-ISO-1", "calls wait for locks as long as they may take",
        ("queen/main.py", ", timeout_s, LOCK_WAIT_S),", ", timeout_s),"),
        tests="tests/integration/test_locks_of_others.py",
    ),
    _sql(
        "G-ISO-1", "the cursors that a push wakes are not asked for",
        ("sql/procedures/find_locked.sql", "AND queen.is_cursor_locked(c.part_id, c.grp_id))\n        WHEN 'cursor'", "AND false)\n        WHEN 'cursor'"),
        tests="tests/integration/test_find_locked.py",
    ),
    _engine(
        "G-ISO-2", "the results of acks come in the order of their outcome",
        (
            "queen/engine/handlers/ack.py",
            "results[number] = self._special(row, known, number, element.cursor.name)\n        return results\n",
            "results[number] = self._special(row, known, number, element.cursor.name)\n        return sorted(results, key=lambda result: result.problem is not None)\n",
        ),
    ),
    _engine(
        "G-ISO-2", "ids that are read together may run into each other",
        ("queen/log/ids.py", "    if head or set(map(len, digits)) != {12} or numbers.strip(_HEX):\n", "    if head or numbers.strip(_HEX):\n"),
        tests="tests/property/test_ack_columns.py",
    ),
    _engine(
        "G-ISO-3", "a malformed request is an internal error",
        ("queen/http/problems.py", "    BadRequestError: 400,\n", "    BadRequestError: 500,\n"),
    ),
    _engine(
        "G-ISO-4", "a refused ack is an error",
        (
            "queen/operations/acknowledge.py",
            "Ack(items)).future\n    return render_ack(items, acked.results)\n",
            "Ack(items)).future\n    if any(result.problem for result in acked.results):\n        raise falcon.HTTPBadRequest\n    return render_ack(items, acked.results)\n",
        ),
    ),
    _engine(
        "G-SPOOL-1", "success before fsync",
        (SPOOL, "        self._folder.append(name, data)\n        self._folder.sync(name)\n", "        self._folder.append(name, data)\n"),
        tests=SPOOL_CRASHES,
    ),
    _sql(
        "G-SPOOL-2", "a replay does not look how far the file is stored",
        (REPLAY_SQL, "IF replayed <> p_from THEN", "IF false THEN"),
        tests="tests/integration/test_replay_spool.py",
    ),
    _sql(
        "G-SPOOL-2", "a push of unknown outcome is replayed without asking whether it was stored",
        (ACCEPTED, "bool := p_sent_at IS NOT NULL;", "bool := false;"),
        tests="tests/integration/test_replay_spool.py",
    ),
    _engine(
        "G-SPOOL-2", "a file of which all is stored is taken up again while it is removed",
        ("queen/engine/held_back.py", "        return self._done.pop(name)\n",
         "        self._files.discard(lane.lane.name)\n        return self._done.pop(name)\n"),
        tests=SPOOL_CRASHES,
    ),
    _engine(
        "G-SPOOL-3", "the file that was being written at a crash is thrown away",
        (
            SPOOL, "            self._folder.sync(name)\n        self._folder.rename(name, _complete(_number(name)))\n",
            "            self._folder.sync(name)\n        self._folder.remove(name)\n",
        ),
        tests=SPOOL_CRASHES,
    ),
    _engine(
        "G-SPOOL-4", "a full spool drops the push, and says that it has it",
        (
            SPOOL, "        if ledger.size + len(data) > self._limits.bytes_max:\n            raise",
            "        if ledger.size + len(data) > self._limits.bytes_max:\n            return True\n            raise",
        ),
        tests=SPOOL_ON_A_DISK,
    ),
    _engine(
        "G-SPOOL-5", "a record that is refused vanishes",
        (REPLAY, "            await self.store.set_aside(lane, units[0], units[0].batches, str(problem))\n            await self.store.skip", "            await self.store.skip"),
        tests=SPOOL_ON_A_DISK,
    ),
    _engine(
        "G-SPOOL-6", "the spool never ends",
        (SPOOL, "        self.set_flag(SPOOLING, False)\n", ""),
        tests="tests/integration/spool/test_spool.py::test_maintenance_spools_in_every_worker_and_instance_until_it_ends",
    ),
    _engine(
        "G-SPOOL-7", "the youngest file of the spool is replayed first",
        (SPOOL, "if name.endswith(_COMPLETE)], key=_number)", "if name.endswith(_COMPLETE)], key=_number, reverse=True)"),
        tests=SPOOL_CRASHES,
    ),
    _engine(
        "G-SPOOL-7", "a request with two partitions goes to the lane of the first",
        ("queen/engine/replay_lanes.py", "        groups.join(each)\n", "        pass\n"),
        tests="tests/property/test_replay_lanes.py",
    ),
    _engine(
        "G-SPOOL-8", "PostgreSQL counts as down after three seconds of silence",
        ("queen/postgres/health_probe.py", "_SILENCE_S, _SILENCES = 1.1, 2", "_SILENCE_S, _SILENCES = 3.0, 2"),
        tests="tests/property/test_health_probe.py",
    ),
    _engine(
        "G-SPOOL-9", "a request is held back without making sure that it can no longer be stored from where it was",
        ("queen/engine/lane_store.py", "        if batch.fenced:\n            return None\n", "        if True:\n            return None\n"),
        ("queen/engine/replay_lanes.py", "return ~self.begin if self.fenced else self.begin", "return self.begin"),
        tests=SPOOL_CRASHES,
    ),
    _engine(
        "G-SPOOL-9", "a request that is too slow stops the replay",
        (REPLAY, "            return await self._hold_back(lane, batch, problem)\n", "            raise\n"),
        tests="tests/property/test_spool.py",
    ),
    _engine(
        "G-DUR-5", "an encrypted message loses its headers",
        ("queen/log/segment.py", '(b"headers", entry.headers), ', ""),
        tests=HEADERS,
    ),
    _engine(
        "G-DUR-5", "headers stand in the segment as they are, and end where one is called payload",
        ("queen/log/segment.py", '("headers", _encode(headers).decode() if headers else None)', '("headers", headers or None)'),
        ("queen/log/segment.py", "return _text.decode(self.headers).encode() if self.headers", "return bytes(self.headers) if self.headers"),
        tests=HEADERS,
    ),
    _sql(
        "G-DUR-5", "a dead letter forgets the headers",
        ("sql/internal/050_ack.sql", "m.key_id, m.headers\n", "m.key_id, NULL\n"),
        tests=HEADERS,
    ),
    _sql(
        "G-DUR-5", "a pop of SQL returns no headers",
        ("sql/procedures/sql_consumer/pop.sql", "m.producer_sub, m.headers)::queen.popped", "m.producer_sub, NULL)::queen.popped"),
        tests=HEADERS,
    ),
    _engine(
        "G-DUR-5", "messages of a partition without transaction ids lose the headers that SQL gave them",
        ("queen/engine/outbox_append.py", "not any(ids) and not any(messages.fields)", "not any(ids)"),
        tests=HEADERS,
    ),
    _sql(
        "G-DUR-5", "a timer of SQL forgets the headers",
        ("sql/internal/038_push_timers.sql", "queen.fields_of_push(v_traceparent, k.headers)", "queen.fields_of_push(v_traceparent, NULL)"),
        tests=HEADERS,
    ),
    _sql(
        "G-PAUSE-1", "a pop of a paused group finds messages",
        ("sql/internal/045_claim.sql", "                    AND NOT (g.paused OR q.paused)\n", ""),
        tests=PAUSE,
    ),
    _sql(
        "G-PAUSE-1", "a paused queue delivers to pops of several kinds",
        ("sql/internal/045_claim.sql", "WHERE NOT (g.paused OR q.paused) OFFSET 0", "WHERE NOT g.paused OFFSET 0"),
        tests=PAUSE,
    ),
    _sql(
        "G-PAUSE-1", "a push serves the long polls of a paused group",
        ("sql/procedures/push_to_waiters.sql", " AND NOT v_cursor.paused THEN", " THEN"),
        tests=PAUSE,
    ),
    _sql(
        "G-PAUSE-1", "an ack prefetches messages of a paused group",
        ("sql/internal/046_prefetch.sql", " AND NOT (g.paused OR q.paused)", ""),
        tests=PAUSE,
    ),
    _sql(
        "G-OUT-1", "transactions that were under way at the last move are forgotten",
        ("sql/internal/037_outbox.sql", "WHERE pg_visible_in_snapshot(x.xid, p_target)", "WHERE false"),
        tests=OUTBOX,
    ),
    _sql(
        "G-OUT-1", "messages are moved and stay in the outbox",
        (MOVE, "AND (o.xid, o.seq) <= (p_xid::xid8, p_seq)\n", "AND (o.xid, o.seq) < (p_xid::xid8, p_seq)\n"),
        (MOVE, "IF v_all <> p_rows THEN", "IF false THEN"),
        tests=OUTBOX,
    ),
    _sql(
        "G-SQL-1", "an ack with SQL moves the cursor over nothing",
        (SQL_ACK, "array_fill(p_kind, ARRAY[v_number])", "array_fill('r'::text, ARRAY[v_number])"),
        tests=SQL_CONSUMER,
    ),
    _sql(
        "G-SQL-2", "the time of a lease that SQL has given begins with the pop",
        (OPEN_CURSORS, "v_cursor.lease IS NOT NULL AND v_open.seconds IS NOT NULL", "false"),
        tests=SQL_CONSUMER,
    ),
    _sql(
        "G-SQL-2", "an ack with SQL of what is done is accepted",
        (SQL_ACK, "WHERE a.problem IS NOT NULL OR p_off[a.ord] <= a.done_upto OR", "WHERE a.problem IS NOT NULL OR"),
        tests=SQL_CONSUMER,
    ),
    _sql(
        "G-SQL-3", "an ack with SQL parks the cursor, which locks its partition",
        (SQL_ACK, "array_fill(p_error, ARRAY[v_number]), false)", "array_fill(p_error, ARRAY[v_number]), true)"),
        tests=SQL_CONSUMER,
    ),
    _sql(
        "G-SQL-3", "a pop with SQL holds the cursors in which it finds nothing",
        (OPEN_CURSORS, "    IF messages = 0 THEN\n        RAISE SQLSTATE 'QN005';", "    IF messages = 0 THEN\n        RETURN;"),
        tests=SQL_CONSUMER,
    ),
    _sql(
        "G-SQL-3", "low-water marks stay below a cursor that an open transaction holds",
        (LOW_WATER, "IF v_oldest < p_now - interval '1 s' THEN", "IF false THEN"),
        tests=OPEN,
    ),
    _sql(
        "G-SQL-3", "a cursor that a low-water mark has passed over is forgotten",
        (LOW_WATER, "stored := stored || v_cursor.part_id::float8;\n", "NULL;\n"),
        tests=OPEN,
    ),
    _sql(
        "G-OUT-2", "the messages of a move are in no order of transactions",
        (MOVE, "    ORDER BY n.number;", "    ORDER BY n.seq DESC;"),
        tests=OUTBOX,
    ),
    _engine(
        "G-OUT-1", "a move takes the first message of each call",
        ("queen/postgres/outbox_store.py", 'row["payloads"].encode().split(b"\\n")', 'row["payloads"].encode().split(b"\\n")[:1]'),
        tests=OUTBOX,
    ),
    _sql(
        "G-OUT-1", "a look that waits does not see what is committed meanwhile",
        (MOVE, "IF v_now <> v_read THEN", "IF v_read = '' THEN"),
        tests=OUTBOX,
    ),
    _sql(
        "G-OUT-2", "the rows of a large call are in no order",
        ("sql/procedures/outbox/push.sql", "ORDER BY min(m.ord);", "ORDER BY min(m.ord) DESC;"),
        tests=OUTBOX,
    ),
    _sql(
        "G-OUT-2", "the messages of a call that are held back are in no order",
        (MOVE, "ORDER BY m.xid, m.seq, m.ord", "ORDER BY m.xid, m.seq, m.ord DESC"),
        tests=OUTBOX_HELD,
    ),
    _engine(
        "G-OUT-1", "a long poll is not told what a move has leased to it",
        ("queen/engine/outbox_append.py", "    if moved.given:", "    if False:"),
        tests="tests/property/test_outbox_append.py",
    ),
    _engine(
        "G-OUT-1", "what a move may have leased to long polls is forgotten",
        ("queen/engine/outbox_append.py", "context.orphans.add(offer.lose())", "offer.lose()"),
        tests="tests/property/test_outbox_append.py",
    ),
    _sql(
        "G-OUT-3", "what comes after a held back message overtakes it",
        (HELD, "        WHERE NOT EXISTS (\n", "        WHERE true OR NOT EXISTS (\n"),
        tests=OUTBOX_HELD,
    ),
    _engine(
        "G-OUT-3", "a failure holds nothing back",
        ("queen/engine/outbox.py", "        except DatabaseUnavailableError:\n            raise\n", "        except Exception:\n            raise\n"),
        tests=OUTBOX_HELD,
    ),
    _sql(
        "G-OUT-1", "messages that were held back are moved twice",
        (HELD, "AND h.moved_seq = p_moved_seq\n", "\n"),
        tests=OUTBOX_HELD,
    ),
    _sql(
        "G-TIME-2", "timers of a clock ahead keep their times",
        (REPAIR, "    WHERE t.asked_at > v_now;", "    WHERE false;"),
        tests=STEPS,
    ),
    _sql(
        "G-TIM-1", "timers are moved and stay",
        (MOVE_TIMERS, "WHERE t.deliver_at = ANY(ARRAY[u.at]) AND t.seq = u.seq;", "WHERE t.deliver_at = ANY(ARRAY[u.at]) AND t.seq = -u.seq;"),
        tests=TIMERS,
    ),
    _sql(
        "G-TIM-1", "a second mover moves what the first has moved",
        (MOVE_TIMERS, "IF v_locked < cardinality(p_seq) THEN", "IF false THEN"),
        tests=TIMERS,
    ),
    _sql(
        "G-TIM-1", "timers are due a second early",
        (MOVE_TIMERS, "AND d.deliver_at <= v_now\n", "AND d.deliver_at <= v_now + interval '1 s'\n"),
        tests=TIMERS,
    ),
    _sql(
        "G-TIM-1", "a timer that is set again stays beside the new one",
        ("sql/procedures/timers/change_timers.sql", "v_one.queue_id, v_one.key,\n", "v_one.queue_id, v_one.key || v_one.transaction_id,\n"),
        tests=TIMERS,
    ),
    _engine(
        "G-TIM-1", "a push with an escaped name of its time is delivered at once",
        ("queen/http/parsing.py", """ or (b"\\\\" in body and b"\\\\u" in body)""", ""),
        tests=TIMERS,
    ),
    _engine(
        "G-TIM-1", "a cancel whose first answer was lost says that there is no timer",
        ("queen/engine/handlers/timers.py", "    if lost and any(", "    if False and any("),
        tests="tests/property/test_timers.py",
    ),
    _sql(
        "G-TIM-3", "two workers fire a schedule",
        ("sql/procedures/timers/schedules.sql", "AND s.next_at = u.seen AND s.last_at = u.last_at\n", "\n"),
        tests="tests/integration/test_schedules_cron.py",
    ),
    _engine(
        "G-TIM-3", "all missed times are made up for",
        ("queen/core/cron.py", "or missed > catch_up:", "or False:"),
        tests="tests/property/test_cron.py",
    ),
    _sql(
        "G-TIM-2", "the timers of a move are in no order of times",
        (MOVE_TIMERS, "        ORDER BY t.deliver_at, t.seq\n", "        ORDER BY t.seq\n"),
        tests=TIMERS,
    ),
    _engine(
        "G-TIM-2", "a partition that is locked holds back all timers",
        ("queen/engine/timers.py", "            return await self._move_apart(messages)\n", "            raise\n"),
        tests=TIMERS,
    ),
    _sql(
        "G-TXN-1", "a transaction that is refused sets its timers",
        ("sql/procedures/execute_with_timers.sql", "IF v_undone OR v_stored < cardinality(p_part) THEN", "IF false THEN"),
        tests=TIMERS,
    ),
    _engine(
        "G-TIM-2", "beside timers that need a missing key, the others go partition by partition",
        ("queen/engine/timers.py", "if self._context.keys is not None or not messages:", "if True:"),
        tests="tests/property/test_timers_held.py",
    ),
    _engine(
        "G-TIM-1", "a large timer has the same time at each try",
        ("queen/engine/timers.py", "2.0**failures", "1.0**failures"),
        tests="tests/property/test_timers_held.py",
    ),
    _sql(
        "G-TIM-3", "a schedule that was changed fires at times of the old expression",
        ("sql/procedures/timers/schedules.sql", "            AND s.cron = u.cron AND s.time_zone = u.time_zone AND s.catch_up = u.catch_up\n", ""),
        tests="tests/integration/test_schedules_cron.py",
    ),
    _engine(
        "G-TIM-2", "a read begins after the last timer that was moved",
        ("queen/engine/timers.py", "        whole = began >= self._whole_at or any(", "        whole = self._since is None or any("),
        ("queen/engine/timers.py", "messages[-1].deliver_at - _MARGIN", "messages[-1].deliver_at + _MARGIN * 10"),
        tests="tests/property/test_timers.py",
    ),
    _engine(
        "G-TIM-2", "a read after a hold begins after the last timer that was moved",
        ("queen/engine/timers.py", "self._whole_at or any(self._read_at < each.until <= began for", "self._whole_at or any(False for"),
        tests="tests/property/test_timers_held.py",
    ),
    _engine(
        "G-OUT-1", "messages of a deleted queue go to its successor",
        ("queen/engine/outbox_append.py", "queues[name.queue] != name.queue_id", "queues[name.queue] < 0"),
        tests="tests/property/test_outbox_append.py",
    ),
    _engine(
        "G-SQL-3", "a seek waits for a lock with all that it has locked",
        ("queen/main.py", "ADMINISTRATION_LOCK_WAIT_S, lock_turns=True)", "30.0, lock_turns=True)"),
        tests="tests/integration/test_sql_consumer.py",
    ),
    _sql(
        "G-SQL-1", "a lease of the transaction ends with its time",
        ("sql/internal/051_open_cursors.sql", "AND o.seconds IS NOT NULL\n    )) THEN", "AND false\n    )) THEN"),
        tests="tests/integration/test_sql_consumer.py",
    ),
    _sql(
        "G-COST-1", "a push looks for each of its transaction ids in an array of them",
        (PUSH, "SELECT u.part_id, u.hash, h.first_off + u.pos", "SELECT u.part_id, u.hash, h.first_off + p_hash_pos[array_position(p_hash, u.hash)]"),
        tests="tests/integration/test_growth.py::test_a_call_costs_in_proportion[messages of one segment: push of as many, all new]",
    ),
    _engine(
        "G-SEC-1", "a level includes the next one too",
        ("queen/http/access.py", "        return _RANKS[self] >= _RANKS[needed]\n", "        return _RANKS[self] >= _RANKS[needed] - 1\n"),
        tests="tests/property/test_gate.py",
    ),
    _engine(
        "G-SEC-2", "tokens never expire",
        ("queen/security/tokens.py", "                leeway=rules.leeway_s,\n", "                leeway=1e9,\n"),
        tests="tests/property/test_tokens.py",
    ),
    _engine(
        "G-SEC-3", "only messages without a transaction id of their producer are encrypted",
        (SEALING, "    if entry.keyId:\n        return encode_raw(entry)\n", "    if entry.keyId or entry.transactionId:\n        return encode_raw(entry)\n"),
        tests=ENCRYPTION,
    ),
    _engine(
        "G-SEC-4", "encryption without a key is silently left out",
        ("queen/operations/queue_options.py", "    if options.encryptionEnabled and not encrypts:", "    if options.encryptionEnabled and encrypts is None:"),
        tests=ENCRYPTION,
    ),
    _engine(
        "G-SEC-5", "a ciphertext is bound to its queue, and not to its partition",
        (KEYRING, "return msgspec.json.encode((queue, partition))", "return msgspec.json.encode((queue, partition[:0]))"),
        tests=KEYS,
    ),
    _engine(
        "G-SEC-5", "what cannot be decrypted is delivered as it stands",
        ("queen/http/rendering.py", """        return b"null", b'"error":%b,""", """        return bytes(entry.payload), b'"error":%b,"""),
        tests=ENCRYPTION,
    ),
    *SIMPLE_MQ,
    *SQS,
    *SHARDS,
)  # fmt: skip


def sample() -> list[Mutant]:
    """One mutant per area, always the same ones: the first of each that need not kill processes under load."""
    first: dict[str, Mutant] = {}
    numbers = {id_: number for number, id_ in enumerate(GUARANTEES)}
    for each in sorted(MUTANTS, key=lambda mutant: numbers[mutant.guarantee]):
        if not each.tests.startswith("tests/chaos/"):
            first.setdefault(GUARANTEES[each.guarantee].family, each)
    return list(first.values())
