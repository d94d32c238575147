"""What k6 wrote down becomes rows of a journal."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw

from queen_audit.journal.schema import Call
from queen_bench.load.journal import calls
from queen_bench.load.lines import Line

_MESSAGE = {
    "id": "m", "transactionId": "t", "partitionId": "p", "queue": "q", "partition": "a", "data": 1,
    "createdAt": "2026-11-22T00:00:00Z",
}  # fmt: skip


def told(*said: tuple[str, int, Any, Any]) -> list[Call]:
    """The journal of calls of (operation, status, request, answer)."""

    def lines() -> Iterator[Line]:
        for number, (op, status, request, answer) in enumerate(said):
            yield Line(op, 1, number, number + 1, status, request, Raw(msgspec.json.encode(answer)))

    return list(calls(lines(), "r", "k6"))


def configure(status: int, answered: Any) -> tuple[str, int, Any, Any]:
    return ("configure", status, {"queue": "q"}, answered)


def pop(**asked: Any) -> tuple[str, int, Any, Any]:
    return ("pop", 200, {"queue": "q"} | asked, {"leaseId": "l", "messages": [_MESSAGE]})


def test_a_lease_lasts_as_long_as_the_configuration_of_its_queue_says():
    """So that the audits of leases have something to judge."""
    rows = told(
        pop(), configure(200, {"options": {"leaseTime": 30}}), pop(), pop(leaseSeconds=5), configure(400, {}), pop(),
        configure(200, {"options": {"leaseTime": 0}}), pop(), configure(0, None), pop(),
    )  # fmt: skip
    assert [row.lease_seconds for row in rows if row.kind == "pop"] == [None, 30, 5, 30, 60, None]
