"""Pops and acks with SQL, in transactions that commit or roll back, beside pops and acks over HTTP: against a model."""

import json
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec import model
from spec.guarantees import Level, checks
from tests.support.broker import Broker
from tests.support.locks import Connection

PARTITIONS = ("p0", "p1", "p2")
TRANSACTIONS = 2
LEASE_S = 600
#: A client that waits for another one is stopped, which no rule expects.
TIMEOUT = "SET statement_timeout = '10s'"

partitions = st.sampled_from(PARTITIONS)
numbers = st.integers(0, TRANSACTIONS - 1)
statuses = st.sampled_from(("completed", "completed", "completed", "retry", "failed"))


@dataclass
class Cursor:
    """What a group knows of a partition. ``holder``: the transaction that has changed it; ``before``: until then."""

    stored: int = 0
    done: set[int] = field(default_factory=set)
    given: set[int] = field(default_factory=set)
    lease: str | None = None
    under: list[int] = field(default_factory=list)
    holder: int | None = None
    before: "Cursor | None" = None

    def left(self) -> list[int]:
        """What is not done."""
        return [offset for offset in range(self.stored) if offset not in self.done]

    def is_free_for(self, who: int | None) -> bool:
        """Whether a pop of a transaction, or of HTTP, may have its messages."""
        return self.holder in (None, who) and self.lease is None

    def hold(self, who: int | None) -> None:
        """A transaction changes it."""
        if who is not None and self.holder is None:
            self.before, self.holder = deepcopy(self), who

    def finish(self, offsets: list[int], status: str) -> None:
        """An ack of messages under the lease."""
        if status == "completed":
            self.done |= set(offsets)
        if status != "completed" or not set(self.under) - self.done:
            self.lease, self.under = None, []

    def end(self, *, commits: bool) -> "Cursor":
        """What is left of it when the transaction that holds it has ended."""
        if commits or self.before is None:
            self.holder = self.before = None
            return self
        self.before.stored = self.stored
        return self.before


@dataclass(frozen=True)
class World:
    """The server, one operation at a time, and connections for transactions."""

    broker: Broker
    connections: list[Connection]

    def sql(self, number: int, statement: str, *arguments: object) -> list[Any]:
        """Rows of a statement of a transaction."""
        return self.broker._run(self.connections[number].fetch(statement, *arguments))  # type: ignore[no-any-return]


