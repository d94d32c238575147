"""Moves timers that are due (``sql/procedures/timers``) into the log: in the order of their times, once each."""

import math
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from queen.engine.context import Context
from queen.engine.handlers.push import announce
from queen.engine.mover import BYTES_MAX, MESSAGES_MAX, UNUSED_PAUSE_MS, append, push_of
from queen.engine.ports import TimersDatabase

#: A read begins so long before the last timer that was moved: one that was accepted late may be due before it.
_MARGIN = timedelta(seconds=0.5)
#: A read of everything that is due comes each second, or after so many times as long as the last one took.
_WHOLE_S, _WHOLE_SHARE = 1.0, 20


class Timers:
    """Timers as a source of ``queen.engine.mover``.

    Args:
        context: of the engine.
        database: the procedures.
        clock: monotonic, in seconds.

    Attributes:
        due_in_s: seconds until the next timer is due, if that is soon.
    """

    def __init__(self, context: Context, database: TimersDatabase, clock: Callable[[], float] = time.monotonic) -> None:
        self._context, self._database, self._clock = context, database, clock
        self._since: datetime | None = None
        self._whole_at = -math.inf
        self._most = MESSAGES_MAX
        self.due_in_s = math.inf

    async def start(self) -> None:
        """Makes the next read look at all that is due."""
        self._whole_at = -math.inf

    async def move(self) -> int:
        """Moves the next timers; returns their number."""
        began = self._clock()
        whole = began >= self._whole_at
        since = None if whole else self._since
        read = await self._database.read(since, self._most, BYTES_MAX, UNUSED_PAUSE_MS / 1000)
        if whole:
            ended = self._clock()
            self._whole_at = ended + max(_WHOLE_S, _WHOLE_SHARE * (ended - began))
        self.due_in_s = math.inf if read.due_in_s is None else read.due_in_s
        if not read.messages:
            return 0
        push = push_of(read.messages)
        if not await append(self._context, push, partial(self._database.move, read.messages)):
            # One of them is being changed or cancelled. If many are, fewer at once get through.
            self._most = max(self._most // 2, 1)
            return 0
        self._most = MESSAGES_MAX
        self._since = read.messages[-1].deliver_at - _MARGIN
        announce(self._context, [push])
        return len(read.messages)
