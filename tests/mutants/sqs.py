"""Deliberate faults in SQS's use of the storage: for each of its guarantees at least one."""

from tests.mutants.mutant import Mutant, mutant

_SQL, _INTERNAL = "sql/procedures/simple_mq", "sql/internal/simple_mq"
ROUTE, TAKE, STORE = f"{_INTERNAL}/082_sqs_route.sql", f"{_INTERNAL}/084_sqs_take.sql", f"{_INTERNAL}/086_sqs_store.sql"
SETTLE, MOVE = f"{_INTERNAL}/080_sqs_counts.sql", f"{_INTERNAL}/088_sqs_move.sql"
RECEIVE, DELETE, CHANGE = f"{_SQL}/sqs_receive.sql", f"{_SQL}/sqs_delete.sql", f"{_SQL}/sqs_change_visibility.sql"
MOVES, UPKEEP, QUEUES = f"{_SQL}/sqs_moves.sql", f"{_SQL}/sqs_upkeep.sql", f"{_SQL}/sqs_queues.sql"
MODEL = "tests/property/test_sqs_against_model.py"
PROTOCOL = "tests/property/test_sqs_protocol.py"
REPLAY, SPOOL = f"{_SQL}/sqs_replay.sql", "queen/simple_mq/sqs_spool.py"
BESIDE = "tests/property/test_sqs_beside_spool.py"
HANDLES, SIGNATURE = "queen/sqs/handles.py", "queen/sqs/signature.py"

_JUDGED = "queue_id = CASE WHEN due.last THEN dlq_store ELSE m.queue_id END,"
_ORDER = "row_number() OVER (ORDER BY l.message_id, n.message_id) AS place"


def _seen(guarantee: str, name: str, *edits: tuple[str, str, str], tests: str = MODEL) -> Mutant:
    return mutant(guarantee, name, *edits, tests=tests)


