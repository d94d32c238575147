"""Connections shared among kinds of jobs: who gets the next one. No I/O, no clock.

The next slot goes to the kind that holds the fewest; among equals to the one that was served longest ago, so that the
turn goes round. The last free slot is for kinds that hold none: whatever the others do, a kind with nothing in flight
finds a connection, or is next in turn when one of them comes free.
"""

from collections.abc import Container, Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

#: With fewer slots than this none is kept back: it would be too large a part of them.
_SPARE_FROM = 4


class Slots(Generic[K]):
    """So many slots for these kinds."""

    def __init__(self, total: int, kinds: Iterable[K]) -> None:
        self.total = total
        self.free = total
        self._held = dict.fromkeys(kinds, 0)  # in the order in which they were last served

    def next(self, due: Container[K]) -> K | None:
        """Which of the kinds that want a slot gets the next; ``None`` if there is none for any of them."""
        wanting = [kind for kind in self._held if kind in due]
        if not wanting or not self.free:
            return None
        kind = min(wanting, key=self._held.__getitem__)
        if self._held[kind] and self.free == 1 and self.total >= _SPARE_FROM:
            return None
        return kind

    def take(self, kind: K) -> None:
        """Gives a slot to a kind, which was returned by ``next``."""
        self.free -= 1
        self._held[kind] = self._held.pop(kind) + 1

    def give_back(self, kind: K) -> None:
        """A slot of that kind is free again."""
        self.free += 1
        self._held[kind] -= 1
