"""Runs scenarios, one server after the other in turns, so that a noisy machine hits both alike."""

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import uuid4

import msgspec
import psutil
from msgspec import Struct

from queen_bench import machine, profile, usage
from queen_bench.load import k6, record
from queen_bench.load.results import (
    OPERATIONS,
    Latency,
    Level,
    Run,
    Second,
    Used,
    Weight,
    bytes_a_message,
    folder_of,
    stall_seconds,
    used,
)
from queen_bench.load.scenarios import SCRIPTS, SECRETS, Scenario
from queen_bench.load.target import Target, TargetError

#: Is told what comes next, and how much of the whole is done.
Progress = Callable[[str, float], None]

_TICK_S = 1.0
#: Memory and tables are looked at so many times a run, but not more often than every so many seconds.
_LEVELS, _LEVEL_S_MIN = 60, 5.0
_USER = re.compile(r"//[^/@]*@")
#: The setting of a script by which messages are deleted while they are counted.
_RETENTION = "RETENTION_S"
#: How long the maximum is looked for of which a scenario takes a share.
_SEARCH_S = 15
_TRENDS = {f"http_req_duration{{op:{operation}}}": operation for operation in OPERATIONS} | {
    "end_to_end_ms": "end_to_end",
    "woken_after_ms": "woken",
}
_PERCENTILES = ("med", "p(90)", "p(95)", "p(99)", "p(99.9)", "max")


class Plan(Struct, frozen=True):
    """What is run.

    Attributes:
        settings: environment for all scripts; wins over a scenario's own.
        seconds: of each run, which scripts know as DURATION; ``None``: as long as a scenario says.
        session: the beginning of it all; the folder of its files.
        journal: whether the scripts write down every call.
        profile: whether flame graphs of the server are made.
    """

    scenarios: Sequence[Scenario]
    targets: Sequence[Target]
    runs: int
    settings: Mapping[str, str]
    seconds: int | None
    session: str
    journal: bool = False
    profile: bool = False


async def run(plan: Plan, folder: Path, progress: Progress) -> AsyncIterator[Run]:
    """The results, one by one. Files of each run, its journal among them, go to a folder of their own.

    Raises:
        QueenError: a server does not answer, or k6 or py-spy cannot run.
    """
    facts = {target.name: _Facts(await target.check(), k6.version()) for target in plan.targets}
    total, done = plan.runs * len(plan.scenarios) * len(plan.targets), 0
    for scenario in plan.scenarios:
        given = await _share_of_maximum(plan, scenario, progress, done / total)
        for number in range(plan.runs):
            for target in plan.targets if number % 2 == 0 else plan.targets[::-1]:
                what = f"{scenario.name}, run {number + 1}, {target.name}"
                place = folder / folder_of(plan.session, scenario.name, number + 1, target.name)
                try:
                    place.mkdir(parents=True)
                except OSError as problem:
                    raise TargetError(f"{place} cannot be made: {problem.strerror}") from problem
                measured = _Measured(given, scenario, target, number + 1, place)
                advance = partial(_advance, progress, what, done, total)
                yield await measured.run(facts[target.name], advance)
                measured.write_journal()
                done += 1
    progress("done", 1.0)


def _advance(progress: Progress, what: str, done: int, total: int, part: float) -> None:
    progress(what, (done + min(part, 1.0)) / total)


async def _share_of_maximum(plan: Plan, scenario: Scenario, progress: Progress, done: float) -> Plan:
    """The plan with the RATE of a scenario that wants a share of what the first server can do."""
    if not scenario.share or "RATE" in plan.settings or "SMOKE" in plan.settings:
        return plan
    progress(f"{scenario.name}: the most that {plan.targets[0].name} can do", done)
    search = msgspec.structs.replace(
        plan, settings={**plan.settings, "SHAPE": "max"}, seconds=_SEARCH_S, journal=False, profile=False
    )
    with tempfile.TemporaryDirectory(prefix="queen-bench-") as folder:
        measured = _Measured(search, scenario, plan.targets[0], 0, Path(folder))
        found = await measured.run(_Facts("", ""), lambda _: None)
    rate = max(1, round(scenario.share * min(found.pushed, found.delivered) / found.seconds))
    return msgspec.structs.replace(plan, settings={**plan.settings, "RATE": str(rate)})


