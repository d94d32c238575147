"""Audits of simple-mq: each finds what was planted, alone, as its checker does; and a real run under its snapshot."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from spark_validation.columns import spark_table
from spark_validation.dialect import read_parquet
from spark_validation.inputs import Inputs
from spark_validation.journal.files import open_journal
from spark_validation.journal.schema import AckItem, Call, Delivery
from spark_validation.log.snapshot import Snapshot
from spark_validation.run import Result, Verdict, judge_all
from spark_validation.simple_mq.history import to_calls, to_stored
from spark_validation.simple_mq.stored import Stored, StoredMessage, StoredQueue, read
from spark_validation.simple_mq.tables import SimpleMqTables
from spec.simple_mq_history import Ack, Enqueue, Left, Poll, SimpleMqHistory
from tests.audit.conftest import engine_of
from tests.property.test_simple_mq_checkers import FAULTS, GOOD
from tests.support.processes import open_folder, run, serving

#: The audits by what the specification calls its checkers.
AUDITS = {
    "given_to_one_at_a_time": "a_message_is_given_to_one_at_a_time",
    "delivery_counts_rise": "delivery_counts_rise_by_one",
    "nothing_is_lost": "nothing_is_lost",
    "nothing_comes_from_nowhere": "what_is_given_was_sent",
    "acked_is_gone": "what_is_acked_is_gone",
    "counts_are_exact": "the_count_is_that_of_the_messages",
}


class Rows:
    """Rows of journals and of the database of one run, to be changed."""

    def __init__(self, name: str, history: SimpleMqHistory) -> None:
        named = _renamed(history, name)
        self.name = name
        self.calls = list(to_calls(named, agent=name))
        self.queues, self.messages = to_stored(named)

    def change(self, queue: str = "q", **fields: Any) -> None:
        """Other values of a stored queue."""
        self.queues = [_with(each, fields) if each.queue == f"{self.name}.{queue}" else each for each in self.queues]

    def change_message(self, id_: str, **fields: Any) -> None:
        """Other values of a stored message."""
        self.messages = [
            _with(each, fields) if each.message_id == f"{self.name}.{id_}" else each for each in self.messages
        ]

    def add(self, call: Call) -> None:
        """One more row, before the end."""
        end = self.calls.pop()
        self.calls += [_with(call, {"number": end.number}), _with(end, {"number": end.number + 1})]


def _with(row: Any, fields: dict[str, Any]) -> Any:
    return msgspec.structs.replace(row, **fields)


def _renamed(history: SimpleMqHistory, name: str) -> SimpleMqHistory:
    """The same under names of its own, so that many can be judged at once."""
    records = []
    for record in history.records:
        fields: dict[str, Any] = {"queue": f"{name}.{record.queue}"}
        if isinstance(record, Left):
            fields["message_ids"] = tuple(f"{name}.{id_}" for id_ in record.message_ids)
        elif isinstance(record, Enqueue | Poll | Ack) and record.message_id:
            fields["message_id"] = f"{name}.{record.message_id}"
        records.append(replace(record, **fields))
    return replace(history, records=tuple(records), dead=frozenset(f"{name}.{id_}" for id_ in history.dead))


def _overfull(rows: Rows) -> None:
    rows.change(size=1)


def _second_level(rows: Rows) -> None:
    rows.change("q-dlq", dead_letter_queue="x")


def _early_letter(rows: Rows) -> None:
    rows.change_message("3", delivery_count=1)


def _other_data(rows: Rows) -> None:
    rows.change_message("4", payload_hash=1)


def _still_there(rows: Rows) -> None:
    rows.messages.append(StoredMessage(f"{rows.name}.q", f"{rows.name}.1", 1, rows.messages[0].payload_hash))
    rows.change(counted=3)
    first = next(call.pushes[0].payload_hash for call in rows.calls if call.pushes)
    rows.change_message("1", payload_hash=first)


def _elsewhere(rows: Rows) -> None:
    """A message lies in a queue to which it was not sent, and the counts fit."""
    rows.queues.append(StoredQueue(f"{rows.name}.o", 100, 30, 3, 1))
    rows.change_message("4", queue=f"{rows.name}.o")
    rows.change(counted=next(each.counted for each in rows.queues if each.queue == f"{rows.name}.q") - 1)


def _given_elsewhere(rows: Rows) -> None:
    rows.queues.append(StoredQueue(f"{rows.name}.o", 100, 30, 3, 0))
    at, call = next((n, each) for n, each in enumerate(rows.calls) if each.deliveries)
    moved = tuple(_with(each, {"queue": f"{rows.name}.o"}) for each in call.deliveries)
    rows.calls[at] = _with(call, {"queue": f"{rows.name}.o", "deliveries": moved})


def _lower_count(rows: Rows) -> None:
    sent = next(each for each in rows.calls if each.pushes and each.pushes[0].message_id == f"{rows.name}.4")
    [item] = sent.pushes
    rows.change_message("4", delivery_count=1)
    for attempt in (1, 2):
        given = Delivery(
            item.queue, "", "", attempt=attempt, message_id=item.message_id, payload_hash=item.payload_hash
        )
        at = rows.calls[-1].sent + attempt * 10**9
        rows.add(_with(sent, {"kind": "dequeue", "pushes": (), "deliveries": (given,), "sent": at, "answered": at + 1}))


def _dead_letter_requeued(rows: Rows) -> None:
    """No fault: a dead letter went back to its queue, of which no journal tells, and its count began anew."""
    rows.change_message("3", queue=f"{rows.name}.q", delivery_count=0)
    counts = {each.queue: each.counted for each in rows.queues}
    rows.change("q", counted=counts[f"{rows.name}.q"] + 1)
    rows.change("q-dlq", counted=counts[f"{rows.name}.q-dlq"] - 1)


def _lost(rows: Rows) -> None:
    rows.messages = [each for each in rows.messages if each.message_id != f"{rows.name}.4"]
    rows.change(counted=next(each.counted for each in rows.queues if each.queue == f"{rows.name}.q") - 1)


def _told(rows: Rows, kind: Any, queue: str = "q") -> None:
    item = AckItem(f"{rows.name}.{queue}", "", f"{rows.name}.4", outcome="ok", message_id=f"{rows.name}.4")
    rows.add(Call(run="run", agent=rows.name, number=0, kind=kind, sent=1, answered=2, acks=(item,)))


def _extended_and_lost(rows: Rows) -> None:
    _lost(rows)
    _told(rows, "extend")


def _requeued_and_lost(rows: Rows) -> None:
    _lost(rows)
    _told(rows, "requeue")
    _told(rows, "requeue", "q-dlq")


def _requeued_to_a_deleted_queue(rows: Rows) -> None:
    """No fault: it went with that queue."""
    _lost(rows)
    _told(rows, "requeue", "deleted")


def _above_the_maximum(rows: Rows) -> None:
    rows.change_message("4", delivery_count=9)


#: What only the database shows, and the audits that have to see it.
STORED: dict[Callable[[Rows], None], set[str]] = {
    _overfull: {"no_queue_is_above_its_size"},
    _second_level: {"dead_letters_have_no_second_level"},
    _early_letter: {"a_dead_letter_had_all_its_deliveries"},
    _other_data: {"what_is_given_was_sent"},
    _elsewhere: {"what_is_given_was_sent"},
    _given_elsewhere: {"what_is_given_was_sent"},
    _still_there: {"what_is_acked_is_gone"},
    _lower_count: {"delivery_counts_rise_by_one"},
    _dead_letter_requeued: set(),
    _extended_and_lost: {"nothing_is_lost"},
    _requeued_and_lost: {"nothing_is_lost"},
    _requeued_to_a_deleted_queue: set(),
    _above_the_maximum: {"delivery_counts_rise_by_one"},
}


def _killed(rows: Rows) -> None:
    """The agent was killed: it may have acked what is missing."""
    rows.calls.pop()


def _requeued(rows: Rows) -> None:
    """Somebody requeued the message whose deliveries are strange."""
    item = AckItem(f"{rows.name}.q", "", f"{rows.name}.2", outcome="ok", message_id=f"{rows.name}.2")
    rows.add(Call(run="run", agent=rows.name, number=0, kind="requeue", sent=1, answered=2, acks=(item,)))


#: What explains a fault away: the fault, and the rest of the story.
EXPLAINED = {
    "nothing_is_lost": _killed,
    "given_to_one_at_a_time": _requeued,
    "delivery_counts_rise": _requeued,
}


@pytest.fixture(scope="module")
def found(engine_name: str, request: pytest.FixtureRequest) -> dict[str, set[str]]:
    """By run, the audits that found something in it. All whole runs are judged at once."""
    runs = [Rows("good", GOOD)]
    runs += [Rows(f"fault {name}", history) for name, history in FAULTS.items()]
    for change in STORED:
        runs.append(Rows(f"stored {change.__name__}", GOOD))
        change(runs[-1])
    for name, explain in EXPLAINED.items():
        runs.append(Rows(f"explained {name}", FAULTS[name]))
        explain(runs[-1])
    # An agent that was cut short makes others' losses unknowable, so its run is judged by itself, where that matters.
    whole, cut = ([each for each in runs if (each.calls[-1].kind == "end") == ended] for ended in (True, False))
    with engine_of(request) as session:
        [unknown] = _verdicts(session, cut, "G-SMQ-7")
        verdicts = _verdicts(session, whole)
    assert unknown.result is Result.UNKNOWN
    assert all(verdict.result is not Result.UNKNOWN for verdict in verdicts)
    names = {each.name: set[str]() for each in runs}
    for verdict in verdicts:
        for evidence in verdict.evidence:
            assert evidence.queue is not None, evidence
            names[evidence.queue.rpartition(".")[0]].add(verdict.audit)
    return names


def _verdicts(spark: SparkSession, runs: list[Rows], *guarantees: str) -> list[Verdict]:
    def table(kind: Any, rows: list[Any]) -> Any:
        return spark_table(spark, kind, rows).persist()

    stored = Stored(
        table(StoredQueue, [row for each in runs for row in each.queues]),
        table(StoredMessage, [row for each in runs for row in each.messages]),
    )
    tables = SimpleMqTables(Inputs(table(Call, [call for each in runs for call in each.calls])), stored)
    verdicts = judge_all(tables, guarantees, 1000, None)
    tables.close()
    return verdicts


def test_a_good_run_has_no_violation(found: dict[str, set[str]]) -> None:
    assert found["good"] == set()


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_by_its_audit_alone(found: dict[str, set[str]], name: str) -> None:
    assert found[f"fault {name}"] == {AUDITS[name]}


@pytest.mark.parametrize("change", STORED)
def test_faults_visible_only_in_the_database_are_found(
    found: dict[str, set[str]], change: Callable[[Rows], None]
) -> None:
    assert found[f"stored {change.__name__}"] == STORED[change]


@pytest.mark.parametrize("name", EXPLAINED)
def test_effects_of_unknown_calls_are_no_violation(found: dict[str, set[str]], name: str) -> None:
    assert found[f"explained {name}"] == set()


@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_a_load_is_audited_green_with_its_database(engine: SparkSession, tmp_path: Path) -> None:
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:
        loaded = run(
            "bench", "load", "simple-mq", "--smoke", "--url", f"http://127.0.0.1:{server.port}", "--dsn", server.dsn,
            "--runs", "1", "--journal", "--folder", str(tmp_path), patience=300,
        )  # fmt: skip
        assert loaded.returncode == 0, loaded.stderr
        [place] = tmp_path.glob("*/queen/simple-mq-1")
        journal = open_journal(place, tmp_path)
        with Snapshot(server.dsn) as snapshot:
            calls = read_parquet(engine, map(str, journal.parquet))
            tables = SimpleMqTables(Inputs(calls), read(snapshot, engine, tmp_path))
            verdicts = judge_all(tables, (), 20, None)
            rows = tables.get("enqueues")
            assert rows is not None
            assert rows.count() > 0
            tables.close()
        # And as people do it.
        asked = ("--interface", "simple-mq", "--guarantee", "G-SMQ-4", "--master", "local[2]", "--json")
        audited = run("audit", *asked, "--dsn", server.dsn, "--journal", str(place), patience=900)
    assert [verdict for verdict in verdicts if verdict.result is Result.INVALID] == []
    judged = {id_ for verdict in verdicts if verdict.result is Result.VALID for id_ in verdict.ids}
    assert judged >= {"G-SMQ-1", "G-SMQ-2", "G-SMQ-4", "G-SMQ-6", "G-SMQ-7", "G-SMQ-8"}
    assert audited.returncode == 0, audited.stdout + audited.stderr
    [verdict] = json.loads(audited.stdout)["verdicts"]
    assert (verdict["audit"], verdict["result"]) == ("the_count_is_that_of_the_messages", "valid")
