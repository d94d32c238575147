"""Finds the shard of a partition: where it exists, or else where the list of shards places it."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from queen.core.errors import QueenError
from queen.core.placement import ShardList
from queen.engine.context import Context
from queen.shards.moves import Moves

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
        #: Those that were not found while a shard spooled on which they may be: pushes to them are in its spool.
        self._behind: dict[Key, int] = {}
        self.moves = Moves(contexts)

    @property
    def shards(self) -> ShardList:
        """The list of shards."""
        return self._shards

    @shards.setter
    def shards(self, shards: ShardList) -> None:
        """A new list: what was not made yet may belong to another shard now, but later than what is spooled."""
        self._shards = shards
        self._behind |= {key: slot for key, slot in self._known.items() if self._spools(slot, key)}
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

    async def refresh_moves(self) -> None:
        """Learns which partitions were moved. Pushes follow those that wait in the spool of the earlier shard."""
        for move in await self.moves.refresh():
            key = move.queue, move.partition
            before = self._known.get(key)
            if before is not None and self._spools(before, key):
                self._behind[key] = before
            self.forget([key])

    async def find(self, keys: Iterable[Key], *, behind_spools: bool = False) -> dict[Key, int]:
        """The slots of the shards of partitions; for one that does not exist, of the shard where it is to be made.

        A partition that may exist on a shard that is unavailable is on that shard: a push to it is spooled there, and
        the replay finds out where it belongs (``rerouting``). With ``behind_spools`` the same holds while the shard
        spools, for the order of pushes.
        """
        slots = {key: self._known.get(key) for key in keys}
        missing = [key for key, slot in slots.items() if slot is None]
        colocated = await self._colocated() if missing else {}
        places = {key: self._places((colocated.get(key[0], key[0]), key[1])) for key in missing}
        found, silent = await self._ask({key: places[key] for key in places if len(places[key]) > 1})
        for key, candidates in places.items():
            slots[key] = self._decide(key, candidates, found.get(key), silent, behind_spools=behind_spools)
        return {key: slot for key, slot in slots.items() if slot is not None}

    def _decide(
        self, key: Key, candidates: Sequence[int], found: int | None, silent: Collection[int], *, behind_spools: bool
    ) -> int:
        """The shard of a partition, from what the candidates have answered; ``silent`` did not answer."""
        if behind_spools and found is not None and (before := self._behind.get(key)) is not None:
            if self._spools(before, key):
                return before
            del self._behind[key]
        if found is None and len(candidates) > 1:
            unsure = self._unsure(key, candidates, silent, behind_spools=behind_spools)
            if unsure is not None:
                return unsure
        slot = candidates[0] if found is None else found
        earlier = self._earlier(key, candidates, slot)
        if earlier is not None:
            return earlier if behind_spools else slot
        if slot != candidates[0]:
            self._elsewhere.add(key)
        self._remember(key, slot)
        return slot

    def _earlier(self, key: Key, candidates: Sequence[int], home: int) -> int | None:
        """An earlier home that still has pushes to a partition, of which the first made it where it belongs now.

        The newest home is none: what it has in its spool for a partition that exists elsewhere must not make it there.
        """
        for slot in candidates[1:]:
            failover = self._contexts[slot].failover
            if slot == home or failover is None:
                continue
            if key in failover.held_back or (failover.spooling and not self._contexts[slot].unavailable):
                return slot
        return None

    def _unsure(
        self, key: Key, candidates: Sequence[int], silent: Collection[int], *, behind_spools: bool
    ) -> int | None:
        """The shard that may have a partition which no other has, or has pushes to it in its spool."""
        spools = [slot for slot in candidates if behind_spools and self._spools(slot, key)]
        before = self._behind.pop(key, None)
        # The oldest: what was spooled before the list changed is there.
        oldest = next((s for s in reversed(candidates) if s in spools or (s in silent and s != candidates[0])), None)
        slot = before if before in spools else oldest
        if slot is not None and behind_spools:
            self._behind[key] = slot
            if len(self._behind) > self._limit:
                del self._behind[next(iter(self._behind))]
        return slot

    def _spools(self, slot: int, key: Key) -> bool:
        """Whether pushes to a partition go to the spool of a shard."""
        failover = self._contexts[slot].failover
        return failover is not None and (failover.spooling or key in failover.held_back)

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

    async def _ask(self, places: Mapping[Key, Sequence[int]]) -> tuple[dict[Key, int], set[int]]:
        """Where the partitions exist; and the shards that did not answer."""
        wanted: dict[int, list[Key]] = {}
        for key, candidates in places.items():
            for slot in candidates:
                wanted.setdefault(slot, []).append(key)
        answers = await asyncio.gather(*[self._exist(slot, keys) for slot, keys in wanted.items()])
        found: dict[Key, int] = {}
        silent: set[int] = set()
        for slot, answer in zip(wanted, answers, strict=True):
            if answer is None:
                silent.add(slot)
            else:
                found |= dict.fromkeys(answer, slot)
        return found, silent

    async def _exist(self, slot: int, keys: Sequence[Key]) -> list[Key] | None:
        """The partitions that exist on a shard; ``None``: it does not answer."""
        context = self._contexts[slot]
        if context.unavailable:
            return None
        try:
            rows = await context.idempotently(
                lambda: context.database.resolve_partitions(keys, create=False), retries_during_outage=False
            )
        except QueenError:
            return None
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
