"""The steps of ``queen audit``: session, inputs, verdicts, plots; and the archive job."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path

from grpc import RpcError
from msgspec import Struct, structs
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from . import gateway, sail, session
from .archive import database as archived
from .archive import job
from .archive import restore as restoring
from .archive.folder import Archive, locked, open_archive, open_filled
from .archive.restore import Range, Restored, Target
from .dialect import is_sail, read_parquet
from .errors import AuditError, JournalError, told_by_us
from .inputs import Database, Inputs
from .journal.files import Journal, files_of, open_journal, text_of
from .live import watch as live
from .live.checkpoint import Origin, opened
from .log.several import AnySnapshot, snapshot_of
from .measures import series
from .progress import following
from .report import About, Clock, Report, Tail
from .run import Evidence, Progress, Verdict, choose, judge_all
from .simple_mq import stored
from .simple_mq.tables import SimpleMqTables
from .sqs.tables import SqsTables
from .tables import Tables
from .tables.columns import SECOND

_OF_A_STREAM = 5_000_000
"""The rows that a stream is prepared for: nobody knows how many will come."""

MANY_AUDITED_ROWS = 10_000_000
"""The rows of journals and log from which on Spark judges them, which needs no memory for all of them at once."""

_IF_SHORT = "If memory was short, raise --driver-memory; if disk space was short, set TMPDIR to a larger disk"


class Where(Struct, frozen=True):
    """Spark's master, and the memory of the driver, or for queries."""

    master: str
    driver_memory: str


class Request(Struct, frozen=True):
    """The options of ``queen audit``."""

    dsn: str | None
    journal: Path | None
    archive: Path | None
    where: Where
    guarantees: tuple[str, ...]
    max_evidence: int
    clock_bound_s: float
    interface: str = Tables.interface


def make(request: Request, progress: Progress) -> Report:
    """The report.

    Raises:
        AuditError: it cannot be made; says what to do.
        ValueError: no audit checks a guarantee that was named.
    """
    began, began_at = time.perf_counter(), datetime.now(UTC)
    _check_request(request)
    with ExitStack() as stack:
        work = Path(stack.enter_context(session.work_folder()))
        journal = None
        if request.journal:
            journal = open_journal(
                request.journal, stack.enter_context(conversions(request.journal, request.where.master, work))
            )
        archive = open_filled(request.archive) if request.archive else None
        held = stack.enter_context(ExitStack())
        snapshot = held.enter_context(snapshot_of(request.dsn)) if request.dsn else None
        if snapshot and journal:
            snapshot.check_primary()
        rows = _rows_of(journal, archive, snapshot)
        spark = stack.enter_context(_engine(request.where, work, rows))
        if not is_sail():
            progress = stack.enter_context(following(spark, progress))
        calls = _calls(spark, journal)
        inputs = Inputs(calls=calls, clock_bound=int(request.clock_bound_s * SECOND))
        taken_at = snapshot.taken_at if snapshot else None
        homes: Homes = {}
        if request.interface == Tables.interface:
            database = _database(spark, archive, snapshot)
            if database:
                taken_at, homes = database.taken_at, database.homes
            tables = Tables(replace(inputs, database=database))
            if snapshot:
                tables.read_log()
        else:
            tables = _other_tables(request, inputs, snapshot, spark, work)
        # Vacuum waits for the snapshot.
        held.close()
        about = _about(request, began_at, snapshot.place if snapshot else None, taken_at)
        return _report(about, tables, homes, journal, request, progress, began)


def _other_tables(
    request: Request, inputs: Inputs, snapshot: AnySnapshot | None, spark: SparkSession, work: Path
) -> Tables:
    """Those of another interface than Queen's."""
    if request.interface == SqsTables.interface:
        return SqsTables(inputs)
    return SimpleMqTables(inputs, stored.read(snapshot, spark, work) if snapshot else None)


def _check_request(request: Request) -> None:
    choose(request.guarantees, request.interface)
    if request.interface == SqsTables.interface and (request.dsn or not request.journal):
        raise AuditError("audits of SQS judge what clients were answered: give --journal, and omit --dsn")
    if request.interface == SimpleMqTables.interface and request.dsn and not session.is_local(request.where.master):
        raise AuditError(
            "simple-mq's tables are read into a file on this machine, which executors of a cluster cannot "
            "access: audit with --master local[*], or omit --dsn"
        )
    _check(request.where)


def _rows_of(journal: Journal | None, archive: Archive | None, snapshot: AnySnapshot | None) -> int:
    counts = (journal and journal.items(), archive and archive.messages, snapshot and snapshot.messages())
    return sum(count or 0 for count in counts)


