"""Stores spooled pushes on another database than the one in whose spool they are.

A push to a new partition goes to the spool of the database where the list of that time places it. If the list has
changed when the spool is replayed, the database refuses to make the partition, and the push is stored where it belongs
now. That database notes in the same transaction that it has the push, so an interrupted replay stores nothing twice.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from uuid import UUID, uuid5

from msgspec import structs

from queen.core.errors import DatabaseUnavailableError, TooSlowError
from queen.engine.lane_store import LaneStore
from queen.engine.replay_lanes import Batch, Lane, Unit
from queen.shards.homes import Homes
from queen.spool.format import SpooledBatch


class Rerouting:
    """Stores requests where their partitions belong.

    Args:
        homes: finds partitions.
        stores: of each shard, by slot; others may be added to it.
    """

    def __init__(self, homes: Homes, stores: Mapping[int, LaneStore]) -> None:
        self._homes, self._stores = homes, stores

    @asynccontextmanager
    async def store(self, lane: Lane, unit: Unit, limit_s: float | None) -> AsyncIterator[None]:
        """Stores a request before the block, in which its own spool notes that it is done.

        Raises:
            TooSlowError: a database of its partitions is unavailable; other partitions need not wait for it.
        """
        try:
            parts = await self._divide(unit.batches)
            positions = {slot: await self._store_on(slot, lane, unit, parts[slot], limit_s) for slot in parts}
        except DatabaseUnavailableError as problem:
            raise TooSlowError(f"The partition belongs to another database now: {problem}") from problem
        yield
        for slot, position in positions.items():
            await self._stores[slot].forget([position])

    async def _divide(self, batches: Sequence[SpooledBatch]) -> dict[int, list[SpooledBatch]]:
        """The batches by the shard of their partition."""
        keys = [(batch.queue, batch.partition) for batch in batches]
        self._homes.forget(keys)
        found = await self._homes.find(keys)
        parts: dict[int, list[SpooledBatch]] = {}
        for key, batch in zip(keys, batches, strict=True):
            parts.setdefault(found[key], []).append(batch)
        return parts

    async def _store_on(
        self, slot: int, lane: Lane, unit: Unit, batches: list[SpooledBatch], limit_s: float | None
    ) -> UUID:
        """Stores a part of a request; returns the id under which the shard notes that."""
        if lane.position is None:
            raise ValueError(f"{lane.name} has records, but no header")
        position = uuid5(lane.position, f"request {unit.number} on {slot}")
        part = structs.replace(unit, batches=batches)
        own = structs.replace(lane, position=position, units=[part])
        await self._stores[slot].store_pushes(own, Batch(0, [part]), limit_s)
        return position
