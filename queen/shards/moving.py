"""Moves partitions to the databases on which the list places them: ``queen shards move`` (ADR 69).

Each step can be repeated, and each database knows how far a partition is. So a command that was interrupted at any
moment is repeated, and first ends what the earlier one has begun.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
from msgspec import Struct, field

from queen.core.errors import DatabaseUnavailableError, NotFoundError, SettingError
from queen.core.placement import ShardList
from queen.engine.notifications import packet_of
from queen.engine.ports import Notification
from queen.postgres import moves
from queen.postgres.dsn import UNREACHABLE, Target
from queen.postgres.moves import BusyError, Placed, Sealed
from queen.postgres.notifications import CHANNEL
from queen.postgres.setup import open_connection
from queen.shards.setup import SETTLED_S, alone

_NOTIFY = "SELECT pg_notify($1, $2)"
#: Partitions that are listed by one call, and that are moved together.
_PAGE, _BATCH = 10_000, 500
#: How long partitions are tried that are in use, and the pause between, in seconds.
_TRIES_S, _PAUSE_S = 60.0, 0.25
_PINNED = "its name ends with that of this database, so it stays: consume it until it is removed, or delete it"


class Wanted(Struct, frozen=True):
    """Which partitions are moved: of a queue (``None``: all), of a name, from a database."""

    queue: str | None = None
    partition: str | None = None
    source: str | None = None

    def __str__(self) -> str:
        partition = "partition" if self.partition is None else f"partition {self.partition!r}"
        return f"{partition} of queue {self.queue!r}" + ("" if self.source is None else f" on {self.source}")


class Left(Struct, frozen=True):
    """A partition that was not moved."""

    queue: str
    partition: str
    reason: str


class Moved(Struct):
    """What was done."""

    partitions: int = 0
    messages: int = 0
    left: list[Left] = field(default_factory=list)


class Mover:
    """Moves partitions over open connections.

    Args:
        known: the list of shards.
        connections: to each database, by name.
        pause: waits for a number of seconds.
        tries_s: how long partitions are tried that are in use.
    """

    def __init__(
        self,
        known: ShardList,
        connections: Mapping[str, Any],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        tries_s: float = _TRIES_S,
    ) -> None:
        self._connections = connections
        self._slots = {shard.name: shard.slot for shard in known.shards}
        self._names = {shard.slot: shard.name for shard in known.shards}
        self._drained = {shard.name for shard in known.shards if shard.drained_in is not None}
        self._pause, self._tries_s = pause, tries_s
        self._seen = 0
        self.done = Moved()

    async def run(self, wanted: Wanted, tell: Callable[[Moved], None] = lambda _moved: None) -> Moved:
        """Moves all that match, after what an earlier call has left. ``tell`` gets what was done from time to time.

        Raises:
            NotFoundError: a queue was named, and no partition matches.
        """
        await self.end_interrupted()
        for source in self._connections:
            if wanted.source in (None, source):
                async for batch in self._batches(source, wanted):
                    await self._move_batch(source, batch)
                    tell(self.done)
        if wanted.queue is not None and not self._seen:
            raise NotFoundError(f"There is no {wanted}")
        return self.done

    async def end_interrupted(self) -> None:
        """Ends the moves that an earlier call has begun."""
        for source in self._connections.values():
            for sealed in await moves.read_sealed(source):
                await self._end(source, sealed)
        for target in self._connections.values():
            for part_id in await moves.read_awaited(target):
                await moves.expect_no_longer(target, part_id)

    async def _end(self, source: Any, sealed: Sealed) -> None:  # noqa: ANN401 - a connection
        """Ends a move that was interrupted after step 2."""
        target = self._connections[self._names[sealed.slot]]
        try:
            waits = sealed.alive and await moves.expect(source, target, sealed.part_id, sealed.queue, sealed.partition)
        except BusyError as problem:
            self.done.left.append(Left(sealed.queue, sealed.partition, f"it is on its way, but {problem}"))
            return
        if not waits or await self._bring(source, target, sealed):
            await moves.forget(source, sealed.part_id)

    async def _batches(self, source: str, wanted: Wanted) -> AsyncIterator[list[Placed]]:
        """The partitions of a database that match and belong elsewhere."""
        batch: list[Placed] = []
        after = -1
        while page := await moves.read_homes(self._connections[source], wanted.queue, wanted.partition, after, _PAGE):
            after, self._seen = page[-1].part_id, self._seen + len(page)
            if wanted.source is not None and source in self._drained:
                self.done.left += [Left(each.queue, each.partition, _PINNED) for each in page if each.home == source]
            batch += [each for each in page if each.home != source]
            while len(batch) >= _BATCH:
                yield batch[:_BATCH]
                del batch[:_BATCH]
        if batch:
            yield batch

    async def _move_batch(self, source: str, batch: Sequence[Placed]) -> None:
        await self._take_definitions(source, batch)
        expected = [each for each in batch if await self._expect(source, each)]
        if not expected:
            return
        # All workers know then which partitions are about to move.
        await self._pause(SETTLED_S)
        until, reasons = time.monotonic() + self._tries_s, dict[int, str]()
        while expected:
            busy = [each for each in expected if not await self._move(source, each, reasons)]
            if busy and time.monotonic() >= until:
                await self._leave(busy, reasons)
                return
            expected = busy
            if busy:
                await self._pause(_PAUSE_S)

    async def _take_definitions(self, source: str, batch: Sequence[Placed]) -> None:
        for home in {each.home for each in batch}:
            queues = {each.queue for each in batch if each.home == home}
            await moves.take_definitions(self._connections[source], self._connections[home], queues)

    async def _expect(self, source: str, placed: Placed) -> bool:
        own, target = self._connections[source], self._connections[placed.home]
        try:
            await moves.expect(own, target, placed.part_id, placed.queue, placed.partition)
        except BusyError as problem:
            self.done.left.append(Left(placed.queue, placed.partition, str(problem)))
            return False
        return True

    async def _move(self, source: str, placed: Placed, reasons: dict[int, str]) -> bool:
        """Steps 2 to 5; false: not now."""
        own, target = self._connections[source], self._connections[placed.home]
        try:
            sealed = await moves.seal(own, placed.part_id, self._slots[placed.home])
        except BusyError as problem:
            reasons[placed.part_id] = str(problem)
            return False
        if not sealed:
            await moves.expect_no_longer(target, placed.part_id)
        elif await self._bring(own, target, placed):
            await moves.forget(own, placed.part_id)
        return True

    async def _bring(self, source: Any, target: Any, moved: Placed | Sealed) -> bool:  # noqa: ANN401 - connections
        """Steps 3 and 4 of a sealed partition; false: something is in the way."""
        try:
            messages = await moves.bring(source, target, moved.part_id)
        except BusyError as problem:
            self.done.left.append(Left(moved.queue, moved.partition, f"it is on its way, but {problem}"))
            return False
        if messages is None:
            await moves.expect_no_longer(target, moved.part_id)
            return True
        self.done.partitions += 1
        self.done.messages += messages
        await target.execute(_NOTIFY, CHANNEL, packet_of(Notification(moved.queue, max(messages, 1))).decode())
        return True

    async def _leave(self, busy: Iterable[Placed], reasons: Mapping[int, str]) -> None:
        for each in busy:
            await moves.expect_no_longer(self._connections[each.home], each.part_id)
            self.done.left.append(Left(each.queue, each.partition, reasons[each.part_id]))


async def move(
    targets: Mapping[str, Target],
    wanted: Wanted,
    tell: Callable[[Moved], None],
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Moved:
    """Moves the partitions that match to where the list places them.

    Raises:
        SettingError: there is no list, or a change of it is not done.
        DatabaseUnavailableError: a database is unreachable, or was lost meanwhile: repeat the call.
        ConflictError: another command is under way.
        NotFoundError: a queue was named, and no partition matches.
    """
    async with alone(targets) as known:
        if known.opened != known.version:
            raise SettingError("A change of the list of databases was interrupted: first repeat its command")
        names = [shard.name for shard in known.in_use]
        if wanted.source is not None and wanted.source not in names:
            raise SettingError(f"{wanted.source} is no shard: the shards are {', '.join(names)}")
        async with _open({name: targets[name] for name in names}) as connections:
            try:
                return await Mover(known, connections, pause).run(wanted, tell)
            except (*UNREACHABLE, asyncpg.PostgresError) as problem:
                raise DatabaseUnavailableError(f"The move was interrupted: {problem}. Repeat the command") from problem


@asynccontextmanager
async def _open(targets: Mapping[str, Target]) -> AsyncIterator[dict[str, Any]]:
    async with AsyncExitStack() as held:
        connections = {}
        for name, target in targets.items():
            connections[name] = await open_connection(target)
            held.push_async_callback(connections[name].close, timeout=5)
            if not target.pooled:
                # A copy takes as long as it takes, whatever the database has as a limit.
                await connections[name].execute("SET statement_timeout = 0")
        yield connections