def _about(request: Request, began_at: datetime, database: str | None, taken_at: int | None) -> About:
    return About(
        began_at=_iso(began_at),
        interface=request.interface,
        snapshot_at=None if taken_at is None else _iso(datetime.fromtimestamp(taken_at / SECOND, UTC)),
        database=database,
        journal=text_of(request.journal.resolve()) if request.journal else None,
        archive=text_of(request.archive.resolve()) if request.archive else None,
        guarantees=request.guarantees,
        clock_bound_s=request.clock_bound_s,
    )


@contextmanager
def conversions(journal: Path, master: str, work: Path) -> Iterator[Path]:
    """The folder for converted journals: executors of a cluster can access the folder of the journals, but not ours.

    Raises:
        JournalError: it is not writable.
    """
    if session.is_local(master) or all(path.suffix == ".parquet" for path in files_of(journal)):
        yield work
        return
    try:
        folder = session.work_folder(journal)
    except OSError as problem:
        raise JournalError(
            f"{journal}: on a cluster, JSON lines and data about lost journals are converted to Parquet in "
            f"this folder, where executors can access it, but it is not writable ({problem.strerror}). Make "
            "it writable, or audit with --master local[*]"
        ) from problem
    with folder as place:
        # Executors may run as another user.
        Path(place).chmod(0o755)
        yield Path(place)


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def archive(dsn: str, folder: Path, where: Where, progress: Progress) -> job.Done:
    """Adds the missing messages to the archive.

    Raises:
        AuditError: it cannot be done; says what to do. The archive is as it was.
    """
    _check(where)
    with ExitStack() as stack:
        work = Path(stack.enter_context(session.work_folder()))
        stack.enter_context(locked(folder))
        there = open_archive(folder)
        snapshot = stack.enter_context(snapshot_of(dsn))
        spark = stack.enter_context(_spark(where, work, snapshot.messages()))
        stack.enter_context(following(spark, progress))(0, 0, "archiving")
        return job.add(spark, snapshot, there)


def restore(folder: Path, wanted: Range, target: Target, where: Where, progress: Progress) -> Restored:
    """Pushes a part of an archive back.

    Raises:
        AuditError: it cannot be done; says what to do.
    """
    _check(where)
    with ExitStack() as stack:
        work = Path(stack.enter_context(session.work_folder()))
        there = open_filled(folder)
        spark = stack.enter_context(_spark(where, work, there.messages))
        stack.enter_context(following(spark, progress))(0, 0, "restoring")
        return restoring.restore(spark, there, wanted, target)


class Watch(Struct, frozen=True):
    """The options of ``queen audit watch``: interval in seconds, maximum difference of clocks, and the checkpoint."""

    dsn: str | None
    journal: Path | None
    where: Where
    interval_s: float
    clock_bound_s: float
    checkpoint: Path | None = None


def watch(request: Watch, listener: live.Listener, go_on: Callable[[], bool]) -> None:
    """Reports violations in new messages and calls, until it is stopped.

    Raises:
        AuditError: it cannot be done; says what to do.
    """
    _check(request.where)
    if request.journal and not request.journal.is_dir():
        raise JournalError(f"{request.journal} is not a folder. --journal names the folder that agents write to")
    if request.journal and text_of(request.journal.resolve()) != str(request.journal.resolve()):
        raise JournalError(
            f"{text_of(request.journal)}: the name of the folder is not UTF-8, which Spark requires: rename it"
        )
    with ExitStack() as stack:
        work = Path(stack.enter_context(session.work_folder()))
        installation = None
        if request.dsn:
            with snapshot_of(request.dsn) as snapshot:
                if request.journal:
                    snapshot.check_primary()  # before Spark is started for nothing
                installation = snapshot.installation()
        origin = Origin(installation, str(request.journal.resolve()) if request.journal else None)
        checkpoint = stack.enter_context(opened(request.checkpoint or work / "watch", origin))
        spark = stack.enter_context(_spark(request.where, work, _OF_A_STREAM))
        stream = live.streams(spark, request.dsn, request.journal)
        found = live.findings(stream, int(request.clock_bound_s * SECOND), with_log=bool(request.dsn))
        live.watch(found, checkpoint, request.interval_s, listener, go_on, request.dsn)


def _check(where: Where) -> None:
    session.check_master(where.master)
    session.memory_mib(where.driver_memory)


def _engine(where: Where, work: Path, rows: int) -> AbstractContextManager[SparkSession]:
    """What runs the queries of an audit of this many rows: on one machine Sail, unless they are many."""
    few = session.is_local(where.master) and rows < MANY_AUDITED_ROWS
    return _sail(where, work) if few else _spark(where, work, rows)


@contextmanager
def _sail(where: Where, work: Path) -> Iterator[SparkSession]:
    """A session of Sail; an error becomes one line."""
    try:
        memory, cores = session.memory_mib(where.driver_memory) << 20, session.cores_of(where.master)
        with sail.spoken(), sail.started(work, memory, cores) as spark:
            yield spark
    except (PySparkException, RpcError) as problem:
        raise _failed("Sail", problem, sail.first_line(problem)) from problem