SQS: tuple[Mutant, ...] = (
    _seen(
        "G-SQS-1",
        "a message that was not deleted in its visibility timeout is not received again",
        (
            ROUTE,
            "state = CASE WHEN p_queue.fifo THEN 'b' ELSE 'r' END,\n            source_id",
            "state = 'x',\n            source_id",
        ),
    ),
    _seen(
        "G-SQS-2",
        "the visibility of a receive is that of the queue",
        (
            RECEIVE,
            "array_agg(coalesce(u.visibility, q.visibility_timeout) ORDER BY u.n)",
            "array_agg(q.visibility_timeout ORDER BY u.n)",
        ),
    ),
    _seen(
        "G-SQS-2",
        "a message that is changed to 0 stays hidden",
        (CHANGE, "v_now + make_interval(secs => u.seconds)", "v_now + make_interval(secs => greatest(u.seconds, 1))"),
    ),
    _seen(
        "G-SQS-3",
        "several messages of a group come youngest first",
        (TAKE, _ORDER, _ORDER.replace(", n.message_id)", ", n.message_id DESC)")),
    ),
    _seen(
        "G-SQS-3",
        "a group goes on while a message is in flight",
        (
            SETTLE,
            "    RETURN simple_mq.promote(p_store, p_group);",
            "    UPDATE simple_mq.messages AS m SET state = 'r' WHERE m.queue_id = ANY(p_store) AND m.state = 'b';\n    RETURN simple_mq.promote(p_store, p_group);",
        ),
    ),
    _seen(
        "G-SQS-4",
        "a deduplication id counts for ever",
        (STORE, "WHERE d.sent_at <= excluded.sent_at - interval '5 minutes'", "WHERE false"),
    ),
    _seen(
        "G-SQS-4",
        "a deduplication id counts for four minutes",
        (STORE, "excluded.sent_at - interval '5 minutes'", "excluded.sent_at - interval '4 minutes'"),
    ),
    _seen(
        "G-SQS-4",
        "a duplicate is stored",
        (STORE, "OR u.deduplication_id IS NULL OR n.message_id IS NOT NULL)", "OR true)"),
    ),
    _seen(
        "G-SQS-5",
        "an attempt returns nothing again",
        (TAKE, "AND a.received_at > p_now - interval '5 minutes' AND a.visible_at > p_now;", "AND false;"),
    ),
    _seen(
        "G-SQS-5",
        "an attempt returns messages that were changed",
        (TAKE, " AND m.visible_at = v_attempt.visible_at", ""),
    ),
    _seen(
        "G-SQS-5",
        "an attempt waits with the others before it has looked",
        ("queen/engine/waiters.py", "if pop.looks_first:", "if False:"),
        tests="tests/property/test_waiters.py",
    ),
    _seen(
        "G-SQS-6",
        "every handle of a message deletes it",
        (DELETE, "WHEN m.delivery_count <> u.delivery THEN 'stale'", "WHEN false THEN 'stale'"),
    ),
    _seen(
        "G-SQS-6",
        "a handle deletes after its visibility timeout",
        (
            DELETE,
            "WHEN u.fifo AND (m.state <> 't' OR m.visible_at <= v_now) THEN 'expired'",
            "WHEN false THEN 'expired'",
        ),
    ),
    _seen(
        "G-SQS-7",
        "a dead letter one receive late",
        (
            ROUTE,
            "coalesce(m.earlier_receives, 0) >= p_queue.max_receives",
            "coalesce(m.earlier_receives, 0) > p_queue.max_receives",
        ),
    ),
    _seen(
        "G-SQS-7",
        "an exhausted message is nowhere",
        (ROUTE, _JUDGED, _JUDGED.replace("dlq_store ELSE", "gen_random_uuid() ELSE")),
    ),
    _seen(
        "G-SQS-8",
        "a delayed message is visible at once",
        (STORE, "OR l.visible_at IS NOT NULL\n                    THEN 'd'", "AND false THEN 'd'"),
    ),
    _seen(
        "G-SQS-9",
        "messages are removed at half their retention",
        (
            UPKEEP,
            "v_before := simple_mq.uuid_at(v_now - make_interval(secs => v_queue.retention)",
            "v_before := simple_mq.uuid_at(v_now - make_interval(secs => v_queue.retention / 2)",
        ),
        (UPKEEP, "v_now - make_interval(secs => q.retention)", "v_now - make_interval(secs => q.retention / 2)"),
    ),
    _seen(
        "G-SQS-9",
        "nothing is removed",
        (UPKEEP, "    IF NOT FOUND THEN\n        RETURN 0;", "    IF true THEN\n        RETURN 0;"),
    ),
    _seen(
        "G-SQS-10",
        "a task moves what has come since its start",
        (
            MOVES,
            "simple_mq.uuid_at(v_move.started_at, '0000000000000000'), v_most",
            "'ffffffff-ffff-ffff-ffff-ffffffffffff', v_most",
        ),
    ),
    _seen(
        "G-SQS-10",
        "a moved message keeps its receives",
        (MOVE, "delivery_count = 0, earlier_receives", "earlier_receives"),
        tests="tests/integration/test_sqs_storage.py",
    ),
    _seen(
        "G-SQS-10",
        "a source whose timeouts always end keeps all tasks",
        (MOVES, "IF v_due AND p_routes THEN", "IF v_due THEN"),
        tests="tests/integration/test_sqs_storage.py",
    ),
    _seen(
        "G-SQS-11",
        "a delete leaves the message in flight",
        (DELETE, "CASE WHEN d.state = 't' THEN -1 ELSE 0 END::bigint", "0::bigint"),
    ),
    _seen(
        "G-SQS-11", "what time has made visible is not counted so", (QUEUES, "::bigint + v_ended + v_begun", "::bigint")
    ),
    _seen(
        "G-SQS-12",
        "a receipt handle is good for every queue",
        (HANDLES, "hmac.digest(self._key, queue.bytes + text,", "hmac.digest(self._key, text,"),
        tests=PROTOCOL,
    ),
    _seen(
        "G-SQS-12",
        "the code of a receipt handle is not looked at",
        (HANDLES, " or not hmac.compare_digest(mac, self._mac(queue, text))", ""),
        tests=PROTOCOL,
    ),
    _seen(
        "G-SQS-13",
        "a signature of any secret is good",
        (SIGNATURE, "if not any(hmac.compare_digest", "if False and not any(hmac.compare_digest"),
        tests=PROTOCOL,
    ),
    _seen(
        "G-SQS-13",
        "signatures stay good for an hour",
        (SIGNATURE, "_SKEW = timedelta(minutes=5)", "_SKEW = timedelta(minutes=60)"),
        tests=PROTOCOL,
    ),
    _seen(
        "G-SQS-13",
        "the action need not be signed",
        (SIGNATURE, 'for name in ("host", "x-amz-target"):', 'for name in ("host",):'),
        tests=PROTOCOL,
    ),
    _seen(
        "G-SQS-14",
        "a replay does not look how far the file is stored",
        (REPLAY, "IF v_replayed <> p_from THEN", "IF false THEN"),
        tests="tests/integration/test_sqs_storage.py",
    ),
    _seen(
        "G-SQS-14",
        "delays of spooled messages count from when they are stored",
        (REPLAY, "v_sent := least(p_sent, v_locked.place_at);", "v_sent := v_locked.place_at;"),
    ),
    _seen(
        "G-SQS-14",
        "a later sending makes an earlier one a duplicate",
        (STORE, "                OR d.sent_at >= excluded.sent_at + interval '5 minutes'\n", ""),
    ),
    _seen(
        "G-SQS-14",
        "a delayed message of a FIFO queue comes before one that was stored before",
        (STORE, "greatest(p_sent, l.visible_at)", "p_sent"),
    ),
    mutant(
        "G-SQS-14",
        "a send that may be stored is spooled, too",
        (SPOOL, "            except OutcomeUnknownError:\n                raise\n", ""),
        tests=BESIDE,
    ),
    mutant(
        "G-SQS-14",
        "deduplication ids are forgotten while the spool waits",
        (SPOOL, "            failover.spooling or any(", "            any("),
        tests=BESIDE,
    ),
)
