"""Procedures of all kinds at once: what holds of the tables whenever somebody looks, and what consumers got in the end.

What is drawn comes from the seed, which is printed, and QUEEN_TEST_SEED=17 draws the same again; how the calls meet
does not.
"""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from spec.guarantees import Level, checks
from tests.support.clock import eventually
from tests.support.locks import Connection, prepared_connections
from tests.support.procedures import Offsets, ack, pop, push, resolve, subscribe
from tests.support.servers import create_database, drop_database

QUEUE = "q"
#: The first one is never moved or deleted, and it only takes by autoAck.
STEADY, OTHERS = "steady", ("a", "b")
WORKERS, CALLS = 5, 120
#: Partitions and cursors of a page: a group is made and deleted in several.
STEP = 3

#: Each finds what must never be there, in one snapshot.
WRONG = {
    "a cursor stands there twice": (
        "SELECT part_id, grp_id FROM queen.partition_consumers GROUP BY part_id, grp_id HAVING count(*) > 1"
    ),
    "a cursor is missing": (
        "SELECT p.id, g.id FROM queen.partitions AS p JOIN queen.consumer_groups_metadata AS g USING (queue_id)"
        " WHERE p.id <= g.subscribed_upto"
        " AND NOT EXISTS (SELECT 1 FROM queen.partition_consumers AS c WHERE c.part_id = p.id AND c.grp_id = g.id)"
    ),
    "a cursor belongs to nothing": (
        "SELECT c.* FROM queen.partition_consumers AS c WHERE NOT EXISTS (SELECT 1 FROM queen.partitions AS p"
        " JOIN queen.consumer_groups_metadata AS g USING (queue_id) WHERE p.id = c.part_id AND g.id = c.grp_id)"
    ),
    "no push wakes a cursor": (
        "SELECT c.* FROM queen.partition_consumers AS c JOIN queen.log_ends AS e ON e.part_id = c.part_id"
        " WHERE c.acked >= e.next_off OR (c.ready_at = 'infinity' AND c.acked < e.next_off - 1)"
    ),
    "the log has a gap, or goes back in time": (
        "SELECT * FROM (SELECT part_id, n, last_off - n AS before, created_at, lag(last_off) OVER w AS last,"
        " lag(created_at) OVER w AS earlier FROM queen.segments"
        " WINDOW w AS (PARTITION BY part_id ORDER BY last_off)) AS s"
        " WHERE before <> last OR created_at < earlier OR (n = 0 AND last IS NOT NULL)"
    ),
}
CONFIGURE = (
    "SELECT * FROM queen.configure_queue_v1("
    "$1, '', '', 0, 1, 2, $2, $3, $4, NULL, NULL, true, $5, $6, 0, $7, 0, false, $8)"
)
NAME = "SELECT * FROM queen.subscribe_v1($1, $2, 'all', NULL, true, true, $3, $4)"
SETTLE = "SELECT more FROM queen.settle_queue_v1($1, $2)"
EXECUTE = (
    "SELECT kind FROM queen.execute_transaction_v1($1, false, ARRAY[-1], ARRAY[1], ARRAY[$2::bytea], ARRAY[$3::bytea],"
    " ARRAY[NULL::bytea], NULL, NULL, NULL, $4, $5, $6, $7, $8, $8, NULL, array_fill(NULL::text, ARRAY[$9::int]), NULL,"
    " ARRAY[-1], ARRAY[$10], ARRAY[$11], (SELECT version FROM queen.push_options), NULL)"
)


