"""All audits of generated, valid runs of any size; and the speed of reading a log while producers write."""

import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import psutil
from msgspec import Struct
from typer import Option

from bench import database
from bench.meter import Peak, cpu_seconds, family
from bench.scenario import MismatchError, Progress, Sample, Scenario, Target

# Spark, pyarrow and numpy are installed only with the extra for audits, so their modules are imported where they are
# used.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_validation.run import Verdict

_PARTITIONS, _A_SEGMENT = 1_000, 100
_PAUSE_S = 0.2
_ALL = "all audits"


class Settings(Struct, frozen=True):
    """The sizes. Each run with Spark has a Java of its own, as for users."""

    messages: Annotated[
        tuple[int, ...], Option(help="Of a run; may be repeated. Without --read 1000000 unless given.", min=1000)
    ] = ()
    hot: Annotated[
        tuple[float, ...], Option(help="Part of a run that lies in one partition; may be repeated.")
    ] = (0.0, 0.3)  # fmt: skip
    read: Annotated[int, Option(help="Messages of a log in PostgreSQL that is read; 0: none.", min=0)] = 0
    driver_memory: Annotated[str, Option(help="Memory for queries; of Spark, the heap of the driver.")] = "4g"
    master: Annotated[str, Option(help="Where Spark runs.")] = "local[*]"


class _Mark(Struct, frozen=True):
    """A moment, and the CPU seconds of this process and its descendants until then."""

    at: float
    cpu_s: float

    @classmethod
    def now(cls) -> "_Mark":
        """This one."""
        return cls(time.perf_counter(), cpu_seconds(family(psutil.Process())))

    def since(self, before: "_Mark") -> dict[str, float]:
        """The time and CPU between two moments."""
        return {"s": self.at - before.at, "CPU s": self.cpu_s - before.cpu_s}


def measure(_dsn: str, settings: Settings, progress: Progress) -> Iterator[Sample]:
    """Reads a log, then audits all sizes, evenly distributed and with a hot partition."""
    import spark_validation.session  # noqa: F401, PLC0415 - what is missing is told at once

    if settings.read:
        yield _read(settings, progress)
    sizes = settings.messages or (() if settings.read else (1_000_000,))
    for messages, hot in product(sizes, settings.hot):
        yield from _audited(settings, messages, hot, progress)


def _audited(settings: Settings, messages: int, hot: float, progress: Progress) -> Iterator[Sample]:
    from bench import generated_run  # noqa: PLC0415
    from spark_validation import command  # noqa: PLC0415 - as above
    from spark_validation.run import Result  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="queen-bench-") as name:
        began = time.process_time()
        archive, journal = generated_run.write(Path(name), messages, _PARTITIONS, hot, 0, progress)
        wrote, marks = time.process_time() - began, list[_Mark]()

        def advance(done: int, total: int, what: str) -> None:
            if total and done == len(marks):  # it is told of Spark's tasks within a step, too
                marks.append(_Mark.now())
            progress(f"{messages:,} messages, {hot:.0%} hot: {what.replace('_', ' ')}", done / max(total, 1))

        where = command.Where(settings.master, settings.driver_memory)
        with Peak() as peak:
            begin = _Mark.now()
            report = command.make(command.Request(None, journal, archive, where, (), 20, 0.0), advance)
            end = _Mark.now()
    if wrong := [
        verdict.audit
        for verdict in report.verdicts
        if verdict.result is not (Result.UNKNOWN if verdict.audit in generated_run.NOT_JUDGED else Result.VALID)
    ]:
        raise MismatchError(f"the run is valid, but some audits disagree ({', '.join(wrong)})")
    of, side = f"{messages:,} messages", f"{hot:.0%} hot" if hot else "even"
    for what, figures in _costs(report.verdicts, [begin, *marks, end]):
        yield Sample(f"{of}: {what}", side, 0, figures)
    whole = end.since(begin)
    each = {"CPU µs per message": 1e6 * whole["CPU s"] / messages, "peak memory, MiB": peak.bytes / 2**20}
    yield Sample(f"{of}: {_ALL}", side, 0, {**whole, **each, "generator, CPU s": wrote})


