"""Schedules of faults: the same from the same seed, and every kind among them."""

from typing import get_args

import msgspec
import pytest

from tests.support.chaos import faults
from tests.support.chaos.schedule import Fault, Schedule, kind_of, schedule_of

SEEDS = range(200)
#: Of these there is something to change only where there are several.
OF_THE_LIST = {"AddDatabase", "DrainDatabase"}


@pytest.mark.parametrize("databases", [1, 3])
def test_schedule_is_a_function_of_its_seed(databases: int) -> None:
    schedules = [schedule_of(seed, databases) for seed in SEEDS]
    assert [schedule_of(seed, databases) for seed in SEEDS] == schedules
    assert len({schedule.events for schedule in schedules}) == len(SEEDS)


def test_every_kind_of_fault_is_drawn_and_can_be_injected() -> None:
    every = {kind.__name__ for kind in get_args(Fault)}
    for databases, kinds in (1, every - OF_THE_LIST), (3, every):
        assert {kind_of(event.fault) for seed in SEEDS for event in schedule_of(seed, databases).events} == kinds
    assert set(faults.HOW) == set(get_args(Fault))


def test_over_several_databases_each_has_faults_and_they_are_those_of_one_beside_the_changes_of_the_list() -> None:
    schedules = [schedule_of(seed, 3) for seed in SEEDS]
    assert {event.database for schedule in schedules for event in schedule.events} == {0, 1, 2}
    for seed, schedule in zip(SEEDS, schedules, strict=True):
        alike = [event.fault for event in schedule.events if kind_of(event.fault) not in OF_THE_LIST]
        assert alike == [event.fault for event in schedule_of(seed).events]


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
        schedule = schedule_of(seed, 3)
        assert msgspec.json.decode(msgspec.json.encode(schedule), type=Schedule) == schedule
