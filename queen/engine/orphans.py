"""Leases that nobody holds: a call may have given them, and its answer was lost. No I/O."""

from collections import deque
from collections.abc import Iterable
from uuid import UUID

from msgspec import Struct

#: The newest ones are kept; others end with their time.
_KEPT = 10_000


class Orphan(Struct, frozen=True):
    """A lease, and whom it keeps from messages."""

    lease: UUID
    queue: str
    group: str


class Orphans:
    """Those that are to be given back."""

    def __init__(self) -> None:
        self._kept: deque[Orphan] = deque(maxlen=_KEPT)

    def __bool__(self) -> bool:
        return bool(self._kept)

    def add(self, orphans: Iterable[Orphan]) -> None:
        """Keeps them until they are taken."""
        self._kept.extend(orphans)

    def take(self) -> list[Orphan]:
        """All of them; they are no longer kept."""
        taken = list(self._kept)
        self._kept.clear()
        return taken
