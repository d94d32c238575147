"""What belongs to a partition is the same after it has moved; while it is on its way, no database serves it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from queen.core.errors import QueenError
from queen.postgres import moves
from queen.shards import moves as shard_moves
from spark_validation.log.flaws import QUERIES
from spec import model
from spec.guarantees import Level, checks
from spec.model.state import Lane
from tests.property.test_shards_against_model import NAMES
from tests.support.moving_broker import MovingBroker
from tests.support.servers import create_database, drop_database

QUEUE, PARTITION = "b.t", "p"
LANE = Lane(QUEUE, PARTITION)

#: Everything of a partition, without numbers that each database has of its own.
CONTENTS = {
    "partition": "SELECT p.id, p.created_at FROM queen.partitions AS p WHERE p.id = $1",
    "locks": "SELECT l.part_id FROM queen.partition_locks AS l WHERE l.part_id = $1",
    "segments": "SELECT * FROM queen.segments AS s WHERE s.part_id = $1 ORDER BY s.last_off",
    "transaction ids": "SELECT * FROM queen.transaction_ids AS t WHERE t.part_id = $1 ORDER BY t.hash",
    "cursors": """SELECT (to_jsonb(c) - ARRAY['grp_id', 'prefetched_until', 'ready_at'])
        || jsonb_build_object('group', g.name, 'ready_at', greatest(c.ready_at, queen.clock()))
        FROM queen.partition_consumers AS c JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id
        WHERE c.part_id = $1 ORDER BY g.name""",
    "letters": """SELECT to_jsonb(d) - ARRAY['id', 'queue_id', 'grp_id'] FROM queen.dead_letter_queue AS d
        WHERE d.part_id = $1 ORDER BY d.off""",
    "groups of letters": """SELECT d.off FROM queen.dead_letter_queue AS d
        JOIN queen.consumer_groups_metadata AS g
            ON (g.id, g.name, g.queue_id) = (d.grp_id, d.consumer_group, d.queue_id)
        WHERE d.part_id = $1 ORDER BY d.off""",
    "deleted": "SELECT d.offsets FROM queen.deleted_messages AS d WHERE d.part_id = $1",
    "traces": """SELECT to_jsonb(t) - 'queue_id', ARRAY(
            SELECT n.name FROM queen.trace_names AS n WHERE n.trace_id = t.id ORDER BY 1)
        FROM queen.traces AS t WHERE t.part_id = $1 ORDER BY t.off""",
    "state": "SELECT * FROM queen.stream_state AS s WHERE s.part_id = $1 ORDER BY s.stream_id, s.key",
    "cycles": "SELECT to_jsonb(c) - 'grp_id' FROM queen.stream_cycles AS c WHERE c.part_id = $1 ORDER BY c.stream_id",
    "timers": """SELECT to_jsonb(t) - ARRAY['seq', 'queue_id'] FROM queen.timers AS t JOIN queen.partitions AS p
        ON p.queue_id = t.queue_id AND p.name = t.partition WHERE p.id = $1 ORDER BY t.key""",
    "schedules": """SELECT to_jsonb(t) - 'queue_id' FROM queen.schedules AS t JOIN queen.partitions AS p
        ON p.queue_id = t.queue_id AND p.name = t.partition WHERE p.id = $1 ORDER BY t.name""",
}


#: What no operation of the model makes.
MORE = (
    """INSERT INTO queen.traces (queue_id, part_id, off, consumer_group, event_type, data, worker, created_at)
        SELECT queue_id, id, 3, 'g', 'info', '{{}}', 'w', queen.clock() FROM queen.partitions WHERE id = {part}""",
    "INSERT INTO queen.trace_names SELECT 'order-7', t.id FROM queen.traces AS t",
    """INSERT INTO queen.stream_state (part_id, stream_id, key, value, updated_at)
        SELECT id, 1, 'k', '{{"n": 1}}', queen.clock() FROM queen.partitions WHERE id = {part}""",
    """INSERT INTO queen.stream_cycles (part_id, stream_id, grp_id, cycled_at) SELECT p.id, 1, g.id, queen.clock()
        FROM queen.partitions AS p JOIN queen.consumer_groups_metadata AS g ON g.queue_id = p.queue_id
        WHERE p.id = {part} AND g.name = 'g'""",
    """INSERT INTO queen.timers (deliver_at, queue_id, key, partition, transaction_id, message)
        SELECT queen.clock() + interval '1 day', queue_id, 'timer', name, 'later', '{{"payload":1}}'
        FROM queen.partitions WHERE id = {part}""",
    """INSERT INTO queen.schedules (queue_id, name, cron, time_zone, catch_up, partition, message, last_at, next_at)
        SELECT queue_id, 'daily', '0 0 * * *', 'UTC', 1, name, '{{"payload":1}}', queen.clock(),
        queen.clock() + interval '1 day' FROM queen.partitions WHERE id = {part}""",
)


@pytest.fixture(scope="module")
def made(postgres: str) -> Iterator[MovingBroker]:
    databases = {name: asyncio.run(create_database(postgres)) for name in NAMES}
    broker = MovingBroker(databases)
    yield broker
    broker.close()
    for url in databases.values():
        asyncio.run(drop_database(postgres, url))


@pytest.fixture
def broker(made: MovingBroker, monkeypatch: pytest.MonkeyPatch) -> MovingBroker:
    """On the first database a partition with everything that one can have; the list places it on the second one."""
    monkeypatch.setattr(shard_moves, "PAUSE_S", 0.0)
    monkeypatch.setattr(shard_moves, "ATTEMPTS", 2)
    made.reset_list()
    made.reset()
    made.set_clock(0.0)
    made.perform(model.Push(tuple(model.PushItem(QUEUE, n, PARTITION, f"t{n}" if n % 2 else None) for n in range(12))))
    made.query("UPDATE queen.queues SET retry_delay = 5000")
    _, popped = made.perform(model.Pop(QUEUE, PARTITION, group="g", batch=6))
    lease = popped.lease  # type: ignore[union-attr]

    def ack(offset: int, status: str, error: str | None = None) -> model.AckItem:
        return model.AckItem(QUEUE, PARTITION, model.MessageId(QUEUE, PARTITION, offset), status, "g", lease, error)

    made.perform(model.Ack((ack(0, "completed"), ack(2, "completed"), ack(4, "dlq", "spoilt"), ack(5, "failed"))))
    _, popped = made.perform(model.Pop(QUEUE, PARTITION, group="h", batch=2, lease_seconds=30))
    made.lease = popped.lease  # type: ignore[union-attr]
    made.perform(model.DeleteMessage(QUEUE, PARTITION, model.MessageId(QUEUE, PARTITION, 8)))
    part = made.part_id = part_of(made)
    for statement in MORE:
        made.query(statement.format(part=part))
    while made.shards.home(*LANE) == "a":
        made.change_list()
    return made


def part_of(broker: MovingBroker) -> int:
    [row] = broker.query(
        "SELECT p.id FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id"
        " WHERE q.name = $1 AND p.name = $2", *LANE,
    )  # fmt: skip
    return int(row[0])


def contents(broker: MovingBroker, database: str) -> dict[str, list[Any]]:
    return {
        what: [tuple(row) for row in broker.query_one(database, query, broker.part_id)]
        for what, query in CONTENTS.items()
    }


def judge(broker: MovingBroker) -> None:
    """The audits of what is stored find nothing wrong in any database; those of times need a clock that goes."""
    for name in ("groups_have_their_cursors", "dead_letters_are_of_their_messages", "partitions_are_complete"):
        assert [tuple(row) for row in broker.query(QUERIES[name])] == [], name


@checks("G-SHARD-8", level=Level.MODEL)
def test_all_that_a_partition_has_moves_with_it(broker: MovingBroker) -> None:
    before, home = contents(broker, "a"), broker.shards.home(*LANE)
    assert all(before.values()), [what for what, rows in before.items() if not rows]
    assert broker.move(0, None) == [LANE]
    assert contents(broker, home) == before
    assert not contents(broker, "a")["partition"]
    judge(broker)


@checks("G-SHARD-8", level=Level.MODEL)
@pytest.mark.parametrize("step", ["sealed", "brought"])
def test_an_interrupted_move_is_ended(broker: MovingBroker, step: str) -> None:
    before, home = contents(broker, "a"), broker.shards.home(*LANE)
    assert broker.move(0, step) == [LANE]
    assert contents(broker, home) == before
    judge(broker)


@checks("G-SHARD-8", level=Level.MODEL)
def test_no_database_serves_a_partition_on_its_way(broker: MovingBroker) -> None:
    """Neither database takes a push, delivers a message, or makes the partition anew."""
    broker.begin_move(LANE)
    judge(broker)
    with pytest.raises(QueenError, match="being changed"):
        broker.perform(model.Push((model.PushItem(QUEUE, 99, PARTITION, "t1"),)))
    for group in ("g", "h", "i"):
        _, popped = broker.perform(model.Pop(QUEUE, None, group=group, batch=100, partitions=10))
        assert popped.deliveries == ()  # type: ignore[union-attr]
    with pytest.raises(QueenError, match="being moved"):
        broker.perform(model.Seek(QUEUE, "g", None, True))
    assert broker.query("SELECT 1 FROM queen.partitions") == []
    broker.end_moves()
    _, pushed = broker.perform(model.Push((model.PushItem(QUEUE, 99, PARTITION, "t1"),)))
    assert pushed.results[0].status == "duplicate"  # type: ignore[union-attr]
    judge(broker)


def ack_of(broker: MovingBroker, offset: int) -> str | None:
    """The error of an ack under the lease of group h; ``None``: it is carried out."""
    name = model.MessageId(QUEUE, PARTITION, offset)
    _, acked = broker.perform(model.Ack((model.AckItem(QUEUE, PARTITION, name, "completed", "h", broker.lease),)))
    return acked.results[0].error  # type: ignore[union-attr]


@checks("G-SHARD-8", level=Level.MODEL)
def test_what_a_worker_does_before_it_hears_of_a_move_follows_the_partition(broker: MovingBroker) -> None:
    broker.move_unnoticed(LANE)
    assert ack_of(broker, 0) is None
    assert ack_of(broker, 1) is None
    assert ack_of(broker, 99) == "Message not found"
    _, pushed = broker.perform(model.Push((model.PushItem(QUEUE, 99, PARTITION, "t1"),)))
    assert pushed.results[0].status == "duplicate"  # type: ignore[union-attr]


@checks("G-SHARD-8", level=Level.MODEL)
def test_the_renewal_of_a_lease_follows_the_partition(broker: MovingBroker) -> None:
    broker.move_unnoticed(LANE)
    assert broker.renew(broker.lease) == 1
    broker.set_clock(59.0)
    assert broker.renew(broker.lease) == 1


@checks("G-SHARD-8", level=Level.MODEL)
def test_a_queue_that_is_deleted_takes_what_is_on_its_way_along(broker: MovingBroker) -> None:
    broker.begin_move(LANE)
    broker.perform(model.DeleteQueue(QUEUE))
    broker.perform(model.Push((model.PushItem(QUEUE, "new", PARTITION, "t1"),)))
    broker.end_moves()
    _, popped = broker.perform(model.Pop(QUEUE, PARTITION, batch=10))
    assert [delivery.payload for delivery in popped.deliveries] == ["new"]  # type: ignore[union-attr]
    judge(broker)


@checks("G-SHARD-8", level=Level.MODEL)
def test_what_was_left_is_removed_later_and_the_partition_may_come_back(broker: MovingBroker) -> None:
    """A repeated push finds what it had stored for an hour. A partition that comes back finds no rest."""
    before = contents(broker, "a")
    broker.move(0, None)
    assert broker.query_one("a", "SELECT 1 FROM queen.segments WHERE part_id = $1", broker.part_id)
    assert not broker.query_one("a", "SELECT queen.purge_partitions_v1(1000)")[0][0]
    assert broker.query_one("a", "SELECT 1 FROM queen.segments WHERE part_id = $1", broker.part_id)
    assert not broker.query_one("a", "SELECT 1 FROM queen.dead_letter_queue")
    broker.move_back(LANE, "a")
    assert contents(broker, "a") == before
    judge(broker)


@checks("G-SHARD-8", level=Level.MODEL)
def test_what_waits_in_the_outbox_and_leases_of_sql_are_waited_for(broker: MovingBroker) -> None:
    broker.query_one(
        "a",
        "INSERT INTO queen.outbox (queue_id, partitions, payloads, n) SELECT queue_id, ARRAY[name], '1', 1"
        " FROM queen.partitions WHERE id = $1",
        broker.part_id,
    )
    with pytest.raises(moves.BusyError, match="pushed with SQL"):
        broker.begin_move(LANE)
    broker.query_one("a", "DELETE FROM queen.outbox")
    broker.query_one(
        "a",
        "UPDATE queen.partition_consumers SET lease = gen_random_uuid() WHERE part_id = $1 AND lease IS NOT NULL",
        broker.part_id,
    )
    with pytest.raises(moves.BusyError, match="consumer with SQL"):
        broker.begin_move(LANE)
    broker.set_clock(31.0)
    broker.begin_move(LANE)
    broker.end_moves()
    assert broker.home(LANE) != "a"


@checks("G-SHARD-8", level=Level.MODEL)
def test_a_key_that_is_taken_at_the_target_is_named_and_may_be_cancelled(broker: MovingBroker) -> None:
    """Before the seal, and when it was taken meanwhile."""
    before, home = contents(broker, "a"), broker.shards.home(*LANE)
    queue = f"SELECT q.id FROM queen.queues AS q WHERE q.name = '{QUEUE}'"
    broker.query_one(
        home,
        "INSERT INTO queen.schedules SELECT q.id, 'daily', '* * * * *', 'UTC', 1, 'other', '{}', now(), now()"
        f" FROM ({queue}) AS q",
    )
    with pytest.raises(moves.BusyError, match="schedule with the key 'daily'"):
        broker.begin_move(LANE)
    broker.query_one(home, "DELETE FROM queen.schedules")
    broker.begin_move(LANE)
    broker.query_one(
        home,
        "INSERT INTO queen.timers (deliver_at, queue_id, key, partition, transaction_id, message)"
        f" SELECT queen.clock() + interval '1 day', q.id, 'timer', 'other', 'x', '{{}}' FROM ({queue}) AS q",
    )
    [left] = broker.end_moves()
    assert (left.queue, left.partition) == (QUEUE, PARTITION)
    assert "(queue_id, key)" in left.reason
    assert not contents(broker, home)["segments"]
    broker.query_one(home, "DELETE FROM queen.timers")
    assert broker.end_moves() == []
    assert contents(broker, home) == before
    judge(broker)


@checks("G-SHARD-8", level=Level.MODEL)
@pytest.mark.parametrize(("timers", "chars"), [(100_001, 1), (90, 1_000_000)])
def test_too_many_timers_are_waited_for(broker: MovingBroker, timers: int, chars: int) -> None:
    broker.query_one(
        "a",
        "INSERT INTO queen.timers (deliver_at, queue_id, key, partition, transaction_id, message)"
        " SELECT queen.clock() + interval '1 day', p.queue_id, n::text, p.name, n::text, repeat('x', $2)"
        " FROM queen.partitions AS p CROSS JOIN generate_series(1, $3) AS n WHERE p.id = $1",
        broker.part_id, chars, timers,
    )  # fmt: skip
    with pytest.raises(moves.BusyError, match="100,000 timers and delayed messages, or 64 MB"):
        broker.begin_move(LANE)


def register_stream(broker: MovingBroker) -> None:
    """Makes the stream of the partition's state known to all databases."""
    for name in NAMES:
        broker.query_one(
            name,
            "INSERT INTO queen.streams (id, name, source_queue, config_hash, created_at, registered_at)"
            " OVERRIDING SYSTEM VALUE VALUES (1, 's', $1, 'h', now(), now()) ON CONFLICT DO NOTHING",
            QUEUE,
        )


@checks("G-SHARD-8", "G-STR-1", level=Level.MODEL)
def test_the_state_of_a_stream_is_never_read_as_empty(broker: MovingBroker) -> None:
    """A worker that finds no state begins anew, and overwrites it."""
    register_stream(broker)
    assert broker.state(1) == {"k": {"n": 1}}
    broker.begin_move(LANE)
    with pytest.raises(QueenError, match="being moved"):
        broker.state(1)
    broker.end_moves()
    assert broker.state(1) == {"k": {"n": 1}}
    broker.move_back(LANE, "a")
    assert broker.state(1) == {"k": {"n": 1}}


@checks("G-SHARD-8", "G-STR-1", level=Level.MODEL)
def test_the_state_of_a_stream_is_found_before_the_worker_hears_of_the_move(broker: MovingBroker) -> None:
    register_stream(broker)
    broker.move_unnoticed(LANE)
    assert broker.state(1) == {"k": {"n": 1}}
