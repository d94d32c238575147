"""A limit of time for calls, with one timer for all of them.

``asyncio.timeout`` sets and takes back a timer for each call, which was a twentieth of what a small call costs.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Watch(Generic[T]):
    """Calls that are under way, and not overdue; each has the same time.

    Args:
        limit_s: how long a call may take.
        overdue: called with one that has taken longer, once, and then it is forgotten.
    """

    def __init__(self, limit_s: float, overdue: Callable[[T], None]) -> None:
        self.limit_s = limit_s
        self._overdue = overdue
        self._begun: dict[T, float] = {}  # the first is the oldest
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, call: T) -> None:
        """A call begins, which is not under way yet."""
        loop = asyncio.get_running_loop()
        self._begun[call] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self.limit_s, self._look, loop)

    def __contains__(self, call: object) -> bool:
        return call in self._begun

    def end(self, call: T) -> None:
        """A call has ended, in time or not."""
        self._begun.pop(call, None)

    def close(self) -> None:
        """Nobody is watched any more."""
        self._begun.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for call, begun in list(self._begun.items()):
            if begun + self.limit_s > now:
                self._timer = loop.call_at(begun + self.limit_s, self._look, loop)
                break
            del self._begun[call]
            self._overdue(call)
