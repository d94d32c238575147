"""Finds the shard of a partition: where it exists, or else where the list of shards places it."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from queen.core.errors import DatabaseUnavailableError, QueenError
from queen.core.placement import ShardList
from queen.engine.context import Context

#: A partition by queue and name.
Key = tuple[str, str]


class Homes:
    """The shards of partitions, for one worker; bounded by ``limit`` entries.

    Args:
        shards: the list of shards.
        contexts: what asks each shard, by its slot; a shard that is retired has none. Shards may be added to it.
        limit: the most partitions that are remembered.
    """

    def __init__(self, shards: ShardList, contexts: Mapping[int, Context], limit: int) -> None:
        self._shards = shards
        self._contexts = contexts
        self._limit = limit
        self._known: dict[Key, int] = {}
        #: Those that would be made on another shard now.
        self._elsewhere: set[Key] = set()

    @property
    def shards(self) -> ShardList:
        """The list of shards."""
        return self._shards

    @shards.setter
    def shards(self, shards: ShardList) -> None:
        """A new list: what was not made yet may belong to another shard now."""
        self._shards = shards
        self._known.clear()
        self._elsewhere.clear()

    def known(self, key: Key) -> int | None:
        """The slot of the shard of a partition, if it is remembered."""
        return self._known.get(key)

    def known_of(self, keys: Iterable[Key]) -> list[int] | None:
        """The slots of the shards of partitions; ``None`` if one is not remembered."""
        known, slots = self._known, []
        for key in keys:
            slot = known.get(key)
            if slot is None:
                return None
            slots.append(slot)
        return slots

    def trusted(self, key: Key) -> int | None:
        """The same, unless the partition may have been removed, and made again where it belongs now."""
        slot = self._known.get(key)
        if key in self._elsewhere and slot is not None and self._contexts[slot].cache.known_partition(*key) is None:
            self.forget([key])
            return None
        return slot

    def forget(self, keys: Iterable[Key]) -> None:
        """Forgets partitions: their queue was deleted, or the list of shards has changed."""
        for key in keys:
            self._known.pop(key, None)
            self._elsewhere.discard(key)

    def forget_queue(self, queue: str) -> None:
        """Forgets the partitions of a deleted queue. Other workers learn of it when they push: see ``misplaced``."""
        self.forget([key for key in self._known if key[0] == queue])

    async def find(self, keys: Iterable[Key]) -> dict[Key, int]:
        """The slots of the shards of partitions; for one that does not exist, of the shard where it is to be made.

        Raises:
            DatabaseUnavailableError: a partition may exist on a shard that is unavailable, or else belongs on another.
        """
        slots = {key: self._known.get(key) for key in keys}
        missing = [key for key, slot in slots.items() if slot is None]
        colocated = await self._colocated() if missing else {}
        places = {key: self._places((colocated.get(key[0], key[0]), key[1])) for key in missing}
        found, silent = await self._ask({key: places[key] for key in places if len(places[key]) > 1})
        for key, candidates in places.items():
            slots[key] = self._decide(key, candidates, found.get(key), silent)
        return {key: slot for key, slot in slots.items() if slot is not None}

    def _decide(self, key: Key, candidates: Sequence[int], found: int | None, silent: Mapping[int, QueenError]) -> int:
        """The shard of a partition, from what the candidates have answered."""
        if found is None and (unsure := silent.keys() & set(candidates[1:])):
            raise silent[min(unsure)]
        slot = candidates[0] if found is None else found
        if slot != candidates[0]:
            self._elsewhere.add(key)
        self._remember(key, slot)
        return slot

    async def _colocated(self) -> Mapping[str, str]:
        """The queues that follow others, as the first database that answers knows them."""
        for context in self._contexts.values():
            if not context.unavailable:
                with suppress(QueenError):
                    return (await context.cache.push_options()).colocated
        return {}

    def _places(self, key: Key) -> list[int]:
        """The slots of the shards where a partition may live, that of a new one first."""
        slots = [self.shards.slot(name) for name in self.shards.candidates(*key)]
        return [slot for slot in slots if slot is not None and slot in self._contexts]

    async def _ask(self, places: Mapping[Key, Sequence[int]]) -> tuple[dict[Key, int], dict[int, QueenError]]:
        """Where the partitions exist; and the shards that did not answer, with their errors."""
        wanted: dict[int, list[Key]] = {}
        for key, candidates in places.items():
            for slot in candidates:
                wanted.setdefault(slot, []).append(key)
        answers = await asyncio.gather(*[self._exist(slot, keys) for slot, keys in wanted.items()])
        found: dict[Key, int] = {}
        silent: dict[int, QueenError] = {}
        for slot, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, QueenError):
                silent[slot] = answer
            else:
                found |= dict.fromkeys(answer, slot)
        return found, silent

    async def _exist(self, slot: int, keys: Sequence[Key]) -> list[Key] | QueenError:
        """The partitions that exist on a shard, or its error."""
        context = self._contexts[slot]
        if context.unavailable:
            return DatabaseUnavailableError(
                f"Database {self.name(slot)} is unavailable, and the partition may be there"
            )
        try:
            rows = await context.idempotently(
                lambda: context.database.resolve_partitions(keys, create=False), retries_during_outage=False
            )
        except QueenError as problem:
            return problem
        return [key for key, (_, part_id) in zip(keys, rows, strict=True) if part_id is not None]

    def available(self) -> list[int]:
        """The shards that are not known to be unavailable."""
        return [slot for slot, context in self._contexts.items() if not context.unavailable]

    def name(self, slot: int) -> str:
        """The name of a shard."""
        return self._shards.shards[slot].name

    def _remember(self, key: Key, slot: int) -> None:
        self._known[key] = slot
        if len(self._known) > self._limit:
            self.forget([next(iter(self._known))])
