"""Audits of SQS: each finds what was planted, alone; each field of the journal is looked at; a real run is judged."""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from spark_validation.columns import spark_table
from spark_validation.coverage import SQS_FIELDS
from spark_validation.inputs import Inputs
from spark_validation.journal.files import read_lines, write_lines
from spark_validation.journal.interface import interface_of
from spark_validation.journal.schema import AckItem, Call, Delivery, PushItem
from spark_validation.run import Result, Verdict, judge_all
from spark_validation.sqs.tables import SqsTables
from tests.audit.conftest import engine_of
from tests.support.processes import open_folder, run, serving

_S = 1_000_000
_TIMEOUT = 10.0
_MOST = 2


class Rows:
    """The journal of a correct run on a standard and a FIFO queue, each with a dead-letter queue; to be changed.

    Seconds: sends until 10, receives until 40, dead letters at 50.
    """

    def __init__(self, name: str) -> None:
        self.name, self.calls = name, list[Call]()
        for queue in "q", "q.fifo":
            self.add("configured", queue, 0, lease_seconds=_TIMEOUT, retry_limit=_MOST, group=self.of(_dead(queue)))
            self.add("configured", _dead(queue), 0, lease_seconds=_TIMEOUT)
            for number in range(1, 5):
                self.send(queue, number, number)
            self.send(queue, 9, 9, group="h")
            # A duplicate, as producers repeat what had no answer.
            self.send(queue, 2, 5, name="2" if queue == "q.fifo" else "5")
            self.receive(queue, 11, [1, 2], attempt_id="once")
            if queue == "q.fifo":
                self.receive(queue, 12, [1, 2], attempt_id="once")
            self.delete(queue, 13, 1)
            self.delete(queue, 14, 2)
            self.receive(queue, 15, [9])
            self.delete(queue, 16, 9)
            # Abandoned, and again.
            self.receive(queue, 20, [3])
            self.receive(queue, 31, [3, 4], counts=[2, 1])
            self.delete(queue, 32, 4)
            if queue == "q":
                self.receive(queue, 33, [5])
                self.delete(queue, 34, 5)
            self.receive(_dead(queue), 50, [3], counts=[3], of=queue)
            self.delete(_dead(queue), 51, 3, count=3, of=queue)
            self.add("left", queue, 60, batch=0)
            self.add("left", _dead(queue), 60, batch=0)

    def of(self, queue: str) -> str:
        return f"{self.name}.{queue}"

    def id(self, queue: str, number: int | str) -> str:
        return f"{self.name} {queue} {number}"

    def add(self, kind: Any, queue: str, at: float, **fields: Any) -> None:
        call = {"answered": int(at * _S) + _S // 2, "queue": self.of(queue), **fields}
        self.calls.append(
            Call(run="run", agent=self.name, number=len(self.calls), kind=kind, sent=int(at * _S), **call)
        )

    def send(self, queue: str, number: int, at: float, group: str = "g", name: str | None = None, **more: Any) -> None:
        fifo = queue.endswith("fifo")
        fields = {"outcome": "ok", "message_id": self.id(queue, name or number), "payload_hash": number, **more}
        item = PushItem(self.of(queue), group if fifo else "", f"{number}" if fifo else None, **fields)
        self.add("send", queue, at, pushes=(item,), outcome=item.outcome)

    def receive(
        self, queue: str, at: float, numbers: list[int], *, counts: list[int] | None = None,
        attempt_id: str | None = None, of: str | None = None, answered: float | None = None, batch: int = 10,
    ) -> None:  # fmt: skip
        source = of or queue
        got = tuple(
            Delivery(
                self.of(queue), ("h" if number == 9 else "g") if queue.endswith("fifo") else "",
                f"{number}" if queue.endswith("fifo") else "", attempt=count, created_at=number * _S,
                message_id=self.id(source, number), payload_hash=2 if number == 5 else number,
            )
            for number, count in zip(numbers, counts or [1] * len(numbers), strict=True)
        )  # fmt: skip
        more = {} if answered is None else {"answered": int(answered * _S)}
        lease = None if attempt_id is None else f"{self.name} {attempt_id}"
        self.add("receive", queue, at, deliveries=got, lease=lease, batch=batch, **more)

    def delete(self, queue: str, at: float, number: int, *, count: int = 1, of: str | None = None, **more: Any) -> None:
        fields = {"lease": f"{count}", "outcome": "ok", "message_id": self.id(of or queue, number), **more}
        item = AckItem(self.of(queue), "", fields["message_id"], **fields)
        self.add("delete", queue, at, acks=(item,), outcome=item.outcome)

    def hide(self, queue: str, at: float, number: int, seconds: float, **more: Any) -> None:
        item = AckItem(self.of(queue), "", "", message_id=self.id(queue, number), **{"outcome": "ok", **more})
        self.add("hide", queue, at, acks=(item,), lease_seconds=seconds)

    def without(self, kind: str, queue: str, number: int) -> None:
        """Removes the calls of this type that name a message."""
        named = self.id(queue, number)
        self.calls = [
            each
            for each in self.calls
            if each.kind != kind
            or named not in {item.message_id for item in (*each.pushes, *each.deliveries, *each.acks)}
        ]

    def forget(self, kind: str, queue: str) -> None:
        """Removes the calls of this type on a queue."""
        self.calls = [each for each in self.calls if (each.kind, each.queue) != (kind, self.of(queue))]

    def whole(self) -> list[Call]:
        """The rows in order, with an end."""
        rows = [msgspec.structs.replace(each, number=number) for number, each in enumerate(self.calls)]
        return [*rows, Call(run="run", agent=self.name, number=len(rows), kind="end", sent=99 * _S)]


def _dead(queue: str) -> str:
    return queue.replace("q", "dead")


def _steps(*_: None) -> None:
    """Calls one after the other, as one expression."""


Change = Callable[[Rows], None]
_LOST, _LEFT, _SENT, _AGAIN = (
    "no_sent_message_is_lost", "no_more_is_left_than_was_sent", "what_is_received_was_sent",
    "what_is_deleted_is_not_received_again",
)  # fmt: skip
_HIDDEN, _ORDER, _BESIDE, _ONCE = (
    "a_received_message_is_hidden", "a_group_is_received_in_order", "a_group_in_flight_is_not_received_by_others",
    "a_deduplication_id_has_one_message",
)  # fmt: skip
_SAME, _LETTERS = "a_repeated_receive_has_the_same_messages", "dead_letters_come_after_the_last_receive"
_MORE, _FORGOTTEN = "no_receive_has_more_than_it_wants", "a_deduplication_id_is_forgotten"


def _lengthened(rows: Rows, number: int, **hide: Any) -> None:
    """A message that is received at 40, and hidden from 41 until 101."""
    rows.send("q", number, 8)
    rows.receive("q", 40, [number])
    rows.hide("q", 41, number, 60.0, **{"lease": "1", **hide})


def _asked_for_one(rows: Rows) -> None:
    rows.calls = [
        msgspec.structs.replace(call, batch=1) if len(call.deliveries) > 1 and not call.lease else call
        for call in rows.calls
    ]


#: The audit, and what it alone must notice.
FAULTS: dict[str, tuple[str, Change]] = {
    "a message is lost": (_LOST, lambda rows: rows.send("q", 6, 10)),
    "a message of a FIFO queue is lost": (_LOST, lambda rows: rows.send("q.fifo", 6, 10)),
    "a message of a dead-letter queue is lost": (_LOST, lambda rows: rows.without("delete", "q", 3)),
    "more is left": (_LEFT, lambda rows: rows.add("left", "q", 61, batch=1)),
    "never sent": (_SENT, lambda rows: rows.receive("q", 35, [7])),
    "another body": (_SENT, lambda rows: _steps(rows.without("send", "q", 1), rows.send("q", 1, 1, payload_hash=77))),
    "another group": (
        _SENT,
        lambda rows: _steps(rows.without("send", "q.fifo", 9), rows.send("q.fifo", 9, 9, group="x")),
    ),
    "deleted and received again": (_AGAIN, lambda rows: rows.receive("q", 30, [1], counts=[2])),
    "received while hidden": (_HIDDEN, lambda rows: rows.receive("q", 22, [3], counts=[2])),
    "received at once by two": (_HIDDEN, lambda rows: rows.receive("q", 20, [3])),
    "hidden for longer by the receive": (
        _HIDDEN,
        lambda rows: _steps(
            rows.send("q", 7, 8),
            rows.add(
                "receive",
                "q",
                40,
                lease_seconds=60.0,
                deliveries=(Delivery(rows.of("q"), "", "", attempt=1, message_id=rows.id("q", 7), payload_hash=7),),
            ),
            rows.receive("q", 55, [7], counts=[2]),
            rows.delete("q", 56, 7, count=2),
        ),
    ),
    "later before earlier": (
        _ORDER,
        lambda rows: _steps(
            rows.send("q.fifo", 7, 8, group="g"),
            rows.send("q.fifo", 8, 9, group="g"),
            rows.receive("q.fifo", 44, [8]),
            rows.delete("q.fifo", 45, 8),
            rows.receive("q.fifo", 46, [7]),
            rows.delete("q.fifo", 47, 7),
        ),
    ),
    "later before earlier in one answer": (
        _ORDER,
        lambda rows: _steps(
            rows.send("q.fifo", 7, 8, group="g"),
            rows.send("q.fifo", 8, 9, group="g"),
            rows.receive("q.fifo", 44, [8, 7]),
            rows.delete("q.fifo", 45, 8),
            rows.delete("q.fifo", 47, 7),
        ),
    ),
    "beside one in flight": (
        _BESIDE,
        lambda rows: _steps(
            rows.send("q.fifo", 7, 8, group="g"),
            rows.send("q.fifo", 8, 9, group="g"),
            rows.receive("q.fifo", 44, [7]),
            rows.receive("q.fifo", 46, [8]),
            rows.delete("q.fifo", 48, 7),
            rows.delete("q.fifo", 49, 8),
        ),
    ),
    "stored twice": (_ONCE, lambda rows: rows.send("q.fifo", 9, 10, group="h", name="91")),
    "seen twice": (
        _ONCE,
        lambda rows: _steps(
            rows.send("q.fifo", 9, 10, group="h", name="9b", spooled=True),
            rows.add(
                "receive",
                "q.fifo",
                44,
                deliveries=(
                    Delivery(
                        rows.of("q.fifo"),
                        "h",
                        "9",
                        attempt=1,
                        created_at=10 * _S,
                        message_id=rows.id("q.fifo", "9b"),
                        payload_hash=9,
                    ),
                ),
            ),
            rows.delete("q.fifo", 45, 9, message_id=rows.id("q.fifo", "9b")),
        ),
    ),
    "repeated with less": (_SAME, lambda rows: rows.receive("q.fifo", 12.55, [1], attempt_id="once", answered=12.8)),
    "repeated with nothing": (_SAME, lambda rows: rows.receive("q.fifo", 12.55, [], attempt_id="once", answered=12.8)),
    "more receives than allowed": (
        _LETTERS,
        lambda rows: _steps(
            rows.without("receive", "q", 5),
            rows.receive("q", 33, [5], counts=[3]),
            rows.without("delete", "q", 5),
            rows.delete("q", 34, 5, count=3),
        ),
    ),
    "given up too early": (
        _LETTERS,
        lambda rows: _steps(
            rows.send("q", 6, 8),
            rows.receive("q", 40, [6]),
            rows.receive("dead", 51, [6], counts=[2], of="q"),
            rows.delete("dead", 52, 6, count=2, of="q"),
        ),
    ),
    "given up while it was hidden": (
        _LETTERS,
        lambda rows: _steps(
            rows.send("q", 6, 8),
            rows.receive("q", 40, [6]),
            rows.receive("dead", 44, [6], counts=[3], of="q"),
            rows.delete("dead", 45, 6, count=3, of="q"),
        ),
    ),
    "received before it was sent": (
        _SENT,
        lambda rows: _steps(rows.receive("q", 2, [6]), rows.send("q", 6, 8), rows.delete("q", 9, 6)),
    ),
    "more than asked for": (_MORE, _asked_for_one),
    "taken for a duplicate after five minutes": (_FORGOTTEN, lambda rows: rows.send("q.fifo", 9, 400, group="h")),
    "received within a lengthened timeout": (
        _HIDDEN,
        lambda rows: _steps(
            _lengthened(rows, 6), rows.receive("q", 80, [6], counts=[2]), rows.delete("q", 81, 6, count=2)
        ),
    ),
    "deleted within a lengthened timeout, and received again": (
        _AGAIN,
        lambda rows: _steps(_lengthened(rows, 6), rows.delete("q", 55, 6), rows.receive("q", 120, [6], counts=[2])),
    ),
    "deleted within a lengthened timeout, and left": (
        _LEFT,
        lambda rows: _steps(_lengthened(rows, 6), rows.delete("q", 55, 6), rows.add("left", "q", 61, batch=1)),
    ),
}


def _unanswered(rows: Rows) -> None:
    """A send without an answer may have stored its message, a deletion may have had an effect."""
    rows.send("q", 6, 8, outcome="unknown", message_id=None)
    rows.receive("q", 35, [6])
    rows.delete("q", 36, 6, outcome="unknown")
    rows.send("q", 7, 8)
    rows.delete("q", 36, 7, outcome="unknown")


def _short_again(rows: Rows) -> None:
    """Lengthened, and then shortened."""
    _lengthened(rows, 6)
    rows.hide("q", 43, 6, 0.0, lease="1")
    rows.receive("q", 45, [6], counts=[2])
    rows.delete("q", 46, 6, count=2)


def _maybe_lengthened(rows: Rows, **hide: Any) -> None:
    """By a change that may have had no effect."""
    _lengthened(rows, 6, **hide)
    rows.delete("q", 55, 6)
    rows.receive("q", 60, [6], counts=[2])
    rows.delete("q", 61, 6, count=2)


def _lengthened_too_late(rows: Rows) -> None:
    rows.send("q", 6, 8)
    rows.receive("q", 40, [6])
    rows.hide("q", 53, 6, 60.0, lease="1")
    rows.receive("q", 57, [6], counts=[2])
    rows.delete("q", 58, 6, count=2)


#: What looks like a fault and is none.
EXPLAINED: dict[str, Change] = {
    "shortened again": _short_again,
    "lengthened by an unknown handle": lambda rows: _maybe_lengthened(rows, lease=None),
    "lengthened by another handle": lambda rows: _maybe_lengthened(rows, lease="2"),
    "lengthened without an answer": lambda rows: _maybe_lengthened(rows, outcome="unknown"),
    "lengthened too late": _lengthened_too_late,
    "given up after it was made visible": lambda rows: _steps(
        rows.send("q", 6, 8),
        rows.receive("q", 40, [6], counts=[2]),
        rows.hide("q", 41, 6, 0.0, lease="2"),
        rows.receive("dead", 44, [6], counts=[3], of="q"),
        rows.delete("dead", 45, 6, count=3, of="q"),
    ),
    "sent before without an answer": lambda rows: _steps(
        rows.send("q.fifo", 6, 1, outcome="unknown", message_id=None),
        rows.receive("q.fifo", 3, [6]),
        rows.delete("q.fifo", 4, 6),
        rows.send("q.fifo", 6, 8),
    ),
    "a repetition that asks for less": lambda rows: rows.receive(
        "q.fifo", 12.55, [1, 2], attempt_id="once", answered=12.8, batch=1
    ),
    "a late duplicate": lambda rows: rows.send("q.fifo", 9, 340, group="h"),
    "a late duplicate in the spool": lambda rows: rows.send("q.fifo", 9, 400, group="h", spooled=True),
    "nothing": lambda rows: None,
    "without answers": _unanswered,
    "made visible": lambda rows: _steps(
        rows.hide("q", 20.6, 3, 0.0, lease="1"),
        rows.receive("q", 22, [3], counts=[2]),
        rows.without("receive", "q", 4),
        rows.receive("q", 31, [4]),
    ),
    "a slow receive": lambda rows: _steps(
        rows.send("q", 6, 8),
        rows.receive("q", 40, [6], answered=51),
        rows.receive("q", 41, [6], counts=[2], answered=50.5),
        rows.delete("q", 52, 6, count=2),
    ),
    "a late deletion of a standard queue": lambda rows: _steps(
        rows.send("q", 6, 8),
        rows.receive("q", 40, [6]),
        rows.delete("q", 51, 6),
        rows.receive("q", 52, [6], counts=[2]),
    ),
    "what was sent at once has no order": lambda rows: _steps(
        rows.send("q.fifo", 7, 8, group="g"),
        rows.send("q.fifo", 8, 8.2, group="g"),
        rows.receive("q.fifo", 44, [8]),
        rows.delete("q.fifo", 45, 8),
        rows.receive("q.fifo", 46, [7]),
        rows.delete("q.fifo", 47, 7),
    ),
    "a duplicate in the spool": lambda rows: rows.send("q.fifo", 9, 10, group="h", name="9b", spooled=True),
    "a deduplication id after five minutes": lambda rows: _steps(
        rows.send("q.fifo", 9, 320, group="h", name="92"),
        rows.add("left", "q.fifo", 400, batch=1),
    ),
    "a duplicate with another body": lambda rows: rows.send("q.fifo", 9, 9.6, group="x", payload_hash=77),
    "dead letters that have their own": lambda rows: _steps(
        rows.forget("configured", _dead("q")),
        rows.add("configured", _dead("q"), 0, lease_seconds=_TIMEOUT, retry_limit=5, group=rows.of("last")),
        rows.add("configured", "last", 0, lease_seconds=_TIMEOUT, retry_limit=5, group=rows.of("last")),
        rows.add("left", "last", 60, batch=0),
    ),
    "a repetition after the timeout": lambda rows: rows.receive("q.fifo", 12.2, [], attempt_id="once", answered=30),
}


@pytest.fixture(scope="module")
def found(engine_name: str, request: pytest.FixtureRequest) -> dict[str, set[str]]:
    """By run, the audits that found something in it. All are judged at once."""
    runs = []
    for name, change in {**EXPLAINED, **{name: change for name, (_, change) in FAULTS.items()}}.items():
        runs.append(Rows(name))
        change(runs[-1])
    with engine_of(request) as session:
        verdicts = judged(session, [call for each in runs for call in each.whole()])
    assert {verdict.audit for verdict in verdicts if verdict.result is Result.UNKNOWN} == set()
    names = {each.name: set[str]() for each in runs}
    for verdict in verdicts:
        for evidence in verdict.evidence:
            assert evidence.queue is not None, evidence
            names[evidence.queue.partition(".")[0]].add(verdict.audit)
    return names


def judged(spark: SparkSession, calls: list[Call], *guarantees: str) -> list[Verdict]:
    tables = SqsTables(Inputs(spark_table(spark, Call, calls).persist()))
    try:
        return judge_all(tables, guarantees, 100_000, None)
    finally:
        tables.close()


@pytest.mark.parametrize("name", EXPLAINED)
def test_what_is_right_is_not_accused(found: dict[str, set[str]], name: str) -> None:
    assert found[name] == set()


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_by_its_audit_alone(found: dict[str, set[str]], name: str) -> None:
    assert found[name] == {FAULTS[name][0]}


def test_of_an_agent_that_was_killed_nothing_is_called_lost(engine: SparkSession) -> None:
    rows = Rows("killed")
    FAULTS["a message is lost"][1](rows)
    verdicts = judged(engine, rows.whole()[:-1], "G-SQS-1")
    assert {verdict.result for verdict in verdicts} == {Result.VALID}


def _damaged() -> Iterator[tuple[str, str, Rows]]:
    """For each field that is said to be looked at, journals with a wrong value in it, each of another call."""
    for items, entries in SQS_FIELDS.items():
        for field, entry in entries.items():
            if isinstance(entry, str):
                continue
            places = itertools.count()
            for place in range(len(Rows("x").calls)):
                rows = Rows(f"{items} {field} {next(places)}")
                call = rows.calls[place]
                there = [call] if not items else [*getattr(call, items)]
                if not there:
                    continue
                if field == "*":
                    changed: Any = None if not items else there[1:]
                else:
                    changed = [_wrong(there[0], field), *there[1:]]
                if changed and not items:
                    rows.calls[place] = changed[0]
                elif items:
                    rows.calls[place] = msgspec.structs.replace(call, **{items: tuple(changed)})
                else:
                    del rows.calls[place]
                yield items, field, rows


def _wrong(row: Any, field: str) -> Any:
    value = getattr(row, field)
    if isinstance(value, bool):
        other: Any = not value
    elif field == "outcome":
        other = "fail" if value == "ok" else "ok"
    elif isinstance(value, str):
        other = "1" if field == "lease" and value != "1" else f"{value}x"
    elif isinstance(value, int | float):
        other = max(0, value + {"sent": 21 * _S, "answered": -21 * _S}.get(field, type(value)(1)))
    else:
        other = value
    return msgspec.structs.replace(row, **{field: other})


@pytest.mark.nightly
def test_a_wrong_value_in_a_field_is_noticed(engine: SparkSession) -> None:
    """In some call at least: whatever the field, one of its audits is red in some run."""
    runs = list(_damaged())
    verdicts = judged(engine, [call for *_, rows in runs for call in rows.whole()])
    red: dict[str, set[str]] = {}
    for verdict in verdicts:
        for evidence in verdict.evidence:
            run_, _, _ = (evidence.queue or "").partition(".")
            red.setdefault(run_.rpartition(" ")[0], set()).add(verdict.audit)
    unseen = {
        (items, field)
        for items, entries in SQS_FIELDS.items()
        for field, entry in entries.items()
        if not isinstance(entry, str) and not set(entry) <= red.get(f"{items} {field}", set())
    }
    assert unseen == set()


def test_every_field_has_an_entry() -> None:
    kinds = {"": Call, "pushes": PushItem, "deliveries": Delivery, "acks": AckItem}
    assert {items: set(entries) for items, entries in SQS_FIELDS.items()} == {
        items: {each.name for each in msgspec.structs.fields(kind)} - {"pushes", "deliveries", "acks"} | {"*"}
        for items, kind in kinds.items()
    }


def test_the_interface_is_that_of_the_journals(tmp_path: Path) -> None:
    assert interface_of(tmp_path, "queen") == "queen"
    write_lines(tmp_path / "a.jsonl", Rows("a").whole())
    assert interface_of(tmp_path, "queen") == "sqs"
    write_lines(tmp_path / "b.jsonl", [Call(run="r", agent="b", number=0, kind="push", sent=0)])
    assert interface_of(tmp_path, "queen") == "queen"
    (tmp_path / "b.jsonl").write_text("nonsense\n")
    assert interface_of(tmp_path, "queen") == "queen"


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_load_is_recorded_and_audited_green(tmp_path: Path) -> None:
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:
        place = tmp_path / "journal"
        done = run(
            "bench", "sqs", "--smoke", "--url", f"one=http://127.0.0.1:{server.port}/sqs", "--journal", str(place),
            "--samples", str(tmp_path / "samples.jsonl"), patience=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    samples = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    [figures] = [each["figures"] for each in samples if each.get("case") == "load, audited"]
    assert figures["sends"] > 0
    assert {name: value for name, value in figures.items() if name.startswith("violations")} == {
        f"violations of G-SQS-{number}": 0.0 for number in (1, 2, 3, 4, 5, 7)
    }
    # And as people do it, with something planted: nobody deleted what is no longer there.
    journal = place / "one"
    [path] = journal.glob("standard-*.jsonl")
    kept = [call for call in read_lines(path) if call.kind != "delete"]
    write_lines(path, [msgspec.structs.replace(call, number=number) for number, call in enumerate(kept)])
    audited = run(
        "audit", "--journal", str(journal), "--guarantee", "G-SQS-1", "--master", "local[2]", "--json", patience=600
    )
    assert audited.returncode == 1, audited.stdout + audited.stderr
    report = json.loads(audited.stdout)
    assert report["about"]["interface"] == "sqs"
    assert _LOST in {each["audit"] for each in report["verdicts"] if each["result"] == "invalid"}
    refused = run("audit", "--interface", "sqs", "--dsn", "postgresql://h/x", "--journal", str(journal))
    assert refused.returncode == 2
    assert "omit --dsn" in refused.stderr
