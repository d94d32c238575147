"""One timer for the time limits of all calls."""

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from queen.postgres.watch import Watch

_LIMIT = 5
_STEPS = st.lists(st.tuples(st.sampled_from(["begin", "end"]), st.integers(0, 3), st.integers(0, 4)), max_size=30)


class _Loop(asyncio.SelectorEventLoop):
    """A loop whose time passes when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def time(self) -> float:
        return self.now


async def _pass(loop: _Loop, seconds: int) -> None:
    for _ in range(seconds):
        loop.now += 1
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@given(_STEPS)
def test_a_call_is_overdue_exactly_when_its_time_is_over(steps: list[tuple[str, int, int]]) -> None:
    loop = _Loop()
    told: list[int] = []
    expected: list[int] = []

    async def play() -> None:
        watch: Watch[int] = Watch(_LIMIT, told.append)
        left: dict[int, int] = {}
        for what, call, seconds in steps:
            if what == "begin" and call not in left:
                watch.begin(call)
                left[call] = _LIMIT
            elif what == "end":
                watch.end(call)
                left.pop(call, None)
            for _ in range(seconds):
                await _pass(loop, 1)
                left = {each: time - 1 for each, time in left.items()}
                over = [each for each, time in left.items() if time == 0]
                expected.extend(over)
                for each in over:
                    del left[each]
                assert told == expected
                assert [each in watch for each in range(4)] == [each in left for each in range(4)]
        watch.close()
        await _pass(loop, _LIMIT + 1)

    try:
        loop.run_until_complete(play())
    finally:
        loop.close()
    assert told == expected


def test_timers_are_not_reset_for_each_call() -> None:
    loop = _Loop()
    set_up: list[float] = []
    later = loop.call_later

    def count(delay: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        set_up.append(delay)
        return later(delay, *arguments, **options)

    async def play() -> None:
        watch: Watch[int] = Watch(_LIMIT, lambda _: None)
        for call in range(100):
            watch.begin(call)
            watch.end(call)
        watch.close()

    loop.call_later = count  # type: ignore[method-assign, assignment]
    loop.run_until_complete(play())
    loop.close()
    assert set_up == [_LIMIT]
