"""An audit from beginning to end: session, inputs, verdicts, figures."""

import time
from contextlib import ExitStack
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
from .tables import SECOND, Tables

_COUNTED = ("pushes", "deliveries", "acks", "log", "heads", "cursors", "dead_letters")


class Request(Struct, frozen=True):
    """What ``queen audit`` was asked for."""

    dsn: str | None
    journal: Path | None
    master: str
    guarantees: tuple[str, ...]
    max_evidence: int
    driver_memory: str
    clock_bound_s: float


def make(request: Request, progress: Progress) -> Report:
    """The report.

    Raises:
        AuditError: it cannot be made; says what to do.
        ValueError: no audit checks a guarantee that was named.
    """
    began = time.perf_counter()
    choose(request.guarantees)
    with ExitStack() as stack:
        work = Path(stack.enter_context(session.work_folder()))
        journal = open_journal(request.journal, work) if request.journal else None
        snapshot = stack.enter_context(Snapshot(request.dsn)) if request.dsn else None
        spark = session.start(request.master, work, driver_memory=request.driver_memory)
        stack.callback(spark.stop)
        inputs = Inputs(
            calls=_calls(spark, journal),
            database=snapshot.database(spark) if snapshot else None,
            clock_bound=int(request.clock_bound_s * SECOND),
        )
        return _report(inputs, journal, request, progress, began)


def _calls(spark: SparkSession, journal: Journal | None) -> DataFrame | None:
    return spark.read.parquet(*map(str, journal.parquet)) if journal else None


def _report(inputs: Inputs, journal: Journal | None, request: Request, progress: Progress, began: float) -> Report:
    tables = Tables(inputs)
    try:
        verdicts = judge_all(tables, request.guarantees, request.max_evidence, progress)
        clocks, tails = (tables.get(name) for name in ("clocks", "tails"))
        counts = {name: table.count() for name in _COUNTED if (table := tables.get(name)) is not None}
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
