"""The streams of the client `queen-mq` from PyPI, unchanged, against two workers."""

from pathlib import Path
from typing import Any

import pytest

from spec.guarantees import Level, checks
from tests.support.processes import ROOT, Server
from tests.support.published_client import play as play_scenario

SCENARIOS = ROOT / "tests" / "support" / "stream_scenarios.py"


@pytest.fixture
def play(client_python: Path, server: Server, queue: str) -> Any:
    """Runs a scenario; its outcome."""
    return lambda scenario: play_scenario(client_python, SCENARIOS, scenario, server.port, queue)


def every_event_once(seen: list[Any]) -> None:
    """A thousand events in three partitions: each is in exactly one window of its partition."""
    assert sum(data["count"] for _, data in seen) == 1000
    assert sum(data["sum"] for _, data in seen) == sum(range(1000))
    for number in range(3):
        assert sum(data["count"] for partition, data in seen if partition == f"p{number}") == 334 - (number > 0)


@checks("G-STR-1", "G-STR-2", level=Level.LIVE)
async def test_windows_count_every_event_once_over_a_restart(play: Any) -> None:
    outcome = await play("windows")
    every_event_once(outcome["seen"])
    assert len(outcome["seen"]) == 30
    assert (outcome["more"], outcome["errors"]) == ([], 0)


@checks("G-STR-1", "G-STR-2", level=Level.LIVE)
async def test_windows_of_competing_workers_count_every_event_once(play: Any) -> None:
    outcome = await play("competing_windows")
    every_event_once(outcome["seen"])
    assert outcome["more"] == []


async def test_a_stateless_stream_maps_and_filters(play: Any) -> None:
    outcome = await play("stateless")
    assert sorted(data["twice"] for _, data in outcome["seen"]) == [4 * n for n in range(30)]
    assert (outcome["more"], outcome["errors"]) == ([], 0)


async def test_a_stream_of_many_partitions_has_no_errors(play: Any) -> None:
    outcome = await play("map_of_many")
    assert outcome["seen"] == list(range(5000))
    assert (outcome["more"], outcome["errors"]) == ([], 0)


@checks("G-STR-2", level=Level.LIVE)
async def test_a_runner_that_flushes_while_events_come_has_no_errors(play: Any) -> None:
    """Its flushes race with its own cycles."""
    assert await play("idle_windows") == {"sum": 3 * sum(range(60)), "more": [], "errors": 0}


async def test_sessions_end_with_a_gap(play: Any) -> None:
    assert await play("sessions") == {"counts": [3, 2], "more": []}


async def test_a_gate_lets_everything_through_in_order_and_later(play: Any) -> None:
    outcome = await play("gate")
    assert outcome["seen"] == list(range(12))
    assert outcome["denied"]["gateDenialsTotal"] > 0
    assert outcome["more"] == []


async def test_another_chain_of_operators_is_refused_until_a_reset(play: Any) -> None:
    assert await play("another_chain") == {"refused": "StreamsConfigHashMismatch"}


async def test_other_windows_keys_and_effects(play: Any) -> None:
    assert await play("operators") == {"sliding": True, "cron": True, "each": True}
