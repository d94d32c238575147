"""Schedules of faults: the same from the same seed, and every kind among them."""

from typing import get_args

import msgspec

from tests.support.chaos import faults
from tests.support.chaos.schedule import Fault, Schedule, kind_of, schedule_of

SEEDS = range(200)


def test_schedule_is_a_function_of_its_seed() -> None:
    assert [schedule_of(seed) for seed in SEEDS] == [schedule_of(seed) for seed in SEEDS]
    assert len({schedule_of(seed).events for seed in SEEDS}) == len(SEEDS)


def test_every_kind_of_fault_is_drawn_and_can_be_injected() -> None:
    drawn = {kind_of(event.fault) for seed in SEEDS for event in schedule_of(seed).events}
    assert drawn == {kind.__name__ for kind in get_args(Fault)}
    assert set(faults.HOW) == set(get_args(Fault))


def test_events_stand_in_the_order_of_their_times_and_are_told() -> None:
    for seed in SEEDS:
        schedule = schedule_of(seed)
        times = [event.at for event in schedule.events]
        assert times == sorted(times)
        assert len(schedule.text.splitlines()) == 1 + len(schedule.events)
        assert str(seed) in schedule.text


def test_fewer_events_are_the_same_ones_at_the_same_times() -> None:
    schedule = schedule_of(3)
    assert schedule.only(frozenset({0, 2})).events == (schedule.events[0], schedule.events[2])


def test_schedule_can_be_written_down() -> None:
    for seed in SEEDS:
        schedule = schedule_of(seed)
        assert msgspec.json.decode(msgspec.json.encode(schedule), type=Schedule) == schedule
