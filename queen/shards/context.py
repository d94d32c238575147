"""The context of functions of administration over all shards."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import not_
from typing import TypeVar

from queen.core.metrics import WorkerState
from queen.core.placement import SLOT_BITS, slot_of
from queen.core.statistics import ClockState
from queen.engine.context import Context, ignore_notification
from queen.shards import moves
from queen.shards.division import FIRST
from queen.shards.fan_out import ask_all
from queen.shards.homes import Homes
from queen.shards.metrics import state_of_all
from queen.shards.reads.statistics import clock_of_all
from queen.shards.reads.together import ReadsOfAll

T = TypeVar("T")


class ShardedContext(Context):
    """Reads from all shards; changes go through ``at``, ``home`` and ``everywhere``.

    What it has of one database (``database``, ``administration``, ``cache``, ``keys``) is that of the first shard.

    Args:
        contexts: of the shards, by slot.
        homes: finds partitions.
    """

    def __init__(self, contexts: Mapping[int, Context], homes: Homes) -> None:
        first = contexts[FIRST]
        super().__init__(
            first.database, first.administration, first.cache, ignore_notification, 0.0, keys=first.keys,
            counters=first.counters,
        )  # fmt: skip
        self.rules, self.database_answers = first.rules, first.database_answers
        self.reads = ReadsOfAll(self)
        self.state, self.clock, self.report = self._state, self._clock, self._report
        self._contexts, self._homes = contexts, homes

    def named(self) -> Sequence[tuple[str, Context]]:  # noqa: D102
        shards = self._homes.shards.shards
        return [(shard.name, self._contexts[shard.slot]) for shard in shards if shard.slot in self._contexts]

    def at(self, number: int) -> Context:  # noqa: D102
        return self._contexts.get(slot_of(number), self._contexts[FIRST])

    def of_partition(self, part_id: int) -> Context:  # noqa: D102
        return self._contexts.get(self._homes.moves.slot(part_id), self._contexts[FIRST])

    async def at_partition(  # noqa: D102
        self, part_id: int, work: Callable[[Context], Awaitable[T]], is_nothing: Callable[[T], bool] = not_
    ) -> T:
        known = self._homes.moves
        for _attempt in range(moves.ATTEMPTS):
            home = self.of_partition(part_id)
            result = await work(home)
            if not (known.active and is_nothing(result)) or await home.database.describe_partitions([part_id]):
                return result
            # It is not there: it was removed, is somewhere else, or is on its way.
            await self._homes.refresh_moves()
            if self.of_partition(part_id) is home and not known.is_sealed(part_id):
                return result
            await asyncio.sleep(moves.PAUSE_S)
        raise moves.moving()

    def check_settled(self, queue: str | None) -> None:  # noqa: D102
        self._homes.moves.check(queue)

    def following(self, number: int) -> int | None:  # noqa: D102
        slot = min([slot for slot in self._contexts if slot > slot_of(number)], default=None)
        return None if slot is None else slot << SLOT_BITS

    def places(self, name: str) -> Sequence[tuple[int, Context]]:  # noqa: D102
        slots = [self._homes.shards.slot(shard) for shard in self._homes.shards.candidates("", name)]
        return [(slot, self._contexts[slot]) for slot in slots if slot is not None and slot in self._contexts]

    async def home(self, queue: str, partition: str) -> Context:  # noqa: D102
        found = await self._homes.find([(queue, partition)])
        return self._contexts[found[queue, partition]]

    async def everywhere(self, work: Callable[[Context], Awaitable[T]]) -> list[T]:  # noqa: D102
        return await ask_all(self.named(), work)

    def forget_queue(self, queue: str) -> None:  # noqa: D102
        self._homes.forget_queue(queue)

    def interface(self, kind: type[T]) -> T:  # noqa: D102
        return self._contexts[FIRST].interface(kind)

    @property
    def unavailable(self) -> bool:  # noqa: D102
        return all(context.unavailable for context in self._contexts.values())

    @property
    def pop_maintenance(self) -> bool:  # noqa: D102
        return any(context.pop_maintenance for context in self._contexts.values())

    def _state(self) -> WorkerState:
        return state_of_all([context.state() for context in self._contexts.values()])

    def _clock(self) -> ClockState:
        return clock_of_all([context.clock() for context in self._contexts.values()])

    async def _report(self) -> None:
        await asyncio.gather(*[context.report() for context in self._contexts.values()])