def _costs(verdicts: "Sequence[Verdict]", marks: Sequence[_Mark]) -> Iterator[tuple[str, dict[str, float]]]:
    """An audit pays for the tables that it uses first; the rest is for plots and counts."""
    names = ["start, conversion", *(verdict.audit for verdict in verdicts), "figures of the run"]
    for name, (before, after) in zip(names, pairwise(marks), strict=True):
        yield name, after.since(before)


# ---------------------------------------------------------------- reading


def _read(settings: Settings, progress: Progress) -> Sample:
    """A log of this many messages, read once to warm up and once to measure, while a producer writes."""
    from spark_validation import session  # noqa: PLC0415 - as above

    progress(f"writing {settings.read:,} messages to PostgreSQL", 0.0)
    with database.server(None) as server, tempfile.TemporaryDirectory(prefix="queen-bench-") as work:
        spark = session.start(settings.master, Path(work), driver_memory=settings.driver_memory, rows=settings.read)
        try:
            return asyncio.run(_with_database(server, spark, settings, progress))
        finally:
            spark.stop()


async def _with_database(server: str, spark: "SparkSession", settings: Settings, progress: Progress) -> Sample:
    from bench import generated_log  # noqa: PLC0415 - as above

    async with database.scratch_database(server) as dsn:
        await generated_log.load(dsn, settings.read, _PARTITIONS, _A_SEGMENT, hot=0.2)
        return await asyncio.to_thread(_reading, spark, dsn, settings, progress)


def _reading(spark: "SparkSession", dsn: str, settings: Settings, progress: Progress) -> Sample:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as above

    from spark_validation.log.snapshot import Snapshot  # noqa: PLC0415

    figures = (F.count("*").alias("n"), F.sum("offset").alias("offsets"), F.bit_xor("hash").alias("hashes"))
    producer = _Producer(dsn)
    with Snapshot(dsn) as snapshot:
        rows = snapshot.database(spark).log
        producer.start()
        rows.agg(*figures).collect()
        progress("reading the log", 0.5)
        begin = _Mark.now()
        # Another query: the first one would reuse its shuffle, and read nothing.
        [found] = rows.agg(*figures).collect()
        took, wrote = _Mark.now().since(begin), producer.stop()
        told = snapshot.fetch("SELECT sum(n), sum(n * (2 * last_off - n + 1) / 2) FROM queen.segments")[0]
    if (found.n, found.offsets) != tuple(map(int, told)) or found.n != settings.read:
        raise MismatchError(f"{found.n} messages were read, and the snapshot has {told[0]}")
    rate = {"messages/s": found.n / took["s"], "CPU µs per message": 1e6 * took["CPU s"] / found.n}
    return Sample(f"reading the log of {found.n:,} messages", "even", 0, {**rate, **took, "written meanwhile": wrote})


class _Producer(threading.Thread):
    """Adds messages until it is stopped."""

    _AT_ONCE = 1_000

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self._dsn, self._ended, self._wrote = dsn, threading.Event(), 0

    def run(self) -> None:
        """Writes, and waits a little."""
        from bench import generated_log  # noqa: PLC0415 - as above

        while not self._ended.wait(_PAUSE_S):
            asyncio.run(generated_log.load(self._dsn, self._AT_ONCE, _PARTITIONS, _A_SEGMENT, seed=self._wrote))
            self._wrote += self._AT_ONCE

    def stop(self) -> int:
        """The number of written messages."""
        self._ended.set()
        self.join()
        return self._wrote


SCENARIO = Scenario(
    "audit",
    "All audits of generated runs, valid ones, and the reading of a log.",
    "spark",
    measure,
    Settings,
    smoke={"messages": (10_000,), "hot": (0.3,), "driver_memory": "1g"},
    ratios=(("30% hot", "even"),),
    targets=(
        Target("reading the log*", "messages/s", "even", ">= 2500000"),
        Target(f"*: {_ALL}", "s", "30% hot / even", "<= 1.5"),
        Target(f"100,000 messages: {_ALL}", "CPU s", "even", "<= 40"),
        Target(f"1,000,000 messages: {_ALL}", "CPU s", "even", "<= 100"),
    ),
)
