"""Deliberate faults in simple-mq: for each of its guarantees at least one."""

from tests.mutants.mutant import Mutant, mutant

_SQL, _INTERNAL = "sql/procedures/simple_mq", "sql/internal/simple_mq"
GROUPS, ROUTE, MOVE_BACK = f"{_INTERNAL}/020_groups.sql", f"{_INTERNAL}/040_route.sql", f"{_INTERNAL}/060_move_back.sql"
ENQUEUE, STORE = f"{_SQL}/enqueue.sql", f"{_INTERNAL}/070_store.sql"
DEQUEUE, ACKNOWLEDGE, EXTEND = (
    f"{_SQL}/dequeue.sql",
    f"{_SQL}/acknowledge.sql",
    f"{_SQL}/extend_visibility.sql",
)
PEEK, SWEEP = f"{_SQL}/peek.sql", f"{_SQL}/sweep.sql"
HANDLERS, TESTS = "queen/simple_mq/handlers.py", "tests/integration/test_simple_mq.py"

_LAST = "q.parent_id IS NULL AND u.delivery_count >= q.max_deliveries AS last"
_MOVE = "UPDATE simple_mq.messages AS m SET queue_id = p_dlq, state = 'r', visible_at = p_now\n        FROM chosen"

SIMPLE_MQ: tuple[Mutant, ...] = (
    mutant(
        "G-SMQ-1", "a polled message stays visible",
        (DEQUEUE, "visible_at = v_now + make_interval(secs => v_place.visibility_timeout)", "visible_at = v_now"),
    ),
    mutant(
        "G-SMQ-2", "every delivery is the first",
        (DEQUEUE, "state = 't', delivery_count = m.delivery_count + 1,", "state = 't', delivery_count = 1,"),
    ),
    mutant("G-SMQ-3", "a dead letter one delivery late", (ROUTE, _LAST, _LAST.replace(">=", ">"))),
    mutant(
        "G-SMQ-3", "a dead letter forgets its deliveries",
        (ROUTE, _MOVE, _MOVE.replace("state = 'r'", "delivery_count = 0, state = 'r'")),
    ),
    mutant(
        "G-SMQ-4", "an ack does not lower the count",
        (ACKNOWLEDGE, "PERFORM simple_mq.removed(v_deleted_queue);", "PERFORM simple_mq.removed('{}'::uuid[]);"),
    ),
    mutant(
        "G-SMQ-5", "a queue takes one message more than it has room for",
        (ENQUEUE, "v_request.messages > v_room", "v_request.messages > v_room + 1"),
    ),
    mutant("G-SMQ-6", "data is trimmed", (STORE, "p_time, p_time, m.name, m.data,\n", "p_time, p_time, m.name, trim(m.data),\n")),
    mutant(
        "G-SMQ-7", "an exhausted message is thrown away",
        (ROUTE, _MOVE, "DELETE FROM simple_mq.messages AS m\n        USING chosen"),
    ),
    mutant("G-SMQ-8", "an ack succeeds again and again", (ACKNOWLEDGE, "WHEN q.queue_id IS NOT NULL THEN 'missing'", "WHEN q.queue_id IS NOT NULL THEN 'deleted'")),
    mutant("G-SMQ-9", "a dead-letter queue takes more than its size", (ROUTE, "LIMIT greatest(least(v_room, 1000), 0)", "LIMIT 1000")),
    mutant("G-SMQ-9", "dead letters become dead letters of a second level", (ROUTE, _LAST, _LAST.removeprefix("q.parent_id IS NULL AND "))),
    mutant("G-SMQ-10", "a requeued message keeps its delivery count", (MOVE_BACK, "queue_id = p_destination, delivery_count = 0,", "queue_id = p_destination,")),
    mutant(
        "G-SMQ-10", "a repeated requeue moves the message back to the dead letters",
        ("sql/procedures/simple_mq/requeue.sql", "    IF v_source = v_parent THEN", "    destination := CASE WHEN v_source = v_parent THEN p_queue ELSE destination END;\n    IF false THEN"),
        tests="tests/integration/test_simple_mq.py::test_a_requeue_that_is_sent_again_changes_nothing",
    ),
    mutant("G-SMQ-11", "a peek leaves out what is in flight", (PEEK, "    WHERE m.queue_id = p_queue\n        -- Ids begin", "    WHERE m.queue_id = p_queue AND m.state <> 't'\n        -- Ids begin")),
    mutant("G-SMQ-11", "a page begins with the last message of the one before", (PEEK, "(m.created_at, m.message_id) > (p_after", "(m.created_at, m.message_id) >= (p_after")),
    mutant("G-SMQ-12", "the messages of a group do not wait for one another", (STORE, "CASE WHEN m.name IS NULL OR q.parent_id IS NOT NULL THEN 'w' ELSE 'b' END", "'w'")),
    mutant("G-SMQ-12", "the youngest of a group comes next", (GROUPS, "ORDER BY b.message_id LIMIT 1", "ORDER BY b.message_id DESC LIMIT 1")),
    mutant(
        "G-SMQ-13", "a waiting poll is not woken",
        (HANDLERS, "context.notify(Notification(str(queue), messages, SIMPLE_MQ_GROUP))", "context.notify(Notification(str(queue), 0, SIMPLE_MQ_GROUP))"),
        ("queen/config/areas.py", """"POP_WAIT_INITIAL_INTERVAL_MS POLL_DB_INTERVAL", 1, 60_000)] = 100""", """"POP_WAIT_INITIAL_INTERVAL_MS POLL_DB_INTERVAL", 1, 60_000)] = 60_000"""),
        ("queen/config/areas.py", """"POP_WAIT_MAX_INTERVAL_MS QUEUE_MAX_POLL_INTERVAL", 1, 60_000)] = 1000""", """"POP_WAIT_MAX_INTERVAL_MS QUEUE_MAX_POLL_INTERVAL", 1, 60_000)] = 60_000"""),
    ),
    mutant("G-SMQ-14", "a message that was not polled can be hidden", (EXTEND, "            AND CASE m.state WHEN 't' THEN m.visible_at > v_now END\n", "")),
    mutant(
        "G-SMQ-15", "each message of a batch is stored by itself, as far as there is room",
        (HANDLERS, "[request.queue for request in requests])\n    for number, request in enumerate(requests, 1):\n        columns.request += [number] * len(request.messages)", "[request.queue for request in requests for _ in request.messages])\n    for request in requests:\n        columns.request += range(len(columns.data) + 1, len(columns.data) + 1 + len(request.messages))"),
        (HANDLERS, "    stored: Counter[UUID] = Counter()\n", "    parts = iter(answers)\n    batches = [[next(parts) for _ in request.messages] for request in requests]\n    answers = [Enqueued(each[-1].outcome, [id_ for part in each for id_ in part.message_ids]) for each in batches]\n    stored: Counter[UUID] = Counter()\n"),
    ),
    mutant(
        "G-SMQ-16", "the sweep looks only where a poll has made the dead-letter queue",
        (SWEEP, "WHERE q.parent_id IS NULL AND (", "WHERE q.dlq_id IS NOT NULL AND ("),
        tests=TESTS,
    ),
    mutant(
        "G-SMQ-17", "a poll whose client has gone goes on",
        ("queen/http/disconnect.py", "            abandon(engine, job, specs)\n", "            pass\n"),
        tests=TESTS,
    ),
)  # fmt: skip
