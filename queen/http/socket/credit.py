"""Credit: which messages a WebSocket consumer has in flight, and how many more it may get. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from msgspec import Struct

from queen.log.requests import Claim


class Held(Struct):
    """Messages of one partition in flight under one lease.

    Attributes:
        batch: the number of their delivery.
        offsets: their offsets.
        names: offsets by transaction id, if the producer chose one.
    """

    batch: int
    lease: UUID
    part_id: int
    offsets: set[int]
    names: Mapping[str, int]


class Credit:
    """What one consumer has in flight.

    Args:
        limit: maximum of messages in flight.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held: dict[tuple[UUID, int], Held] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def room(self) -> int:
        """How many more messages it may get."""
        return max(0, self.limit - self._count)

    @property
    def held(self) -> Sequence[Held]:
        """All batches in flight."""
        return list(self._held.values())

    def holds(self, lease: UUID) -> bool:
        """Whether any message under the lease is in flight."""
        return any(lease == held for held, _ in self._held)

    def give(self, batch: int, lease: UUID, claim: Claim, offsets: Sequence[int], names: Mapping[str, int]) -> None:
        """Adds delivered messages."""
        self._held[lease, claim.part_id] = Held(batch, lease, claim.part_id, set(offsets), names)
        self._count += len(offsets)

    def of_batch(self, batch: int) -> Iterator[tuple[Held, int]]:
        """The messages of a batch that are in flight, one by one, in the order of their offsets."""
        for held in self.held:
            if held.batch == batch:
                yield from ((held, offset) for offset in sorted(held.offsets))

    def find(self, lease: UUID, part_id: int) -> Held | None:
        """The messages of a partition that are in flight under a lease."""
        return self._held.get((lease, part_id))

    def settle(self, lease: UUID, part_id: int, offset: int) -> None:
        """Removes a message that is done, or does not exist."""
        held = self._held.get((lease, part_id))
        if held is None or offset not in held.offsets:
            return
        held.offsets.remove(offset)
        self._count -= 1
        if not held.offsets:
            del self._held[lease, part_id]

    def end(self, lease: UUID, part_id: int | None = None) -> None:
        """Removes everything under a lease that has ended, on one partition or on all."""
        for key in [key for key in self._held if key[0] == lease and part_id in (None, key[1])]:
            self._count -= len(self._held.pop(key).offsets)
