"""Credit: which messages a consumer holds, and how many more it may be given. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from msgspec import Struct

from queen.core.operations import Claim


class Held(Struct):
    """Messages of one partition under one lease that are not settled.

    Attributes:
        batch: the number under which they were delivered.
        offsets: which they are.
        names: offsets by the transaction ids that producers chose.
    """

    batch: int
    lease: UUID
    part_id: int
    offsets: set[int]
    names: Mapping[str, int]


class Credit:
    """What one consumer holds.

    Args:
        limit: the most messages that it may hold.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held: dict[tuple[UUID, int], Held] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def room(self) -> int:
        """How many more messages it may be given."""
        return max(0, self.limit - self._count)

    @property
    def held(self) -> Sequence[Held]:
        """Everything that it holds."""
        return list(self._held.values())

    def holds(self, lease: UUID) -> bool:
        """Whether anything under the lease is held."""
        return any(lease == held for held, _ in self._held)

    def give(self, batch: int, lease: UUID, claim: Claim, offsets: Sequence[int], names: Mapping[str, int]) -> None:
        """Messages of a claim are delivered."""
        self._held[lease, claim.part_id] = Held(batch, lease, claim.part_id, set(offsets), names)
        self._count += len(offsets)

    def of_batch(self, batch: int) -> Iterator[tuple[Held, int]]:
        """What is held of a batch, message by message, in the order of offsets."""
        for held in self.held:
            if held.batch == batch:
                yield from ((held, offset) for offset in sorted(held.offsets))

    def find(self, lease: UUID, part_id: int) -> Held | None:
        """What is held of a partition under a lease."""
        return self._held.get((lease, part_id))

    def settle(self, lease: UUID, part_id: int, offset: int) -> None:
        """A message is done, or known not to be there."""
        held = self._held.get((lease, part_id))
        if held is None or offset not in held.offsets:
            return
        held.offsets.remove(offset)
        self._count -= 1
        if not held.offsets:
            del self._held[lease, part_id]

    def end(self, lease: UUID, part_id: int | None = None) -> None:
        """The lease has ended, on one partition or on all: what was held under it is no longer."""
        for key in [key for key in self._held if key[0] == lease and part_id in (None, key[1])]:
            self._count -= len(self._held.pop(key).offsets)