class Worker:
    """One connection that makes random calls.

    Attributes:
        taken: what the steady group got by it: when the call began and ended, and the messages.
        stored: payloads of what it pushed, by partition and offset.
    """

    def __init__(self, seed: int, number: int, connection: Connection) -> None:
        self.random, self.number, self.connection = random.Random(f"{seed}/{number}"), number, connection
        self.taken: list[tuple[float, float, Offsets]] = []
        self.stored: dict[tuple[int, int], bytes] = {}
        self._count = 0

    async def run(self) -> None:
        calls = {
            self.push: 25, self.take: 10, self.work: 15, self.undo: 5, self.transact: 6, self.seek: 5,
            self.delete_group: 6, self.change_message: 6, self.retain: 6, self.tidy: 4, self.evict: 4,
            self.configure: 4, self.name: 6,
        }  # fmt: skip
        for call in self.random.choices([*calls], [*calls.values()], k=CALLS):
            await call()

    def payload(self) -> bytes:
        self._count += 1
        return b'"%d-%d"' % (self.number, self._count)

    async def places(self, most: int) -> list[int]:
        names = self.random.sample([f"p{number}" for number in range(6)], self.random.randint(1, most))
        return await resolve(self.connection, QUEUE, names)

    async def push(self) -> None:
        batches = {part: [self.payload() for _ in range(self.random.randint(1, 4))] for part in await self.places(3)}
        self.stored |= await push(self.connection, batches)

    async def take(self) -> None:
        group, began = await subscribe(self.connection, QUEUE, STEADY, STEP), time.monotonic()
        found = await pop(self.connection, group, None, self.random.randint(1, 10), self.random.randint(1, 4))
        self.taken.append((began, time.monotonic(), found))

    async def name(self) -> None:
        """A group has its cursor in one partition, whether it has all the others or not."""
        [part] = await self.places(1)
        await self.connection.fetch(NAME, QUEUE, self.random.choice(OTHERS), STEP, part)

    async def work(self) -> None:
        """A pop under a lease of a second, and acks of some of it, or a release."""
        group, lease = await subscribe(self.connection, QUEUE, self.random.choice(OTHERS), STEP), uuid4()
        found = await pop(
            self.connection,
            group,
            lease,
            self.random.randint(1, 10),
            self.random.randint(1, 4),
            1,
        )
        kinds = {
            (part, off): self.random.choice("ccccfrd")
            for part, offsets in found.items()
            for off in offsets
            if self.random.random() < 0.7
        }
        if self.random.random() < 0.2:
            await self.connection.execute("SELECT queen.release_leases_v1(ARRAY[$1::uuid])", lease)
        elif kinds:
            await ack(self.connection, group, lease if self.random.random() < 0.8 else None, kinds)

    async def undo(self) -> None:
        group = await subscribe(self.connection, QUEUE, self.random.choice(OTHERS), STEP)
        transaction = self.connection.transaction()
        await transaction.start()
        await push(self.connection, {part: [self.payload()] for part in await self.places(2)})
        await pop(self.connection, group, self.random.choice((None, uuid4())), 5, 3)
        await transaction.rollback()

    async def transact(self) -> None:
        """Acks, and a push to a partition that is made if missing."""
        group, lease = await subscribe(self.connection, QUEUE, self.random.choice(OTHERS), STEP), uuid4()
        found = await pop(self.connection, group, lease, 5, 2)
        acks = [(part, off) for part, offsets in found.items() for off in offsets]
        parts, offsets = [part for part, _ in acks], [off for _, off in acks]
        payload, count, place = self.payload(), len(acks), f"p{self.random.randrange(8)}"
        data = b'[{"payload":' + payload + b"}]"
        await self.connection.fetch(
            EXECUTE, uuid4(), data, (len(data) - 1).to_bytes(4, "big"), parts, [group] * count, [lease] * count,
            ["c"] * count, offsets, count, QUEUE, place,
        )  # fmt: skip

    async def seek(self) -> None:
        place = self.random.choice((None, f"p{self.random.randrange(6)}"))
        await self.connection.fetch(
            "SELECT queen.seek_group_v1($1, $2, $3, $4, NULL, 0, 1000)",
            QUEUE, self.random.choice(OTHERS), place, self.random.random() < 0.4,
        )  # fmt: skip

    async def delete_group(self) -> None:
        """Page by page, now and then not to the end; or it begins again."""
        name, for_good, last = self.random.choice(OTHERS), self.random.random() < 0.7, ""
        while last is not None and self.random.random() < 0.8:
            last = await self.connection.fetchval(
                "SELECT last FROM queen.delete_group_v1($1, $2, $3, $4, $5)", QUEUE, name, for_good, last, STEP
            )

    async def change_message(self) -> None:
        [part] = await self.places(1)
        end = await self.connection.fetchval("SELECT next_off FROM queen.log_ends WHERE part_id = $1", part) or 0
        off = max(0, end - self.random.randint(1, 12))
        if self.random.random() < 0.5:
            await self.connection.execute("SELECT queen.delete_message_v1($1, $2, NULL)", part, off)
        else:
            await self.connection.execute(
                "SELECT queen.move_to_dead_letters_v1($1, $2, NULL, $3, 'x')", part, off, self.random.choice(OTHERS)
            )

    async def candidates(self, procedure: str) -> tuple[int, list[int]]:
        """The queue, and partitions in which a service has something to do."""
        row = await self.connection.fetchrow(
            f"SELECT q.id, f.part_ids FROM queen.queues AS q, queen.{procedure}(q.id, '', 100) AS f WHERE q.name = $1",
            QUEUE,
        )
        assert row is not None
        return row["id"], row["part_ids"] or []

    async def retain(self) -> None:
        queue, parts = await self.candidates("find_expired_v1")
        waits = self.random.random() < 0.3
        parts = parts[:1] if waits else parts
        await self.connection.fetch(
            "SELECT queen.remove_expired_v1($1, $2, $3, $4, $5)",
            queue, parts, [-1] * len(parts), self.random.choice((1, 5, 1000)), waits,
        )  # fmt: skip

    async def evict(self) -> None:
        queue, parts = await self.candidates("find_overdue_v1")
        waits = self.random.random() < 0.3
        await self.connection.fetch("SELECT queen.evict_overdue_v1($1, $2, 100, $3)", queue, parts, waits)

    async def tidy(self) -> None:
        await self.connection.fetch(
            "SELECT queen.remove_idle_partitions_v1(q.id, ARRAY(SELECT p.id FROM queen.partitions AS p), interval '0')"
            " FROM queen.queues AS q"
        )

    async def configure(self) -> None:
        """Retry delay in ms; delay, window, retention, that of what is completed, and wait in seconds."""
        drawn = ((0, 100, 1500), (0, 0, 1), (0, 0, 0, 1), (0, 0, 3), (0, 1, 3), (0, 0, 2))
        options = [self.random.choice(values) for values in drawn]
        configured = await self.connection.fetchrow(CONFIGURE, QUEUE, *options, STEP)
        assert configured is not None
        more = configured["more"]
        while more:
            more = await self.connection.fetchval(SETTLE, configured["queue_id"], STEP)


