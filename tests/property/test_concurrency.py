"""Vegas against a synthetic database with a knee: it finds the knee, and finds it again when it has moved."""

import random
from statistics import median

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bench.knee import Knee, simulate
from queen.core.concurrency import Static, Vegas, VegasSettings

SETTINGS = VegasSettings(refresh_s=5)
#: A failing simulation is replayed from its seed; shrinking it would run hundreds of them.
simulations = settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.generate])
#: How far from the best the limit may be.
WITHIN = 0.2


def settled(trace: list[tuple[float, int]], begin: float, end: float) -> float:
    """The limit of most of a span of time."""
    return median(limit for now, limit in trace if begin <= now < end)


def is_near(limit: float, knee: int) -> bool:
    """Within a fifth, or within the one call that a whole number may be off."""
    return abs(limit - knee) <= max(1, WITHIN * knee)


@simulations
@given(knee=st.integers(2, 40), base_ms=st.floats(5, 40), seed=st.integers(0, 10**6))
def test_vegas_finds_the_knee(knee: int, base_ms: float, seed: int) -> None:
    trace = simulate(Vegas(64, SETTINGS), Knee(knee, base_ms, 0.2), 40, seed)
    assert is_near(settled(trace, 25, 40), knee), settled(trace, 25, 40)


@simulations
@given(knees=st.tuples(st.integers(4, 32), st.integers(4, 32)), seed=st.integers(0, 10**6))
def test_vegas_returns_after_the_knee_has_moved(knees: tuple[int, int], seed: int) -> None:
    before, after = knees
    database = Knee(before, 20.0, 0.2)

    def move(now: float) -> None:
        database.knee = before if now < 30 else after

    trace = simulate(Vegas(64, SETTINGS), database, 70, seed, move)
    assert is_near(settled(trace, 20, 30), before), settled(trace, 20, 30)
    assert is_near(settled(trace, 55, 70), after), settled(trace, 55, 70)


@simulations
@given(seed=st.integers(0, 10**6), factor=st.sampled_from((0.25, 0.5, 2, 4)))
def test_a_database_that_became_slower_for_good_is_not_taken_for_a_queue(seed: int, factor: float) -> None:
    database = Knee(16, 20.0, 0.2)

    def change(now: float) -> None:
        database.base_ms = 20.0 if now < 20 else 20.0 * factor

    trace = simulate(Vegas(64, SETTINGS), database, 80, seed, change)
    assert is_near(settled(trace, 60, 80), 16), settled(trace, 60, 80)


@simulations
@given(seed=st.integers(0, 10**6))
def test_large_batches_are_not_taken_for_a_queue(seed: int) -> None:
    def size(choice: random.Random) -> int:
        return choice.choice((1, 8, 50, 500))

    trace = simulate(Vegas(64, SETTINGS), Knee(12, 20.0, 0.2), 60, seed, size=size)
    assert is_near(settled(trace, 40, 60), 12), settled(trace, 40, 60)


@given(
    cap=st.integers(1, 50),
    floor=st.integers(1, 50),
    samples=st.lists(
        st.tuples(st.floats(0, 1000), st.integers(1, 1000), st.integers(1, 60), st.floats(0, 5)), max_size=300
    ),
)
def test_the_limit_stays_between_floor_and_cap(
    cap: int, floor: int, samples: list[tuple[float, int, int, float]]
) -> None:
    vegas, now = Vegas(cap, VegasSettings(floor=floor, window=3, refresh_s=7)), 0.0
    for rtt_ms, size, in_flight, passed in samples:
        now += passed
        vegas.sample(rtt_ms, size, in_flight, now)
        assert min(floor, cap) <= vegas.limit <= cap


def test_an_unused_limit_does_not_grow() -> None:
    vegas = Vegas(64, SETTINGS)
    first = vegas.limit
    for number in range(1000):
        vegas.sample(5.0, 1, 1, number / 100)
    assert vegas.limit == first


@pytest.mark.parametrize("cap", [1, 7])
def test_static_is_its_cap_and_remembers_times(cap: int) -> None:
    static = Static(cap)
    assert (static.limit, static.rtt_ms) == (cap, None)
    for _ in range(200):
        static.sample(8.0, 1, 1, 0.0)
    assert (static.limit, static.rtt_ms) == (cap, pytest.approx(8.0))
