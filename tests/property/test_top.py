"""The rates of ``queen top``: of what was counted between two looks, whatever minutes they fall into."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from queen.cli.client.top import Counts, Sample, rates

_START = datetime(2026, 11, 21, 22, 0, tzinfo=UTC)


def look(seconds: int, a_second: int) -> Sample:
    """A look at a queue to which so many messages a second were pushed since ever: this minute and the one before."""
    at = _START + timedelta(seconds=seconds)
    minute = at.replace(second=0)
    full = Counts(push=60 * a_second)
    begun = Counts(push=at.second * a_second)
    return Sample(at, {("q", (minute - timedelta(minutes=1)).isoformat()): full, ("q", minute.isoformat()): begun})


@given(st.integers(0, 7200), st.integers(1, 59), st.integers(0, 1000))
def test_a_steady_rate_is_shown_as_it_is(seconds: int, apart: int, a_second: int) -> None:
    assert rates(None, look(seconds, a_second)) == {"q": Counts(push=a_second)}
    assert rates(look(seconds, a_second), look(seconds + apart, a_second)) == {"q": Counts(push=a_second)}


def test_a_queue_that_is_new_and_one_that_rests() -> None:
    minute = _START.isoformat()
    then = Sample(_START + timedelta(seconds=10), {("old", minute): Counts(5, 4, 3)})
    now = Sample(
        _START + timedelta(seconds=30), {("old", minute): Counts(5, 4, 3), ("new", minute): Counts(40, 20, 10)}
    )
    assert rates(then, now) == {"old": Counts(0, 0, 0), "new": Counts(2, 1, 0.5)}


def test_of_a_queue_that_was_not_among_the_busiest_all_counts() -> None:
    """What it had done before the earlier look is not known: its rate is that since the minute before."""
    minute = _START.isoformat()
    then = Sample(_START + timedelta(seconds=10), {("other", minute): Counts(5)}, whole=False)
    now = Sample(_START + timedelta(seconds=30), {("cut off", minute): Counts(180), ("other", minute): Counts(25)})
    assert rates(then, now) == {"cut off": Counts(2), "other": Counts(1)}
