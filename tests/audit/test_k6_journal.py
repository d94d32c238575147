"""What k6 and the socket benchmark wrote down becomes rows of a journal."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from bench.load.journal import calls
from bench.load.lines import Line, read
from bench.sockets.journal import Entry, write
from spark_validation.journal.schema import Call

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


def test_a_journal_has_calls_in_the_order_in_which_they_ended_and_never_shorter_than_they_were(tmp_path: Path) -> None:
    message = {
        "id": "m", "transactionId": "m", "partitionId": "i", "queue": "q", "partition": "p", "data": 1,
        "createdAt": "2026-11-22T00:00:00Z",
    }  # fmt: skip
    ack = json.dumps({"acknowledgments": [{"transactionId": "m", "partitionId": "i", "leaseId": "l"}]}).encode()
    entries = [
        Entry("ack", 1, 2_500_000, 3_999_999, 200, ack, b'[{"success":true,"error":null}]'),
        Entry("ack", 1, 2_500_000, 4_999_999, 0, ack, b""),
        Entry("pop", 1, 1_500_000, 2_000_000, 200, b'{"queue":"q"}', json.dumps({"messages": [message]}).encode()),
    ]
    write(tmp_path / "calls.log", entries, 0)
    rows = list(calls(read(tmp_path / "calls.log"), "r", "a"))
    assert [(row.kind, row.sent, row.answered) for row in rows] == [
        ("pop", 1000, 3000), ("ack", 2000, 4000), ("ack", 2000, None),
    ]  # fmt: skip
    assert [row.acks[0].outcome for row in rows[1:]] == ["ok", "unknown"]
