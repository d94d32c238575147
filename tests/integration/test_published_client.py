"""The client `queen-mq` from PyPI, unchanged, against two workers."""

from pathlib import Path
from typing import Any

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.processes import ROOT, Server
from tests.support.published_client import has_client
from tests.support.published_client import play as play_scenario

SCENARIOS = ROOT / "tests" / "support" / "client_scenarios.py"


@pytest.fixture
def play(client_python: Path, server: Server, queue: str) -> Any:
    """Runs a scenario; its outcome."""
    return lambda scenario: play_scenario(client_python, SCENARIOS, scenario, server.port, queue)


def test_client_is_the_published_one(client_python: Path) -> None:
    assert has_client(client_python)


async def test_client_pushes_pops_and_acks(play: Any) -> None:
    outcome = await play("push_and_pop")
    assert outcome["statuses"] == ["queued"] * 5
    assert (outcome["main"], outcome["side"]) == ([0, 1, 2, 3, 4], [5, 6, 7])
    assert outcome["first_ack"]["success"] is True
    assert outcome["again"] == []


async def test_client_pops_a_partition_with_commit_on_delivery(play: Any) -> None:
    assert await play("pop_of_a_partition_and_commit_on_delivery") == [[0, 1], [2]]


async def test_client_that_waits_is_answered_by_a_push_or_its_timeout(play: Any) -> None:
    assert await play("pop_that_waits") == {"got": ["x"], "empty": []}


@checks("G-ORD-1", "G-ACK-2", level=Level.LIVE)
async def test_client_consumes_in_batches_everything_once_and_in_order(play: Any) -> None:
    outcome = await play("consume_batches")
    for partition in range(5):
        assert [n for p, n in outcome["seen"] if p == partition] == list(range(100))
    assert outcome["largest"] > 1
    assert outcome["left"] == 0


async def test_client_consumes_one_by_one(play: Any) -> None:
    assert await play("consume_each") == {"seen": list(range(30)), "left": 0}


@checks("G-DLQ-1", "G-DLQ-3", level=Level.LIVE)
async def test_client_whose_handler_fails_gets_the_message_limit_plus_one_times(
    play: Any, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    assert await play("consume_until_dead") == [["poison", 1], ["poison", 2], ["poison", 3], ["good", 1]]
    assert await dead_letters(database, queue) == [('"poison"', "cannot be handled", 2)]


@checks("G-DLQ-1", level=Level.LIVE)
async def test_client_that_nacks_gets_the_message_limit_plus_one_times(
    play: Any, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    assert await play("nack_until_dead") == 2
    assert await dead_letters(database, queue) == [('"poison"', "failure 2", 1)]


async def dead_letters(database: "asyncpg.Connection[Any]", queue: str) -> list[tuple[str, str, int]]:
    sql = (
        "SELECT payload::text, error, retry_count FROM queen.dead_letter_queue "
        "WHERE queue_id = (SELECT id FROM queen.queues WHERE name = $1)"
    )
    return [tuple(row) for row in await database.fetch(sql, queue)]


@checks("G-LEASE-4", level=Level.LIVE)
async def test_client_renews_its_lease(play: Any) -> None:
    assert await play("renew") == {
        "renewed": True,
        "meanwhile": [],
        "acked": True,
        "late": False,
        "unknown": False,
        "seen": [2],
        "left": [],
    }


@checks("G-TXN-1", "G-TXN-2", level=Level.LIVE)
async def test_client_transaction_happens_once(play: Any) -> None:
    outcome = await play("transact")
    assert (outcome["success"], outcome["out"], outcome["left"]) == (True, [{"from": 1}], [])
    assert outcome["second"] != "committed"


async def test_client_with_a_buffer_pushes_everything_in_order(play: Any) -> None:
    assert await play("push_buffered") == list(range(250))


@checks("G-IDEM-1", level=Level.LIVE)
async def test_client_is_told_of_duplicates(play: Any) -> None:
    outcome = await play("push_duplicates")
    assert outcome["data"] == ["first"]
    assert outcome["calls"] == [["success", ["order-1"]], ["duplicate", ["order-1"]]]


async def test_client_deletes_a_queue_before_and_after_it_exists(play: Any) -> None:
    assert await play("delete") == {"gone": [], "data": ["new"]}


async def test_client_uses_names_as_they_are(play: Any) -> None:
    outcome = await play("names")
    assert outcome == {name: [[name], True] for name in outcome}
    assert len(outcome) == 7


async def test_client_administers(play: Any) -> None:
    assert await play("administer") == {
        "overview": True, "namespaces": [1], "tasks": True, "queues": True, "queue": 4, "depth": 3,
        "partitions": ["Default"], "messages": [3, 2, 1, 0], "message": "completed", "traces": [{"text": "seen"}],
        "trace_names": True, "own_traces": 1, "status": 4, "queue_stats": 1, "queue_detail": True, "analytics": True,
        "groups": True, "group": [3], "lagging": True, "refreshed": True, "health": "healthy", "metrics": True,
        "system": True, "workers": True, "sought": 1, "again": [0, 2, 3], "timestamp": 1, "group_of_queue": 1,
        "deleted_group": True,
    }  # fmt: skip


@checks("G-DLQ-6", level=Level.LIVE)
async def test_client_looks_at_dead_letters_and_retries_one(play: Any) -> None:
    assert await play("dead_letters") == {
        "letters": [["poison", "cannot be handled"]],
        "total": 1,
        "elsewhere": 0,
        "retried": "moved",
        "rest": ["good", "poison"],
        "left": 0,
    }


async def test_client_pops_with_every_option_of_its_builder(play: Any) -> None:
    assert await play("options_of_pops") == {"label": 6, "one": 1, "two": [4, 2], "sized": [6, True], "late": []}


@checks("G-DLQ-1", level=Level.LIVE)
async def test_client_acks_by_itself_and_pages_through_dead_letters(play: Any) -> None:
    assert await play("callbacks") == {
        "calls": [["done", 0], ["done", 1], ["failed", 2, "not two"], ["done", 3]],
        "letters": [2],
        "beyond": [],
    }


async def test_client_flushes_one_buffer(play: Any) -> None:
    assert await play("buffers") == {"before": 1, "after": 0, "data": [1]}


@checks("G-TXN-1", level=Level.LIVE)
async def test_client_transaction_over_partitions(play: Any) -> None:
    assert await play("transact_partitions") == {"out": [["x", "x"], ["y", "y"]], "dead": [1]}


@checks("G-TIM-1", level=Level.LIVE)
async def test_client_sets_replaces_and_cancels_timers(play: Any) -> None:
    assert await play("timers") == {
        "first": [True, "scheduled", None], "peeked": [True, '{"n": 1}', True], "missed": False,
        "again": ["rescheduled", True, "scheduled", "rescheduled"], "listed": [["order/2"], False],
        "gone": ["cancelled", True, False, "absent", "t2"], "mixed": [[True, "scheduled"], [False, "absent"]],
        "got": [["1", False], ["{'n': 2}", True]], "left": [], "refused": [400, "bad_request"],
    }  # fmt: skip
