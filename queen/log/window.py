"""Windows: divide the messages of a partition into runs that are delivered together. Pure; times are the database's.

Time is divided into *slots* of equal length, counted from 1970. A window is a run of consecutive messages of one slot,
with a maximum number of messages.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: A push that was in flight when a slot ended has been committed after this time.
GRACE = timedelta(seconds=1)


class Slot(Struct, frozen=True):
    """A period; its end is not included."""

    start: datetime
    end: datetime


class Window(Struct, frozen=True):
    """The definition of a window.

    Attributes:
        messages: maximum of its messages; with this many it is full.
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
        count: the number of its messages so far.
        slot: the slot of its messages, if there are slots.
        is_full: it has the maximum of messages.
        is_over: its slot has ended, so no further message belongs to it.
        over_at: when its slot counts as ended, unless a later message arrives before.
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

    ``createdAt`` never falls within a partition, so a message of a later slot proves that the slot before has ended.
    """
    slot = window.slot_of(times[0])
    if slot is None:
        count = min(len(times), window.messages)
        return Cut(count, None, count == window.messages, is_over=False, over_at=None)
    inside = next((place for place, time in enumerate(times) if time >= slot.end), len(times))
    count = min(inside, window.messages)
    over_at = slot.end + GRACE
    return Cut(count, slot, count == window.messages, inside < len(times) or now >= over_at, over_at)
