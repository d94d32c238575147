"""Divides connections among kinds of jobs; each is a *slot*. No I/O, no clock.

The next slot goes to the kind that holds the fewest slots; among equals, to the one that was served longest ago. The
last free slot is for kinds that hold none. So a kind with nothing in flight finds a connection, or gets the next one,
whatever the others do.
"""

from collections.abc import Container, Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

#: With fewer slots, none is reserved: it would be too large a part of them.
_SPARE_FROM = 4


class Slots(Generic[K]):
    """A number of slots for some kinds."""

    def __init__(self, total: int, kinds: Iterable[K]) -> None:
        self.total = total
        self.free = total
        self._held = dict.fromkeys(kinds, 0)  # in the order in which they were last served

    def next(self, due: Container[K]) -> K | None:
        """The kind, of those that need a slot, that gets the next one; ``None`` if none of them gets one."""
        wanting = [kind for kind in self._held if kind in due]
        if not wanting or not self.free:
            return None
        kind = min(wanting, key=self._held.__getitem__)
        if self._held[kind] and self.free == 1 and self.total >= _SPARE_FROM:
            return None
        return kind

    def take(self, kind: K) -> None:
        """Gives a slot to the kind that ``next`` returned."""
        self.free -= 1
        self._held[kind] = self._held.pop(kind) + 1

    def give_back(self, kind: K) -> None:
        """Frees a slot of a kind."""
        self.free += 1
        self._held[kind] -= 1
