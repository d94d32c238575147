"""Windows: how the messages of a partition are cut into runs that belong together. Pure; times are the database's.

The seconds of the clock are cut into *slots* of equal length, counted from 1970. A window is a run of consecutive
messages of one slot, and of no more than so many.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: A push that was under way when a slot ended has been committed by then.
GRACE = timedelta(seconds=1)


class Slot(Struct, frozen=True):
    """A stretch of time, its end not included."""

    start: datetime
    end: datetime


class Window(Struct, frozen=True):
    """What a window is.

    Attributes:
        messages: the most that it holds; with so many it is full.
        seconds: the length of a slot; ``None``: there are no slots, and a window ends only when it is full.
    """

    messages: int
    seconds: int | None = None

    def slot_of(self, time: datetime) -> Slot | None:
        """The slot of a message by its ``createdAt``."""
        if self.seconds is None:
            return None
        length = timedelta(seconds=self.seconds)
        start = time - (time - _EPOCH) % length
        return Slot(start, start + length)


class Cut(Struct, frozen=True):
    """The first window of a run of messages.

    Attributes:
        count: its messages so far.
        slot: of its messages, if there are slots.
        is_full: it has reached the limit.
        is_over: its slot is over, so that nothing more belongs to it.
        over_at: when its slot will be taken for over, if nothing comes before.
    """

    count: int
    slot: Slot | None
    is_full: bool
    is_over: bool
    over_at: datetime | None

    @property
    def is_complete(self) -> bool:
        """Whether it may be delivered."""
        return self.is_full or self.is_over


def cut_first(window: Window, times: Sequence[datetime], now: datetime) -> Cut:
    """The first window of consecutive messages, from the ``createdAt`` of each; there is at least one.

    ``createdAt`` never falls within a partition, so a message of a later slot proves that the slot before is over.
    """
    slot = window.slot_of(times[0])
    if slot is None:
        count = min(len(times), window.messages)
        return Cut(count, None, count == window.messages, is_over=False, over_at=None)
    inside = next((place for place, time in enumerate(times) if time >= slot.end), len(times))
    count = min(inside, window.messages)
    over_at = slot.end + GRACE
    return Cut(count, slot, count == window.messages, inside < len(times) or now >= over_at, over_at)