@pytest.fixture
async def connections(postgres: str) -> AsyncIterator[list[Connection]]:
    url = await create_database(postgres)
    async with prepared_connections(url, WORKERS + 1) as opened:
        yield opened
    await drop_database(postgres, url)


async def judge(connection: Connection) -> None:
    async with connection.transaction(isolation="repeatable_read"):
        for what, question in WRONG.items():
            assert [tuple(row) for row in await connection.fetch(question)] == [], what


async def drain(worker: Worker, group: str) -> None:
    """A group takes all that is left: nothing is hidden from it, in a session that remembers what it saw before."""
    number = await subscribe(worker.connection, QUEUE, group)

    async def is_done() -> bool:
        began = time.monotonic()
        found = await pop(worker.connection, number, None)
        if group == STEADY:
            worker.taken.append((began, time.monotonic(), found))
        left = await worker.connection.fetchval(
            "SELECT count(*) FROM queen.partition_consumers AS c JOIN queen.log_ends AS e ON e.part_id = c.part_id"
            " WHERE c.grp_id = $1 AND (c.acked < e.next_off - 1 OR c.ready_at < 'infinity')",
            number,
        )
        return not left

    await eventually(is_done, f"all that is left for group {group}")


@checks("G-ORD-1", "G-ORD-2", "G-DUR-3", "G-GRP-1", level=Level.LIVE)
async def test_cursors_and_log_are_consistent_no_loss_no_duplicates(connections: list[Connection]) -> None:
    seed = int(os.environ.get("QUEEN_TEST_SEED", random.SystemRandom().randrange(10**6)))
    print(f"QUEEN_TEST_SEED={seed}")
    *others, observer = connections
    await observer.execute(CONFIGURE, QUEUE, 0, 0, 0, 3, 1, 0, 1000)
    workers = [Worker(seed, number, connection) for number, connection in enumerate(others)]
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(worker.run()) for worker in workers]
        while not all(task.done() for task in running):
            await judge(observer)
            await asyncio.wait(running, timeout=0.2)
    await observer.execute(CONFIGURE, QUEUE, 0, 0, 0, 0, 0, 0, 1000)
    for name in (STEADY, *OTHERS):
        await drain(workers[0], name)
    await judge(observer)
    kept = {
        (row["part_id"], row["off"]): row["payload"] for row in await observer.fetch("SELECT * FROM queen.messages")
    }
    for worker in workers:
        assert [
            (each, kept[each])
            for each, payload in worker.stored.items()
            if kept.get(each, payload.decode()) != payload.decode()
        ] == []
    calls = [call for worker in workers for call in worker.taken]
    taken = Counter((part, off) for _, _, found in calls for part, offsets in found.items() for off in offsets)
    assert [each for each, times in taken.items() if times > 1] == []
    assert kept.keys() - taken.keys() == await given_up(observer)
    for part in {part for part, _ in taken}:
        spans = sorted((began, ended, found[part]) for began, ended, found in calls if part in found)
        for n, (_, ended, offsets) in enumerate(spans):
            later = [min(others) for began, _, others in spans[n + 1 :] if began > ended]
            assert max(offsets) < min(later, default=max(offsets) + 1)


async def given_up(connection: Connection) -> set[tuple[int, int]]:
    """What the steady group did not get because it had waited too long, and is kept."""
    rows = await connection.fetch(
        "SELECT m.part_id, m.off FROM queen.messages AS m"
        " JOIN queen.dead_letter_queue AS d ON d.part_id = m.part_id AND d.off = m.off WHERE d.consumer_group = $1",
        STEADY,
    )
    return {(row["part_id"], row["off"]) for row in rows}
