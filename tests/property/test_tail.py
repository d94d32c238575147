"""``queen tail`` shows each message once, in the order of its partition, though pushes become visible late."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from queen.cli.client.tail import OVERLAP, Follower, Message, Seen

_START = datetime(2026, 11, 21, tzinfo=UTC)
_LATE_MS = int(OVERLAP / timedelta(milliseconds=1)) - 1


def at(milliseconds: int) -> str:
    return (_START + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, Seen]]:
    """Messages, each with the millisecond in which it becomes visible: in a partition in the order of its offsets."""
    log = []
    for partition in range(draw(st.integers(1, 3))):
        created = visible = 0
        for offset in range(draw(st.integers(0, 12))):
            created += draw(st.integers(0, 4000))
            visible = max(visible, created + draw(st.integers(0, _LATE_MS)))
            # A message of a partition gets its time only when the one before is visible.
            created = max(created, visible - _LATE_MS)
            name = f"{partition:04}-{offset:04}"
            log.append((visible, Seen(Raw(b"{}"), Message(name, name, str(partition), at(created), Raw(b"1")))))
    return log


@given(logs(), st.lists(st.integers(1, 10_000), max_size=20))
def test_each_message_is_shown_once_and_in_order(log: list[tuple[int, Seen]], pauses: list[int]) -> None:
    follower, now, shown = Follower(), 0, []
    for pause in [*pauses, 1_000_000]:
        now += pause
        since = datetime.fromisoformat(follower.since)
        listed = [
            each for visible, each in log if visible <= now and datetime.fromisoformat(each.message.created_at) >= since
        ]
        shown += [each.message.id for each in follower.new(listed)]
    assert sorted(shown) == sorted(each.message.id for _, each in log)
    for partition in {name[:4] for name in shown}:
        own = [name for name in shown if name.startswith(partition)]
        assert own == sorted(own)


def test_before_anything_is_there_all_of_time_is_looked_at() -> None:
    follower = Follower()
    assert follower.new([]) == []
    assert follower.since == "1970-01-01T00:00:00Z"