class _Facts(Struct, frozen=True):
    server: str
    load: str


class _Measured:
    """One run, and what is looked at while it goes on."""

    def __init__(self, plan: Plan, scenario: Scenario, target: Target, number: int, folder: Path) -> None:
        self._plan, self._scenario, self._target, self._number, self._folder = plan, scenario, target, number, folder
        self._seconds = plan.seconds or scenario.seconds
        self._timeline: list[Second] = []
        self._levels: list[Level] = []
        self._weights: list[Weight] = []
        self._killed_ns: int | None = None

    def _period_s(self) -> int:
        """Latency over time has as many points in a long run as in one of a minute."""
        return max(1, self._seconds // 60)

    def _settings(self) -> dict[str, str]:
        own = {
            "QUEEN_URL": self._target.url, "PREFIX": f"bench-{uuid4().hex[:8]}", "SCENARIO": self._scenario.name,
            "SERVER": self._target.name,
        }  # fmt: skip
        if self._plan.journal:
            # The log has to stay for the audit.
            own |= {"JOURNAL": "1", "KEEP": "1"}
        return {"DURATION": f"{self._seconds}s", **self._scenario.settings, **self._plan.settings, **own}

    async def run(self, versions: _Facts, advance: Callable[[float], None]) -> Run:
        """The result; ``advance`` is told every second which part of the time is over."""
        settings, started_at = self._settings(), datetime.now(UTC).isoformat(timespec="seconds")
        facts = machine.describe()
        server, postmaster = self._target.server_processes(), await self._target.postmaster()
        if self._scenario.restarts and postmaster is None:
            raise TargetError("A scenario kills PostgreSQL in the middle, and it does not even answer at the beginning")
        if not self._plan.journal:
            await self._target.compact()
        # Of one that is killed in the middle nobody knows what it used.
        counted = None if self._scenario.restarts else postmaster
        script = SCRIPTS / self._scenario.script
        begin, before = time.monotonic(), _spent(server, counted)
        async with k6.running(script, settings, self._folder, self._period_s()) as load:
            workers = _python(server) if self._plan.profile else []
            async with profile.flame_graphs(workers, self._folder) as graphs:
                victim = postmaster if self._scenario.restarts else None
                await self._watch(load, server, counted, victim, advance)
            memory = usage.memory_bytes(server) or None
            outcome = await load.outcome()
        after, seconds = _spent(server, counted), time.monotonic() - begin
        missed = _missed_kill(self._killed_ns, outcome.metrics) if self._scenario.restarts else []
        counts = {name: int(values.get("count", 0)) for name, values in outcome.metrics.items()}
        pushed, delivered = counts.get("messages_pushed", 0), counts.get("messages_delivered", 0)
        table_bytes, wal_bytes = bytes_a_message(self._weights, pushed)
        load_s = max([moment.cpu.get("load", 0.0) for moment in self._timeline], default=0.0)
        cpu = {name: after[name] - before[name] for name in before if name in after} | {"load": load_s}
        # What preparation took is not known apart.
        whole = Used(delivered or pushed, seconds, {} if counts.get("messages_prepared") else cpu)
        return Run(
            scenario=self._scenario.name, server=self._target.name, version=versions.server, number=self._number,
            session=self._plan.session, started_at=started_at, seconds=_seconds(outcome.metrics),
            settings=shown(settings), pushed=pushed, delivered=delivered, acked=counts.get("messages_acked", 0),
            dropped=counts.get("dropped_iterations", 0), crossed=[*outcome.crossed, *missed],
            latency=_latencies(outcome.metrics),
            used=used(self._timeline, whole), memory_bytes=memory,
            table_bytes=table_bytes if settings.get(_RETENTION, "0") == "0" else None, wal_bytes=wal_bytes,
            stall_s=stall_seconds(self._timeline), timeline=self._timeline,
            moments=list(record.moments(self._folder / k6.RECORD, _TRENDS)), levels=self._levels, machine=facts,
            postgres=await self._target.describe(), load=versions.load, profiles=[path.name for path in graphs],
            workers=self._target.workers,
        )  # fmt: skip

    async def _watch(
        self,
        load: k6.K6,
        server: Sequence[psutil.Process],
        postmaster: psutil.Process | None,
        victim: psutil.Process | None,
        advance: Callable[[float], None],
    ) -> None:
        """Looks every second until k6 ends, and kills the victim in the middle."""
        begin, next_level = time.monotonic(), 0.0
        while load.running():
            await asyncio.sleep(_TICK_S)
            at = time.monotonic() - begin
            advance(at / self._seconds)
            if (counters := await load.counters()) is not None:
                cpu = _spent(server, postmaster) | {"load": load.cpu_seconds()}
                self._timeline.append(_second(at, counters, cpu))
            if at >= next_level:
                await self._look(at, server, counters)
                next_level = at + max(_LEVEL_S_MIN, self._seconds / _LEVELS)
            loading = counters is not None and counters.loading
            if victim is not None and loading and at > self._seconds / 2:
                self._killed_ns = time.time_ns()
                victim.kill()
                victim = None

    async def _look(self, at: float, server: Sequence[psutil.Process], counters: k6.Counters | None) -> None:
        sizes = await self._target.sizes()
        self._levels.append(Level(at, usage.memory_bytes(server) or None, sizes.tables if sizes else None))
        if sizes is not None and counters is not None and counters.loading:
            self._weights.append(Weight(counters.pushed, sizes.tables, sizes.wal))

    def write_journal(self) -> None:
        """Makes a journal of what k6 wrote down, if it was to.

        Raises:
            LoadError: an answer was none of the interface.
        """
        if self._plan.journal:
            from queen_bench.load import faults, journal  # noqa: PLC0415 - needs pyarrow, which only audits bring along

            name = f"{self._scenario.name}-{self._number}-{self._target.name} {self._plan.session}"
            lines, place = self._folder / "calls.log", self._folder / "journal.parquet"
            journal.convert(lines, place, self._plan.session, name, ended=True)
            if self._killed_ns is not None:
                faults.write(self._folder / "faults.jsonl", self._plan.session, name, self._killed_ns)


def shown(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as results and page have them: without tokens, and without user and password in an address."""
    return {name: "…" if name in SECRETS else _USER.sub("//…@", value) for name, value in settings.items()}


def _second(at: float, counters: k6.Counters, cpu: Mapping[str, float]) -> Second:
    return Second(at, counters.pushed, counters.delivered, counters.requests, cpu, counters.loading)


def _spent(server: Sequence[psutil.Process], postmaster: psutil.Process | None) -> dict[str, float]:
    """CPU seconds so far; nothing of who is not there."""
    found = {"server": usage.cpu_seconds(server)} if server else {}
    if postmaster is not None and postmaster.is_running():
        found["postgres"] = usage.cpu_seconds(usage.family(postmaster))
    return found


def _python(server: Sequence[psutil.Process]) -> list[int]:
    """Those of the server's processes that have no children: the workers."""
    return [process.pid for process in server if not [each for each in server if each.ppid() == process.pid]]


def _seconds(metrics: Mapping[str, Mapping[str, float]]) -> float:
    """From the first to the last answer of the load itself."""
    moments = metrics.get("moment_ms", {})
    return max((moments.get("max", 0) - moments.get("min", 0)) / 1000, 0.001)


def _missed_kill(killed_ns: int | None, metrics: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What a run has not done that is to kill PostgreSQL between the first and the last answer of its load."""
    load = metrics.get("moment_ms", {})
    if killed_ns is not None and load.get("min", 0) <= killed_ns / 1_000_000 <= load.get("max", 0):
        return []
    return ["PostgreSQL was not killed while load went on: give more --seconds"]


def _latencies(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, Latency]:
    return {
        label: Latency(int(values["count"]), *(values[name] for name in _PERCENTILES))
        for name, label in _TRENDS.items()
        if (values := metrics.get(name)) and values.get("count")
    }
