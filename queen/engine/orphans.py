"""Leases that no consumer holds: a call may have taken them, and its answer was lost. No I/O."""

from collections import deque
from collections.abc import Iterable
from uuid import UUID

from msgspec import Struct

#: The newest ones are kept; the others end at their time.
_KEPT = 10_000


class Orphan(Struct, frozen=True):
    """A lease, and the queue and group that it keeps messages from."""

    lease: UUID
    queue: str
    group: str


class Orphans:
    """The leases that are to be released."""

    def __init__(self) -> None:
        self._kept: deque[Orphan] = deque(maxlen=_KEPT)

    def __bool__(self) -> bool:
        return bool(self._kept)

    def add(self, orphans: Iterable[Orphan]) -> None:
        """Adds leases."""
        self._kept.extend(orphans)

    def take(self) -> list[Orphan]:
        """Removes and returns all leases."""
        taken = list(self._kept)
        self._kept.clear()
        return taken
