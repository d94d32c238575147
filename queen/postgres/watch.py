"""A time limit for calls, with one timer for all of them.

``asyncio.timeout`` sets and cancels a timer for each call, which was a twentieth of the cost of a small call.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Watch(Generic[T]):
    """The calls in flight that are not overdue; all have the same time limit.

    Args:
        limit_s: time limit of a call.
        overdue: called once with a call that has taken longer, which is then removed.
    """

    def __init__(self, limit_s: float, overdue: Callable[[T], None]) -> None:
        self.limit_s = limit_s
        self._overdue = overdue
        self._begun: dict[T, float] = {}  # the first is the oldest
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, call: T) -> None:
        """Adds a call."""
        loop = asyncio.get_running_loop()
        self._begun[call] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self.limit_s, self._check, loop)

    def __contains__(self, call: object) -> bool:
        return call in self._begun

    def end(self, call: T) -> None:
        """Removes a call that has ended, in time or not."""
        self._begun.pop(call, None)

    def close(self) -> None:
        """Removes all calls."""
        self._begun.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for call, begun in list(self._begun.items()):
            if begun + self.limit_s > now:
                self._timer = loop.call_at(begun + self.limit_s, self._check, loop)
                break
            del self._begun[call]
            self._overdue(call)