class Consumers:
    """The model has the cursors of one group. Those that a transaction holds are nobody else's."""

    def __init__(self, world: World) -> None:
        self.world, broker = world, world.broker
        broker.reset()
        self.open: set[int] = set()
        self.cursors = {name: Cursor() for name in PARTITIONS}
        self.leases: list[str] = []
        broker.perform(model.Configure("q", model.Options(lease_time=LEASE_S, retry_limit=1000)))
        broker.query("SELECT queen.subscribe('q')")
        for name in PARTITIONS:
            self.push(name, 1)

    def push(self, partition: str, number: int) -> None:
        cursor = self.cursors[partition]
        items = [model.PushItem("q", cursor.stored + n, partition) for n in range(number)]
        self.world.broker.perform(model.Push(tuple(items)))
        cursor.stored += number

    # ------------------------------------------------------------ pops

    def _judge(
        self, who: int | None, found: list[tuple[str, int, int]], partition: str | None, batch: int, most: int
    ) -> None:
        """What a pop may return: of the longest ready partitions, what comes next."""
        by_partition = {name: [row[1:] for row in rows] for name, rows in groupby(found, lambda row: row[0])}
        free = {
            name for name, cursor in self.cursors.items()
            if cursor.is_free_for(who) and cursor.left() and partition in (None, name)
        }  # fmt: skip
        assert by_partition.keys() <= free, (found, free)
        assert len(found) <= batch
        assert len(by_partition) <= most
        for name, rows in by_partition.items():
            left = self.cursors[name].left()
            assert [offset for offset, _ in rows] == left[: len(rows)]
            assert len(rows) == len(left) or len(found) == batch
            assert all(attempt == 1 for offset, attempt in rows if offset not in self.cursors[name].given)
        assert len(found) == batch or len(by_partition) == min(most, len(free)), (found, free)

    def _take(self, who: int | None, found: list[tuple[str, int, int]], lease: str | None) -> None:
        for name, rows in groupby(found, lambda row: row[0]):
            cursor, offsets = self.cursors[name], [row[1] for row in rows]
            cursor.hold(who)
            cursor.given |= set(offsets)
            cursor.lease, cursor.under = lease, offsets
            if lease is None:
                cursor.finish(offsets, "completed")
        if lease is not None and found:
            self.leases.append(lease)

    def pop_over_http(self, partition: str | None, batch: int, most: int, automatic: bool) -> None:
        most = 1 if partition else most
        pop = model.Pop("q", partition, batch=batch, partitions=most, auto_ack=automatic)
        performed, popped = self.world.broker.perform(pop)
        assert isinstance(performed, model.Pop)
        assert isinstance(popped, model.Popped)
        found = [(each.message.partition, each.message.offset, each.attempt) for each in popped.deliveries]
        self._judge(None, found, partition, batch, most)
        self._take(None, found, None if automatic else popped.lease)

    def pop_with_sql(
        self, number: int, partition: str | None, batch: int, most: int, automatic: bool, undone: bool
    ) -> None:
        """In a savepoint that may be undone."""
        self._begin(number)
        most = 1 if partition else most
        self.world.sql(number, "SAVEPOINT s")
        rows = self.world.sql(
            number, "SELECT * FROM queen.pop('q', NULL, $1, $2, $3, $4, $5)", partition, batch, most, LEASE_S, automatic
        )
        found = [(row["partition"], row["off"], row["delivery_attempt"]) for row in rows]
        assert [json.loads(row["payload"]) for row in rows] == [row["off"] for row in rows]
        self._judge(number, found, partition, batch, most)
        if undone:
            self.world.sql(number, "ROLLBACK TO s")
        else:
            self._take(number, found, None if automatic else str(rows[0]["lease_id"]) if rows else None)

    # ------------------------------------------------------------ acks

    def _of(self, lease: str) -> list[Cursor]:
        return [cursor for cursor in self.cursors.values() if cursor.lease == lease]

    def _lease(self, who: int | None, choice: int) -> str | None:
        """One that lives, or the last one; none if an ack of it would wait."""
        leases = [lease for lease in self.leases if self._of(lease)] + self.leases[-1:]
        free = [lease for lease in leases if not self._would_wait(who, lease)]
        return free[choice % len(free)] if free else None

    def _would_wait(self, who: int | None, lease: str) -> bool:
        """Whether another transaction holds what had this lease before."""
        return any(
            cursor.holder not in (None, who) and lease in (cursor.lease, cursor.before and cursor.before.lease)
            for cursor in self.cursors.values()
        )

    def ack_with_sql(self, choice: int, number: int, status: str, place: int | None, twice: bool) -> None:
        """All of a lease, or one message."""
        lease = self._lease(number, choice)
        if lease is None:
            return
        self._begin(number)
        cursors = self._of(lease)
        if place is None or not cursors:
            if self._is_acked(number, lease, None, status, allowed=bool(cursors)):
                for cursor in cursors:
                    cursor.hold(number)
                    cursor.finish(cursor.under, status)
            return
        [name, *_] = [name for name, cursor in self.cursors.items() if cursor.lease == lease]
        cursor, offset = self.cursors[name], cursors[0].under[place % len(cursors[0].under)]
        find = "SELECT m.id FROM queen.messages AS m WHERE m.queue = 'q' AND m.partition = $1 AND m.off = $2"
        [[message]] = self.world.broker.query(find, name, offset)
        for _ in range(1 + twice):
            allowed = cursor.lease == lease and offset not in cursor.done
            if self._is_acked(number, lease, message, status, allowed=allowed):
                cursor.hold(number)
                cursor.finish([offset], status)

    def _is_acked(self, number: int, lease: str, message: Any, status: str, *, allowed: bool) -> bool:
        """Acks, if that is allowed; else there is an error, which is undone, so that the transaction can go on."""
        self.world.sql(number, "SAVEPOINT s")
        try:
            self.world.sql(number, "SELECT queen.ack($1, $2, $3)", lease, message, status)
        except asyncpg.ObjectNotInPrerequisiteStateError:
            self.world.sql(number, "ROLLBACK TO s")
            assert not allowed
        else:
            assert allowed
        return allowed

    def ack_over_http(self, choice: int, status: str) -> None:
        lease = self._lease(None, choice)
        for name, cursor in self.cursors.items():
            if lease is not None and cursor.lease == lease:
                offset = next(each for each in cursor.under if each not in cursor.done)
                item = model.AckItem("q", name, model.MessageId("q", name, offset), status, None, lease)
                _, acked = self.world.broker.perform(model.Ack((item,)))
                assert isinstance(acked, model.Acked)
                assert acked.results[0].error is None, acked
                cursor.finish([offset], status)

    # ------------------------------------------------------------ transactions

    def _begin(self, number: int) -> None:
        if number not in self.open:
            self.world.sql(number, "BEGIN")
            self.open.add(number)

    def end(self, number: int, commits: bool) -> None:
        if number in self.open:
            self.world.sql(number, "COMMIT" if commits else "ROLLBACK")
            self.open.remove(number)
            for name, cursor in self.cursors.items():
                if cursor.holder == number:
                    self.cursors[name] = cursor.end(commits=commits)

    def finish(self) -> None:
        """Everything that is not done comes, once all is free."""
        for number in sorted(self.open):
            self.end(number, number % 2 == 0)
        while any(cursor.lease is not None for cursor in self.cursors.values()):
            self.ack_over_http(0, "completed")
        for _ in PARTITIONS:
            self.pop_over_http(None, 10_000, len(PARTITIONS), automatic=True)
        assert not any(cursor.left() for cursor in self.cursors.values())
        assert self.world.broker.query("SELECT * FROM queen.open_cursors") == []

    def close(self) -> None:
        """Ends the transactions, also after a failure."""
        for number in range(TRANSACTIONS):
            with suppress(asyncpg.PostgresError):
                self.world.sql(number, "ROLLBACK")