def _failed(engine: str, problem: BaseException, said: str) -> AuditError:
    """Our own tasks say what to do."""
    return AuditError(said if told_by_us(str(problem)) else f"{engine} failed: {said}. {_IF_SHORT}")


@contextmanager
def _spark(where: Where, work: Path, rows: int) -> Iterator[SparkSession]:
    """A session of Spark for this many rows of journals and log; an error becomes one line."""
    spark = None
    try:
        spark = session.start(where.master, work, driver_memory=where.driver_memory, rows=rows)
        yield spark
    except KeyboardInterrupt:
        gateway.kill()
        raise
    except (PySparkException, Py4JError, *gateway.JAVA_IS_GONE) as problem:
        raise _failed("Spark", problem, gateway.first_line(problem)) from problem
    finally:
        if spark is not None:
            with suppress(*gateway.JAVA_IS_GONE):
                spark.stop()
            gateway.end()


def _database(spark: SparkSession, archive: Archive | None, snapshot: AnySnapshot | None) -> Database | None:
    if archive:
        return archived.read(spark, archive, snapshot)
    return snapshot.database(spark) if snapshot else None


def _calls(spark: SparkSession, journal: Journal | None) -> DataFrame | None:
    """The rows of the journals.

    Raises:
        JournalError: a row occurs twice; audits would take it for two calls.
    """
    if journal is None:
        return None
    calls = read_parquet(spark, map(str, journal.parquet))
    for row in calls.groupBy("agent", "number").count().where("count > 1").limit(1).collect():
        raise JournalError(
            f"row {row.number} of the agent {row.agent} occurs {row['count']} times: is a journal in the "
            "folder twice, as *.parquet and *.jsonl? Keep one of them; and give each agent its own name"
        )
    return calls


def _unknown_queues(tables: Tables) -> tuple[str, ...]:
    lanes, queues = tables.get("lanes"), tables.get("queues")
    if lanes is None or queues is None:
        return ()
    unknown = lanes.select("queue").distinct().join(queues.select("queue"), "queue", "left_anti")
    return tuple(sorted(row.queue for row in unknown.collect()))


def _renewed(tables: Tables) -> tuple[str, ...]:
    renewed = tables.get("renewed") if tables.interface == Tables.interface else None
    rows = renewed.collect() if renewed is not None else []
    return tuple(sorted(f"{row.queue}/{row.partition}" for row in rows))


def _clocks(tables: Tables) -> tuple[Clock, ...]:
    """The clocks of agents that made calls; an agent that only recorded faults compares none."""
    clocks, calls = tables.get("clocks"), tables.get("calls")
    if clocks is None or calls is None:
        return ()
    callers = calls.where(~F.col("kind").isin("fault", "change", "end")).select("agent").distinct()
    rows = clocks.join(callers, "agent", "left_semi").orderBy("agent").collect()
    return tuple(Clock(row.agent, row.low, row.high, row.comparisons, row.moved) for row in rows)


def _counts(tables: Tables) -> dict[str, int]:
    """The number of rows of each table that a report counts."""
    counted = {name: table for name in tables.counted if (table := tables.get(name)) is not None}
    each = [table.agg(F.lit(name).alias("name"), F.count("*").alias("n")) for name, table in counted.items()]
    found = {row.name: row.n for row in reduce(DataFrame.unionByName, each).collect()} if each else {}
    return {name: found[name] for name in counted}


Homes = Mapping[tuple[str, str], str]


def _located(verdicts: list[Verdict], homes: Homes) -> list[Verdict]:
    """The verdicts, whose evidence names the one of several databases that has the partition."""

    def located(evidence: Evidence) -> Evidence:
        return structs.replace(evidence, database=homes.get((evidence.queue or "", evidence.partition or "")))

    return (
        [structs.replace(each, evidence=tuple(map(located, each.evidence))) for each in verdicts] if homes else verdicts
    )


def _report(
    about: About,
    tables: Tables,
    homes: Homes,
    journal: Journal | None,
    request: Request,
    progress: Progress,
    began: float,
) -> Report:
    try:
        verdicts = _located(judge_all(tables, request.guarantees, request.max_evidence, progress), homes)
        tails = tables.get("tails")
        counts = _counts(tables)
        return Report(
            about,
            tuple(verdicts),
            counts,
            _clocks(tables),
            tuple(Tail(row.agent, row.missing, row.ended) for row in tails.collect()) if tails else (),
            tuple(map(text_of, journal.torn)) if journal else (),
            _unknown_queues(tables),
            _renewed(tables),
            series(tables),
            time.perf_counter() - began,
        )
    finally:
        tables.close()
