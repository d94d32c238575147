"""Windows: runs of one slot, no larger than the limit, and complete only when nothing more can belong to them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queen.log.window import GRACE, Window, cut_first
from spec.guarantees import Level, checks

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def tenths(most: int) -> st.SearchStrategy[float]:
    """Seconds with one decimal."""
    return st.integers(0, 10 * most).map(lambda number: number / 10)


times = st.lists(tenths(60), min_size=1, max_size=40).map(sorted)
windows = st.builds(Window, messages=st.integers(1, 12), seconds=st.none() | st.integers(1, 20))


def all_cuts(window: Window, stamps: list[float], now: float) -> list[list[float]]:
    """The complete windows, one after the other, and last what is left."""
    found: list[list[float]] = []
    rest = stamps
    while rest:
        cut = cut_first(window, [at(stamp) for stamp in rest], at(now))
        if not cut.is_complete:
            break
        found.append(rest[: cut.count])
        rest = rest[cut.count :]
    return [*found, rest]


@checks("G-STR-4", level=Level.MODEL)
@given(windows, times, tenths(100))
def test_windows_cut_a_partition_without_gap_and_overlap(window: Window, stamps: list[float], now: float) -> None:
    *found, rest = all_cuts(window, stamps, now)
    assert [stamp for piece in [*found, rest] for stamp in piece] == stamps
    for piece in found:
        assert 0 < len(piece) <= window.messages
        if window.seconds is not None:
            assert len({at(stamp).timestamp() // window.seconds for stamp in piece}) == 1


@checks("G-STR-4", level=Level.MODEL)
@given(windows, times, tenths(100), st.lists(tenths(60), max_size=20))
def test_later_messages_do_not_change_a_complete_window(
    window: Window, stamps: list[float], now: float, more: list[float]
) -> None:
    """As long as it comes by the clock: not before what is there, and no later than now."""
    stamps = [stamp for stamp in stamps if stamp <= now]
    later = sorted(stamp for stamp in more if now < stamp)
    if stamps:
        *before, _ = all_cuts(window, stamps, now)
        assert all_cuts(window, stamps + later, now + 60)[: len(before)] == before


def test_a_window_without_slots_is_complete_when_it_is_full() -> None:
    for count in range(1, 6):
        cut = cut_first(Window(3), [at(0)] * count, at(10**6))
        assert (cut.count, cut.is_complete, cut.slot, cut.over_at) == (min(count, 3), count >= 3, None, None)


@pytest.mark.parametrize(
    ("stamps", "now", "count", "complete", "full"),
    [
        ([1, 4], 4.5, 2, False, False),
        ([1, 4], 5.0, 2, False, False),
        ([1, 4], 6.0, 2, True, False),
        ([1, 4, 5], 5.0, 2, True, False),
        ([1, 1, 1, 1], 2.0, 3, True, True),
        ([5.0], 9.0, 1, False, False),
    ],
)
def test_a_slot_is_over_when_a_later_message_is_there_or_its_time_has_passed(
    stamps: list[float], now: float, count: int, complete: bool, full: bool
) -> None:
    cut = cut_first(Window(3, 5), [at(stamp) for stamp in stamps], at(now))
    assert (cut.count, cut.is_complete, cut.is_full) == (count, complete, full)
    assert cut.slot is not None
    assert cut.over_at == cut.slot.end + GRACE
    assert cut.slot.start <= at(stamps[0]) < cut.slot.end