@pytest.fixture(scope="module")
def world(broker: Broker, postgres: str) -> Iterator[World]:
    connections = [broker._run(asyncpg.connect(postgres)) for _ in range(TRANSACTIONS)]
    for connection in connections:
        broker._run(connection.execute(TIMEOUT))
    yield World(broker, connections)
    for connection in connections:
        broker._run(connection.close())


places, batches, most = st.none() | partitions, st.integers(1, 5), st.integers(1, 3)
actions = st.one_of(
    st.tuples(st.just("push"), partitions, st.integers(1, 3)),
    st.tuples(st.just("pop_over_http"), places, batches, most, st.booleans()),
    st.tuples(st.just("pop_with_sql"), numbers, places, batches, most, st.booleans(), st.booleans()),
    st.tuples(
        st.just("ack_with_sql"), st.integers(0, 3), numbers, statuses, st.none() | st.integers(0, 2), st.booleans()
    ),
    st.tuples(st.just("ack_over_http"), st.integers(0, 3), statuses),
    st.tuples(st.just("end"), numbers, st.booleans()),
)


@checks("G-SQL-1", "G-SQL-2", "G-SQL-3", level=Level.MODEL)
@given(program=st.lists(actions, min_size=20, max_size=50))
@settings(max_examples=30)
def test_pops_and_acks_with_sql_and_over_http_do_what_the_model_does(world: World, program: list[Any]) -> None:
    consumers = Consumers(world)
    try:
        for action, *arguments in program:
            getattr(consumers, action)(*arguments)
        consumers.finish()
    finally:
        consumers.close()
