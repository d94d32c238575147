"""Engines over several databases between which partitions move."""

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from msgspec import structs

from queen.core.job_type import JobType
from queen.core.placement import Shard, ShardList
from queen.engine.handlers.streams import read_state
from queen.log.requests import RenewLease
from queen.postgres import moves, shard_list
from queen.postgres.dsn import parse
from queen.shards.moving import Left, Mover, Wanted
from spec.model.state import Lane
from tests.support.sharded_broker import ShardedBroker

#: Version by version: all is on the first; the second and the third take a part; the first two are drained.
_SLOTS = {"a": (1, 4), "b": (2, 5), "c": (3, None)}
_PLACES = "SELECT q.name, p.name FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id"
_FORGET = (
    "DELETE FROM queen.moved_partitions",
    "DELETE FROM queen.removed_partitions",
    *(f"DELETE FROM queen.{table}" for table in ("segments", "transaction_ids", "dead_letter_queue", "traces")),
    *(f"DELETE FROM queen.{table}" for table in ("stream_state", "stream_cycles", "deleted_messages")),
)


class _InterruptedError(Exception):
    """The mover has died."""


class MovingBroker(ShardedBroker):
    """A broker over three databases, whose list changes; they must be empty.

    Attributes:
        part_id: of the partition that a test moves.
        lease: of messages of it.
        databases: their URLs by name.
    """

    part_id: int
    lease: str

    def __init__(self, databases: Mapping[str, str]) -> None:
        self.databases = databases
        super().__init__(databases)

    async def _open_all(self, databases: Mapping[str, str]) -> None:
        await super()._open_all(databases)
        await self._store(1)

    def reset_list(self) -> None:
        """Begins again with version 1 of the list, and without partitions."""
        self.query("DELETE FROM queen.queues")
        for statement in _FORGET:
            self.query(statement)
        self.query("UPDATE queen.shard_list SET version = 0, opened = 0")
        self._run(self._store(1))

    def change_list(self) -> None:
        """Takes the next version of the list; the last one stays."""
        if self.shards.version < 5:
            self._run(self._store(self.shards.version + 1))

    async def _store(self, version: int) -> None:
        shards = []
        for slot, (name, (added, drained)) in enumerate(_SLOTS.items()):
            known = drained if drained is not None and drained <= version else None
            shards.append(Shard(slot, name, added, known))
        self.shards = ShardList(shards, version, version)
        for name, dsn in self.databases.items():
            await shard_list.store(parse(dsn, "queen test", 5000), self.shards, name)
        self._homes.shards = self.shards

    def _begin(self) -> None:
        super()._begin()
        self._homes = self._context._homes  # the router has it, too

    async def _restart(self) -> None:
        self._begin()
        await self._homes.refresh_moves()

    def home(self, lane: Lane) -> str:
        """The database where a partition is, or would be made."""
        for name, pool in zip(self.databases, self._pools, strict=True):
            if tuple(lane) in {tuple(row) for row in self._run(pool.fetch(_PLACES))}:
                return name
        return self.shards.home(*lane)

    def query_one(self, database: str, sql: str, *arguments: object) -> list[Any]:
        """The rows of one database."""
        pool = self._pools[list(self.databases).index(database)]
        return self._run(pool.fetch(sql, *arguments))  # type: ignore[no-any-return]

    def begin_move(self, lane: Lane, home: str | None = None) -> None:
        """The steps up to the sealing of a partition.

        Raises:
            BusyError: it cannot be moved now.
        """
        self._run(self._begin_move(lane, home or self.shards.home(*lane)))

    async def _begin_move(self, lane: Lane, home: str) -> None:
        async with AsyncExitStack() as held:
            connections = await self._open_connections(held)
            source = connections[(await self._where(connections))[tuple(lane)]]
            number = "SELECT p.id" + _PLACES.partition("p.name")[2] + " WHERE (q.name, p.name) = ($1, $2)"
            part_id = await source.fetchval(number, *lane)
            await moves.expect(source, connections[home], part_id, *lane)
            await moves.seal(source, part_id, list(_SLOTS).index(home))
        await self._homes.refresh_moves()

    def move_unnoticed(self, lane: Lane) -> None:
        """Moves a partition; the worker knows that it is about to move, but not that it has."""
        self._run(self._move_unnoticed(lane, self.shards.home(*lane)))

    async def _move_unnoticed(self, lane: Lane, home: str) -> None:
        for step in ("expect", "move"):
            async with AsyncExitStack() as held:
                connections = await self._open_connections(held)
                source, target = connections["a"], connections[home]
                if step == "expect":
                    await moves.expect(source, target, self.part_id, *lane)
                else:
                    await moves.seal(source, self.part_id, list(_SLOTS).index(home))
                    await moves.bring(source, target, self.part_id)
                    await moves.forget(source, self.part_id)
            if step == "expect":
                await self._homes.refresh_moves()

    def renew(self, lease: str) -> int:
        """Extends a lease; how many cursors it holds."""
        return int(self._run(self._ask(JobType.RENEW_LEASE, RenewLease(lease, 60))).cursors)

    def state(self, stream: int) -> dict[str, Any]:
        """The state of a stream in the partition, as its worker reads it."""
        found = self._run(read_state(self._context, stream, self.part_id, None, None, None))
        return {row.key: json.loads(row.value) for row in found.rows}

    def end_moves(self) -> list[Left]:
        """Ends what has begun; what could not be ended."""
        return self._run(self._end_moves())  # type: ignore[no-any-return]

    async def _end_moves(self) -> list[Left]:
        async with AsyncExitStack() as held:
            mover = Mover(self.shards, await self._open_connections(held), _no_pause, 0)
            await mover.end_interrupted()
        await self._homes.refresh_moves()
        return mover.done.left

    def move_back(self, lane: Lane, home: str) -> None:
        """Moves a partition, wherever the list places it."""
        self.begin_move(lane, home)
        self.end_moves()

    async def _open_connections(self, held: AsyncExitStack) -> dict[str, Any]:
        return {
            name: await held.enter_async_context(pool.connection())
            for name, pool in zip(self.databases, self._pools, strict=True)
        }

    def move(self, which: int, interrupted: str | None) -> list[tuple[str, str]]:
        """Moves a partition that is not where the list places it; returns what has moved.

        The mover may die after a step, and another one begins: it ends the move, or gives it up.
        """
        return self._run(self._move(which, interrupted))

    async def _move(self, which: int, interrupted: str | None) -> list[tuple[str, str]]:
        async with AsyncExitStack() as held:
            connections = await self._open_connections(held)
            before = await self._where(connections)
            misplaced = sorted(lane for lane, name in before.items() if self.shards.home(*lane) != name)
            if not misplaced:
                return []
            lane = misplaced[which % len(misplaced)]
            mover = _MortalMover(self.shards, connections, interrupted)
            try:
                await mover.run(Wanted(lane[0], lane[1]))
            except _InterruptedError:
                await Mover(self.shards, connections, _no_pause, 0).end_interrupted()
            assert not mover.done.left, mover.done.left
            after = await self._where(connections)
        await self._homes.refresh_moves()
        assert before.keys() == after.keys()
        return [lane for lane in before if before[lane] != after[lane]]

    async def _where(self, connections: Mapping[str, Any]) -> dict[tuple[str, str], str]:
        places = {}
        for name, connection in connections.items():
            for row in await connection.fetch(_PLACES):
                assert tuple(row) not in places
                places[tuple(row)] = name
        return places


async def _no_pause(_seconds: float) -> None:
    return


class _MortalMover(Mover):
    """A mover that dies after a step."""

    def __init__(self, shards: ShardList, connections: Mapping[str, Any], dies: str | None) -> None:
        super().__init__(structs.replace(shards), connections, self._pass, 0)
        self._dies = dies

    async def _pass(self, _seconds: float) -> None:
        self._end_at("awaited")

    def _end_at(self, step: str) -> None:
        if self._dies == step:
            raise _InterruptedError

    async def _bring(self, source: Any, target: Any, moved: moves.Placed | moves.Sealed) -> bool:
        self._end_at("sealed")
        done = await super()._bring(source, target, moved)
        self._end_at("brought")
        return done
