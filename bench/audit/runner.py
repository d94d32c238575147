"""Writes a run, audits it, and says what each audit cost; and reads a log while producers write."""

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Self

import psutil
from msgspec import Struct
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from queen_audit import command, session
from queen_audit.log.snapshot import Snapshot
from queen_audit.run import Result, Verdict
from queen_bench import database
from queen_bench.audit import generator, log
from queen_bench.audit.results import Cost, Reading, Report, Size
from queen_bench.errors import MismatchError
from queen_bench.machine import describe

Advance = Callable[[str, float], None]
_PARTITIONS = 1_000
_SAMPLE_S = 1.0
_PAUSE_S = 0.2


class Profile(Struct, frozen=True):
    """What is measured: audits of runs of these sizes, even and with a hot partition; ``read``: messages of the log.

    ``warm_up``: messages of a run before them that does not count; 0: none.
    """

    messages: tuple[int, ...] = (1_000_000,)
    hot: tuple[float, ...] = (0.0, 0.3)
    read: int = 0
    warm_up: int = 20_000
    driver_memory: str = "4g"
    master: str = "local[*]"


class Mark(Struct, frozen=True):
    """A moment, in seconds of the clock, and the CPU seconds until then."""

    at: float
    cpu_s: float


def run(profile: Profile, advance: Advance) -> Report:
    """Measures all sizes.

    Raises:
        MismatchError: as above.
        AuditError: an audit cannot be made.
    """
    machine = describe()
    reading = _read(profile, advance) if profile.read else None
    # Java compiles what it meets first, which the first run would bear for the others.
    if profile.messages and profile.warm_up:
        _size(profile, profile.warm_up, 0.0, advance)
    sizes = [_size(profile, messages, hot, advance) for messages in profile.messages for hot in profile.hot]
    return Report(machine, profile.driver_memory, sizes, reading)


def _size(profile: Profile, messages: int, hot: float, advance: Advance) -> Size:
    with tempfile.TemporaryDirectory(prefix="queen-bench-") as name:
        began = time.process_time()
        archive, journal = generator.write(Path(name), messages, _PARTITIONS, hot, 0, advance)
        wrote = time.process_time() - began
        meter = Meter()
        marks: list[Mark] = []

        def progress(done: int, total: int, what: str) -> None:
            marks.append(meter.mark())
            advance(f"{messages:,} messages, {hot:.0%} hot: {what.replace('_', ' ')}", done / total)

        where = command.Where(profile.master, profile.driver_memory)
        with meter:
            begin = meter.mark()
            report = command.make(command.Request(None, journal, archive, where, (), 20, 0.0), progress)
            end = meter.mark()
    # A run has something for each of them, so that none costs nothing because it has nothing to judge.
    wrong = [f"{verdict.audit}: {verdict.result}" for verdict in report.verdicts if verdict.result is not Result.VALID]
    if wrong:
        raise MismatchError(f"the run is valid, and some audits do not say so ({', '.join(wrong)})")
    costs = _costs(report.verdicts, [begin, *marks, end])
    return Size(messages, hot, costs, end.at - begin.at, end.cpu_s - begin.cpu_s, wrote, meter.peak_bytes)


def _costs(verdicts: tuple[Verdict, ...], marks: list[Mark]) -> list[Cost]:
    """An audit pays for the tables that it is the first to ask for; what is left is the plots and the counting."""
    of = [
        ("start of Spark, conversion", ""),
        *[(each.audit, each.result) for each in verdicts],
        ("figures of the run", ""),
    ]
    return [
        Cost(name, result, after.at - before.at, after.cpu_s - before.cpu_s)
        for (name, result), (before, after) in zip(of, pairwise(marks), strict=True)
    ]


class Meter:
    """CPU and memory of this process and all below it; those that have ended count with what was last seen."""

    def __init__(self) -> None:
        self._self = psutil.Process()
        self._seen: dict[int, float] = {}
        self.peak_bytes = 0
        self._done = threading.Event()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def mark(self) -> Mark:
        """Now."""
        self._look()
        return Mark(time.perf_counter(), sum(self._seen.values()))

    def _watch(self) -> None:
        while not self._done.wait(_SAMPLE_S):
            self._look()

    def _look(self) -> None:
        held = 0
        for process in [self._self, *self._self.children(recursive=True)]:
            try:
                times, memory = process.cpu_times(), process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
            self._seen[process.pid] = times.user + times.system
            held += memory
        self.peak_bytes = max(self.peak_bytes, held)


def _read(profile: Profile, advance: Advance) -> Reading:
    """A log of so many messages, read once to warm up and once to measure, while a producer writes."""
    advance(f"writing {profile.read:,} messages to PostgreSQL", 0.0)
    with database.server(None) as server, tempfile.TemporaryDirectory(prefix="queen-bench-") as work:
        spark = session.start(profile.master, Path(work), driver_memory=profile.driver_memory)
        try:
            return asyncio.run(_with_database(server, profile, lambda dsn: _measure(spark, dsn, profile, advance)))
        finally:
            spark.stop()


async def _with_database(server: str, profile: Profile, measure: Callable[[str], Reading]) -> Reading:
    async with database.scratch_database(server) as dsn:
        await log.load(dsn, profile.read, _PARTITIONS, generator.A_CALL, hot=0.2)
        return await asyncio.to_thread(measure, dsn)


def _measure(spark: SparkSession, dsn: str, profile: Profile, advance: Advance) -> Reading:
    figures = (F.count("*").alias("n"), F.sum("offset").alias("offsets"), F.bit_xor("hash").alias("hashes"))
    producer = _Producer(dsn)
    with Snapshot(dsn) as snapshot:
        rows = snapshot.database(spark).log
        producer.start()
        rows.agg(*figures).collect()
        advance("reading the log", 0.5)
        with Meter() as meter:
            begin = meter.mark()
            # Another query: the first one has its shuffle still, and would read nothing again.
            [found] = rows.agg(*figures).collect()
            end = meter.mark()
        wrote = producer.stop()
        told = snapshot.fetch("SELECT sum(n), sum(n * (2 * last_off - n + 1) / 2) FROM queen.segments")[0]
    exact = (found.n, found.offsets) == tuple(map(int, told)) and found.n == profile.read
    if not exact:
        raise MismatchError(f"{found.n} messages were read, and the snapshot has {told[0]}")
    return Reading(profile.read, wrote, end.at - begin.at, end.cpu_s - begin.cpu_s, exact)


class _Producer(threading.Thread):
    """Adds messages until it is stopped."""

    _AT_ONCE = 1_000

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self._dsn, self._ended, self._wrote = dsn, threading.Event(), 0

    def run(self) -> None:
        """Writes, and waits a little."""
        while not self._ended.wait(_PAUSE_S):
            asyncio.run(log.load(self._dsn, self._AT_ONCE, _PARTITIONS, generator.A_CALL, seed=self._wrote))
            self._wrote += self._AT_ONCE

    def stop(self) -> int:
        """How many it has written."""
        self._ended.set()
        self.join()
        return self._wrote
