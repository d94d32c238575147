"""One Spark session for all tests, and the verdicts of all audits on all faults: both take longer than any test."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pytest
from pyspark.sql import SparkSession

from spark_validation import sail
from spark_validation.columns import spark_table
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
from tests.audit.place import A_PUSH, KEY, PUSHES, Place
from tests.support.runs import EPOCH_S, Tables
from tests.support.servers import create_database, drop_database, serving_database

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


@pytest.fixture(scope="session")
def sail_session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """After Spark: PySpark forks to start Java, which may fail beside the threads of gRPC."""
    with sail.started(tmp_path_factory.mktemp("sail"), 2 << 30, 2) as session:
        yield session


@pytest.fixture(scope="session", params=["sail", pytest.param("spark", marks=pytest.mark.nightly)])
def engine_name(request: pytest.FixtureRequest) -> str:
    """What runs the queries of audits: Sail, as for most people, and at night Spark."""
    return str(request.param)


@contextmanager
def engine_of(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Its session, for fixtures that several tests share."""
    if request.getfixturevalue("engine_name") == "spark":
        yield request.getfixturevalue("spark")
        return
    session = request.getfixturevalue("sail_session")
    with sail.spoken():
        yield session


@pytest.fixture
def engine(engine_name: str, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The session of one test."""
    with engine_of(request) as session:
        yield session


@dataclass(frozen=True)
class Judged:
    """Rows, what the audits say of them, and what they should find, by run."""

    rows: Tables
    verdicts: list[Verdict]
    expected: dict[str, Expected] = field(default_factory=dict)


def inputs(spark: SparkSession, rows: Tables) -> Inputs:
    """The rows as audits read them."""

    def table(kind, structs):
        return spark_table(spark, kind, structs).persist()

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
def blurred(engine_name: str, request: pytest.FixtureRequest) -> Judged:
    """Journals that are cut short, lack rows, or come from another clock: what they lack may be anything."""
    rows = Tables()
    scenes = [(change, place) for change, places in HARMLESS.items() for place in places]
    for number, (change, place) in enumerate(scenes):
        scene = Scene(*ordinary(f"{change.__name__}@{place}", 100 * number + 1))
        change(scene, place)
        rows.add(scene.tables if change in (rows_lost, first_push_lost) else scene.renumbered())
    with engine_of(request) as session:
        return Judged(rows, run(inputs(session, rows), max_evidence=10_000))


@pytest.fixture(scope="session")
def planted(engine_name: str, request: pytest.FixtureRequest) -> Judged:
    """All faults in one go, each in queues and with an agent of its own, beside runs in which all is well."""
    rows, expected = Tables(), {}
    scenes = [(change, place) for change, places in (FAULTS | GONE).items() for place in places]
    for number, (change, place) in enumerate([(None, 0), (None, 1), *scenes]):
        name = f"{change.__name__ if change else 'valid'}@{place}"
        scene = Scene(*ordinary(name, 100 * number + 1))
        expected[name] = change(scene, place) or {} if change else {}
        rows.add(scene.renumbered())
    with engine_of(request) as session:
        return Judged(rows, run(inputs(session, rows), max_evidence=10_000), expected)


@pytest.fixture(scope="session")
def place(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Orders 0 to 59 of alice, ten per push, and ten of bob."""
    dsn = asyncio.run(create_database(postgres))
    folder = tmp_path_factory.mktemp("server")
    with (
        serving_database(dsn, folder, "--workers", "1", QUEEN_ENCRYPTION_KEY=KEY) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=60) as http,
    ):
        made = Place(dsn, http)
        for push in range(PUSHES):
            made.push("orders", "alice", [{"n": A_PUSH * push + n} for n in range(A_PUSH)])
        for n in range(10):
            made.push(
                "orders",
                "bob",
                [{"tea": "ü\u0000"}],
                transactionId=f"b-{n}",
                traceId=f"00000000-0000-0000-0000-{n:012}",
            )
        yield made
    asyncio.run(drop_database(postgres, dsn))
