"""``queen verify`` on servers that are late: those that keep their promises are not accused, those that do not are.

In short: `tox -e conformance-late` runs it twenty times on each.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from spec.conformance import lab, run
from spec.conformance.broker import Broker
from spec.conformance.lab import MissingError, RefutedError, expect_equal
from spec.history import Pop, Push
from tests.conformance.test_verify import run_alone
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.support.late import LATE, SHOWS_LATE, showing_late
from tests.support.nightly import mostly_at_night
from tests.support.verifying import verify


@pytest.mark.parametrize("kind", mostly_at_night(LATE, [*LATE][:1]))
def test_a_server_that_is_late_is_not_accused(kind: str) -> None:
    with LATE[kind]() as url:
        result = verify(url, "--profile=quick", "--seed=7", "--json")
    rows = json.loads(result.stdout)["rows"]
    assert not [row for row in rows if row["result"] == "invalid"]
    assert sum(row["result"] == "valid" for row in rows) > 0.9 * len(rows), result.stdout


NOTHING = Pop(invoked=0, completed=0, queue="queue")


class Silent(Broker):
    """A server that takes everything and shows nothing."""

    async def push(self, items: Any) -> Push:
        return Push(invoked=0, completed=0, items=tuple(items))

    async def pop(self, *_arguments: Any, **_options: Any) -> Pop:
        return NOTHING


#: Each adds something that is shown late, too, so that a look at once would not find it.
HIDDEN = {
    "a lease is not exclusive": "a leased partition gives nothing to others",
    "no dedupe at all": "a repeated push stores nothing and names the first message",
    "what can happen of a transaction happens, as in two commits": "a transaction that fails leaves nothing",
}


@pytest.mark.parametrize("name", mostly_at_night(HIDDEN, ["no dedupe at all"]))
def test_what_a_server_shows_late_refutes_it_all_the_same(name: str) -> None:
    [mutant] = [each for each in MUTANTS if each.name == name]
    both = Mutant(mutant.guarantee, name, (*SHOWS_LATE.edits, *mutant.edits))
    with showing_late(both) as url:
        report = run(url, seed=7, profile="quick", only=[mutant.guarantee], fail_fast=True)
    assert "invalid" in {row.result for row in report.rows if row.check == HIDDEN[name]}


@pytest.mark.parametrize(
    ("got", "problem"), [([], MissingError), ([1, 3], MissingError), ([3, 1], RefutedError), ([1, 4], RefutedError)]
)
def test_what_is_missing_is_told_from_what_is_wrong(got: list[object], problem: type[Exception]) -> None:
    with pytest.raises(RefutedError) as raised:
        expect_equal(got, [1, 2, 3], "it")
    assert raised.type is problem


@pytest.mark.parametrize(("missing", "result"), [(1, "valid"), (9, "invalid")])
def test_what_is_missing_is_looked_for_once_more(monkeypatch: Any, missing: int, result: str) -> None:
    attempts: list[float] = []

    async def misses(lab: Any) -> None:
        attempts.append(lab.settle_s)
        expect_equal([] if len(attempts) <= missing else [1], [1], "what was pushed")

    assert run_alone(monkeypatch, misses).result == result
    assert len(attempts) == 2
    assert attempts[0] == 0 < attempts[1]


@pytest.mark.parametrize("step", ["take", "shown", "contents", "transact", "ack"])
def test_a_step_that_prepares_something_accuses_nobody(monkeypatch: Any, step: str) -> None:
    steps: dict[str, Callable[[Any], Any]] = {
        "take": lambda place: place.take("queue", 1),
        "shown": lambda place: place.shown("queue", 1),
        "contents": lambda place: place.contents("queue"),
        "transact": lambda place: place.transact(NOTHING),
        "ack": lambda place: place.ack(NOTHING),
    }

    monkeypatch.setattr(lab, "_PATIENCE_S", 0)

    async def prepares(place: Any) -> None:
        place.broker = Silent(place.broker.server)
        await steps[step](place)

    assert run_alone(monkeypatch, prepares).result == "unknown"
