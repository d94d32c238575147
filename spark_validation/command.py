"""An audit from beginning to end: session, inputs, verdicts, figures."""

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from . import session
from .inputs import Inputs
from .journal.files import Journal, open_journal
from .log.snapshot import Snapshot
from .measures import series
from .report import Clock, Report, Tail
from .run import Progress, choose, judge_all
from .simple_mq import stored
from .simple_mq.tables import SimpleMqTables
from .tables import SECOND, Tables


class Request(Struct, frozen=True):
    """What ``queen audit`` was asked for."""

    dsn: str | None
    journal: Path | None
    master: str
    guarantees: tuple[str, ...]
    max_evidence: int
    driver_memory: str
    clock_bound_s: float
    interface: str = Tables.interface


def make(request: Request, progress: Progress) -> Report:
    """The report.

    Raises:
        AuditError: it cannot be made; says what to do.
        ValueError: no audit checks a guarantee that was named.
    """
    began = time.perf_counter()
    choose(request.guarantees, request.interface)
    with ExitStack() as stack:
        work = Path(stack.enter_context(session.work_folder()))
        journal = open_journal(request.journal, work) if request.journal else None
        snapshot = stack.enter_context(Snapshot(request.dsn)) if request.dsn else None
        spark = session.start(request.master, work, driver_memory=request.driver_memory)
        stack.callback(spark.stop)
        inputs = Inputs(calls=_calls(spark, journal), clock_bound=int(request.clock_bound_s * SECOND))
        if request.interface == SimpleMqTables.interface:
            tables: Tables = SimpleMqTables(inputs, stored.read(snapshot, spark, work) if snapshot else None)
        else:
            tables = Tables(replace(inputs, database=snapshot.database(spark) if snapshot else None))
        return _report(tables, journal, request, progress, began)


def _calls(spark: SparkSession, journal: Journal | None) -> DataFrame | None:
    return spark.read.parquet(*map(str, journal.parquet)) if journal else None


def _report(tables: Tables, journal: Journal | None, request: Request, progress: Progress, began: float) -> Report:
    try:
        verdicts = judge_all(tables, request.guarantees, request.max_evidence, progress)
        clocks, tails = (tables.get(name) for name in ("clocks", "tails"))
        counts = {name: table.count() for name in tables.counted if (table := tables.get(name)) is not None}
        return Report(
            tuple(verdicts),
            counts,
            tuple(Clock(row.agent, row.low, row.high, row.comparisons) for row in clocks.collect()) if clocks else (),
            tuple(Tail(row.agent, row.missing, row.ended) for row in tails.collect()) if tails else (),
            tuple(map(str, journal.torn)) if journal else (),
            series(tables),
            time.perf_counter() - began,
        )
    finally:
        tables.close()
