"""One Spark session for all tests, and the verdicts of all audits on all faults: both take longer than any test."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from pyspark.sql import SparkSession

from spark_validation.columns import arrow_table
from spark_validation.inputs import (
    Cursor,
    Database,
    DeadLetter,
    Deleted,
    Flaw,
    Group,
    Head,
    IdSum,
    Inputs,
    LogRow,
    Queue,
    Waiting,
)
from spark_validation.journal.schema import Call
from spark_validation.run import Verdict, run
from spark_validation.session import start
from tests.audit.faults import FAULTS, GONE, HARMLESS, Expected, Scene, first_push_lost, ordinary, rows_lost
from tests.support.runs import EPOCH_S, Tables

#: When the snapshot is said to be taken: a day after everything.
TAKEN_AT = (EPOCH_S + 86_400) * 1_000_000

#: A few hundred rows: what costs is planning queries and compiling what is run once.
SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    work = tmp_path_factory.mktemp("spark")
    session = start("local[2]", work, driver_memory="2g", rows=0, options=SMALL)
    yield session
    session.stop()


@dataclass(frozen=True)
class Judged:
    """Rows, what the audits say of them, and what they should find, by run."""

    rows: Tables
    verdicts: list[Verdict]
    expected: dict[str, Expected] = field(default_factory=dict)


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
        table(Deleted, rows.deleted),
        table(Group, rows.retired),
        table(Waiting, rows.waiting),
        taken_at=TAKEN_AT,
        id_sums=table(IdSum, rows.id_sums),
        flaws=table(Flaw, rows.flaws),
    )
    return Inputs(table(Call, rows.calls), database)


@pytest.fixture(scope="session")
def blurred(spark: SparkSession) -> Judged:
    """Journals that are cut short, lack rows, or come from another clock: what they lack may be anything."""
    rows = Tables()
    scenes = [(change, place) for change, places in HARMLESS.items() for place in places]
    for number, (change, place) in enumerate(scenes):
        scene = Scene(*ordinary(f"{change.__name__}@{place}", 100 * number + 1))
        change(scene, place)
        rows.add(scene.tables if change in (rows_lost, first_push_lost) else scene.renumbered())
    return Judged(rows, run(inputs(spark, rows), max_evidence=10_000))


@pytest.fixture(scope="session")
def planted(spark: SparkSession) -> Judged:
    """All faults in one go, each in queues and with an agent of its own, beside runs in which all is well."""
    rows, expected = Tables(), {}
    scenes = [(change, place) for change, places in (FAULTS | GONE).items() for place in places]
    for number, (change, place) in enumerate([(None, 0), (None, 1), *scenes]):
        name = f"{change.__name__ if change else 'valid'}@{place}"
        scene = Scene(*ordinary(name, 100 * number + 1))
        expected[name] = change(scene, place) or {} if change else {}
        rows.add(scene.renumbered())
    return Judged(rows, run(inputs(spark, rows), max_evidence=10_000), expected)
