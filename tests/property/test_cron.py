"""Times of cron expressions: forwards and backwards they are the same, also where a time zone changes."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queen.core import cron
from spec.guarantees import Level, checks

_EXPRESSIONS = ("* * * * *", "*/7 * * * *", "30 2 * * *", "0 * * * *", "0 0 1 * *", "15 1-3 * * SUN", "59 23 L * *")
_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
_MOMENTS = st.integers(1_767_225_600, 1_830_297_600).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))


def forwards(expression: str, zone: str, since: datetime, now: datetime) -> list[datetime]:
    found: list[datetime] = []
    at = cron.next_after(expression, zone, since)
    while at is not None and at <= now:
        found.append(at)
        at = cron.next_after(expression, zone, at)
    return found


@checks("G-TIM-3", level=Level.MODEL)
@given(
    expression=st.sampled_from(_EXPRESSIONS), zone=st.sampled_from(_ZONES), since=_MOMENTS,
    seconds=st.integers(0, 10 * 86400), catch_up=st.integers(0, 20),
)  # fmt: skip
def test_what_fires_are_the_last_missed_times_and_those_of_the_last_minute(
    expression: str, zone: str, since: datetime, seconds: int, catch_up: int
) -> None:
    now = since + timedelta(seconds=seconds)
    after = max(since, now - timedelta(days=1)) if expression.startswith("*") else since
    times = forwards(expression, zone, after, now)
    missed = [at for at in times if at < now - cron.MISSED]
    expected = missed[len(missed) - min(catch_up, len(missed)) :] + times[len(missed) :]
    assert cron.due(expression, zone, after, now, catch_up) == expected


@checks("G-TIM-3", level=Level.MODEL)
def test_an_hour_that_comes_twice_or_not_at_all() -> None:
    for day, expected in (("2026-03-29", ["01:00"]), ("2026-10-25", ["00:30"])):
        begin = datetime.fromisoformat(f"{day}T00:00+00:00")
        times = cron.due("30 2 * * *", "Europe/Berlin", begin, begin + timedelta(hours=12), 10)
        assert [at.strftime("%H:%M") for at in times] == expected


@checks("G-TIM-3", level=Level.MODEL)
@pytest.mark.parametrize(("expression", "number"), [("* * * * *", 599), ("0 * * * *", 10), ("*/30 2 * * *", 4)])
def test_a_server_that_looks_each_minute_fires_all_times_of_an_hour_that_comes_twice(
    expression: str, number: int
) -> None:
    begin = datetime(2026, 10, 24, 20, 1, tzinfo=UTC)
    looks = [begin + timedelta(minutes=minute) for minute in range(600)]
    fired = [at for one, other in pairwise(looks) for at in cron.due(expression, "Europe/Berlin", one, other, 0)]
    assert (len(fired), len(set(fired))) == (number, number)


def test_a_long_outage_costs_no_more_than_what_fires() -> None:
    begin = datetime(2000, 1, 1, tzinfo=UTC)
    times = cron.due("* * * * *", "UTC", begin, datetime(2030, 1, 1, tzinfo=UTC), 2)
    assert len(times) == 4


@pytest.mark.parametrize(
    ("expression", "zone", "problem"),
    [
        ("* * * *", "UTC", "a cron expression has five fields, not 4"),
        ("* * * * * *", "UTC", "a cron expression has five fields, not 6"),
        ("@daily", "UTC", "a cron expression has five fields, not 1"),
        ("61 * * * *", "UTC", "not a cron expression: Bad minute"),
        ("0 0 31 2 *", "UTC", "not a cron expression: Bad day-of-month"),
        ("* * * * *", "Mars/Olympus", "unknown time zone: 'Mars/Olympus'"),
        ("* * * * *", "../etc/passwd", "unknown time zone: '../etc/passwd'"),
        ("* * * * *", "localtime", "unknown time zone: 'localtime'"),
        ("* * * * *", "", "unknown time zone: ''"),
        ("* * * * *", "UTC\0", "unknown time zone: 'UTC\\x00'"),
        ("0 0 29 2 *", "UTC", None),
        ("0 9 * * MON-FRI", "Europe/Berlin", None),
    ],
)
def test_what_is_no_expression_is_named(expression: str, zone: str, problem: str | None) -> None:
    assert cron.problem_of(expression, zone) == problem
