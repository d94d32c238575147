"""The audits: each finds exactly what was planted, and nothing in runs that are as they should be."""

from collections import defaultdict

import pytest
from pyspark.sql import SparkSession

from queen_audit.columns import arrow_table
from queen_audit.inputs import Cursor, Database, DeadLetter, Group, Head, Inputs, LogRow, Queue
from queen_audit.journal.schema import Call
from queen_audit.run import Result, Verdict, run
from tests.audit.faults import FAULTS, HARMLESS, Scene, ordinary, rows_lost
from tests.support.runs import EPOCH_S, Tables


def inputs(spark: SparkSession, rows: Tables) -> Inputs:
    """The rows as audits read them."""

    def table(kind, structs):
        return spark.createDataFrame(arrow_table(kind, structs)).persist()

    database = Database(
        table(LogRow, rows.log),
        table(Head, rows.heads),
        table(Cursor, rows.cursors),
        table(DeadLetter, rows.dead_letters),
        table(Queue, rows.queues),
        table(Group, rows.groups),
        taken_at=(EPOCH_S + 86_400) * 1_000_000,
    )
    return Inputs(table(Call, rows.calls), database)


@pytest.fixture(scope="module")
def blurred(spark):
    """Journals that are cut short, lack rows, or come from another clock: what they lack may be anything."""
    rows = Tables()
    scenes = [(change, place) for change, places in HARMLESS.items() for place in places]
    for number, (change, place) in enumerate(scenes):
        scene = Scene(*ordinary(f"{change.__name__}@{place}", 100 * number + 1))
        change(scene, place)
        rows.add(scene.tables if change is rows_lost else scene.renumbered())
    return run(inputs(spark, rows), max_evidence=10_000)


@pytest.fixture(scope="module")
def planted(spark):
    """All faults in one go, each in queues and with an agent of its own, beside runs without any."""
    rows, expected = Tables(), {}
    scenes = [(fault, place) for fault, places in FAULTS.items() for place in places]
    for number, (fault, place) in enumerate([(None, 0), (None, 1), *scenes]):
        name = f"{fault.__name__ if fault else 'valid'}@{place}"
        scene = Scene(*ordinary(name, 100 * number + 1))
        expected[name] = fault(scene, place) if fault else {}
        rows.add(scene.renumbered())
    return expected, run(inputs(spark, rows), max_evidence=10_000)


def found(verdicts: list[Verdict]) -> dict[str, dict[str, list]]:
    """By run and audit: the evidence."""
    by_run = defaultdict(lambda: defaultdict(list))
    for verdict in verdicts:
        assert verdict.violations == len(verdict.evidence)
        for evidence in verdict.evidence:
            by_run[evidence.queue.rpartition(".")[0]][verdict.audit].append(evidence)
    return by_run


def test_every_audit_had_something_to_judge(planted):
    assert [verdict.audit for verdict in planted[1] if verdict.result is not Result.INVALID] == []


def test_what_a_journal_lacks_is_no_violation(blurred):
    assert {name: dict(audits) for name, audits in found(blurred).items()} == {}


NAMES = [f"{each.__name__}@{place}" for each, places in FAULTS.items() for place in places]


@pytest.mark.parametrize("name", ["valid@0", "valid@1", *NAMES])
def test_exactly_what_was_planted_is_found(planted, name):
    expected, verdicts = planted
    there = found(verdicts)[name]
    assert set(there) == set(expected[name]), dict(there)
    for audit, offset in expected[name].items():
        assert len(there[audit]) == 1, there[audit]
        assert offset is None or there[audit][0].offset == offset, there[audit]
