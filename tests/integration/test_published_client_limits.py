"""What the client `queen-mq` can ask and this server does not do, and that no method of it was forgotten."""

import ast
from pathlib import Path
from typing import Any

import pytest

from tests.support.api import Api
from tests.support.processes import ROOT, Server
from tests.support.published_client import play as play_scenario

SUPPORT = ROOT / "tests" / "support"
LIMITS = SUPPORT / "client_limits.py"

#: Families that this server has not: one answer for all of their methods (`test_families_…`).
ABSENT = {"KV", "Locks", "Ephemeral"}
#: Names that are the same method in another spelling, or need one of the absent families.
ALIASES = {"flatMap", "keyBy", "windowTumbling", "windowSliding", "windowSession", "windowCron", "from_queue"}
NEED_ABSENT = {"guard", "once", "timer"}


@pytest.fixture
def play(client_python: Path, server: Server, queue: str) -> Any:
    """Runs a scenario; its outcome."""
    return lambda scenario: play_scenario(client_python, LIMITS, scenario, server.port, queue)


async def test_families_that_this_server_has_not_are_told_as_missing_routes(play: Any) -> None:
    assert await play("families") == {
        "kv": [["KvError", 404, "http_error"]] * 3,
        "locks": [["LockError", 404, "http_error"]] * 2,
        "semaphore": ["LockError", 404, "http_error"],
        "ephemeral": [["EphemeralError", 404, "ephemeral_unsupported"]] * 4,
        "reads": [["HTTPStatusError", 404, "http_error"]] * 2,
        "raised by the client": [["NotImplementedError", None, None]] * 2,
    }


async def test_a_transaction_with_riders_is_refused_and_changes_nothing(play: Any) -> None:
    outcome = await play("riders")
    assert [status for _, status, _ in outcome["refused"]] == [400, 400]
    assert outcome["left"] == []


async def test_conflation_is_refused_loudly_and_leases_nothing(play: Any) -> None:
    outcome = await play("conflation")
    assert [outcome["popped"][1], outcome["consumed"][1]] == [400, 400]
    assert outcome["plain"] == [0, 1, 2]


async def test_binary_pushes_are_refused_and_store_nothing(play: Any) -> None:
    outcome = await play("binary")
    assert outcome["refused"][1] == 400
    assert outcome["popped"] == ["json"]


async def test_a_pop_that_asks_for_frames_gets_json(api: Api, queue: str) -> None:
    await api.push(queue, 1)
    assert (await api.pop(queue, frames=True)).data == [1]


async def test_a_supervised_consumer_goes_on_without_supervision(play: Any) -> None:
    assert await play("supervision") == {"seen": [0, 1, 2]}


async def test_every_method_of_the_client_is_used_somewhere(play: Any) -> None:
    surface = await play("surface")
    used = set()
    for script in ("client_scenarios.py", "stream_scenarios.py", "client_limits.py"):
        tree = ast.parse((SUPPORT / script).read_text(encoding="utf-8"))
        used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    missing = {
        f"{name}.{method}"
        for name, methods in surface.items()
        if name not in ABSENT
        for method in methods
        if method not in used | ALIASES | NEED_ABSENT | {"close"}
    }
    assert missing == set()
    assert len(surface["Admin"]) == 30
