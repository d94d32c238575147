"""The context of functions of administration over all shards."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from queen.core.errors import DatabaseUnavailableError
from queen.core.placement import slot_of
from queen.engine.administration import Administration
from queen.engine.context import Context, ignore_notification
from queen.shards.division import FIRST
from queen.shards.homes import Homes

T = TypeVar("T")


class ShardedContext(Context):
    """Reads from all shards; changes go through ``each``, ``at``, ``home`` and ``everywhere``.

    Args:
        contexts: of the shards, by slot.
        homes: finds partitions.
        administration: the procedures for administration over all shards.
    """

    def __init__(self, contexts: Mapping[int, Context], homes: Homes, administration: Administration) -> None:
        first = contexts[FIRST]
        super().__init__(
            first.database,
            administration,
            first.cache,
            ignore_notification,
            0.0,
            keys=first.keys,
            counters=first.counters,
        )
        self.rules = first.rules
        self._contexts, self._homes = contexts, homes

    def each(self) -> Sequence[Context]:  # noqa: D102
        return list(self._contexts.values())

    def at(self, number: int) -> Context:  # noqa: D102
        return self._contexts.get(slot_of(number), self._contexts[FIRST])

    async def home(self, queue: str, partition: str) -> Context:  # noqa: D102
        found = await self._homes.find([(queue, partition)])
        return self._contexts[found[queue, partition]]

    async def everywhere(self, work: Callable[[Context], Awaitable[T]]) -> list[T]:  # noqa: D102
        if missing := [name for name, context in self._named() if context.unavailable]:
            raise DatabaseUnavailableError(
                f"Database {missing[0]} is unavailable, and this concerns all databases: nothing was done"
            )
        return list(await asyncio.gather(*[work(context) for context in self.each()]))

    def interface(self, kind: type[T]) -> T:  # noqa: D102
        return self._contexts[FIRST].interface(kind)

    @property
    def unavailable(self) -> bool:  # noqa: D102
        return all(context.unavailable for context in self.each())

    @property
    def pop_maintenance(self) -> bool:  # noqa: D102
        return any(context.pop_maintenance for context in self.each())

    def _named(self) -> list[tuple[str, Context]]:
        shards = self._homes.shards.shards
        return [(shard.name, self._contexts[shard.slot]) for shard in shards if shard.slot in self._contexts]
