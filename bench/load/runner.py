"""Runs scenarios, with the servers in turns, so that noise on the machine hits both alike."""

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import uuid4

import msgspec
import psutil
from msgspec import Struct

from bench import machine, meter, profile
from bench.load import k6, sockets
from bench.load.generator import Counters, Generator, Outcome
from bench.load.results import (
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
from bench.load.scenarios import SCRIPTS, SECRETS, Scenario
from bench.load.target import Target, TargetError

#: Called with the next step and the share of the whole that is done.
Progress = Callable[[str, float], None]

_TICK_S = 1.0
#: Number of samples of memory and tables per run, and minimum seconds between two.
_LEVELS, _LEVEL_S_MIN = 60, 5.0
_USER = re.compile(r"//[^/@]*@")
#: The setting of a script that deletes messages during the run.
_RETENTION = "RETENTION_S"
#: Seconds to measure the maximum rate, of which a scenario takes a share.
_SEARCH_S = 15


class Plan(Struct, frozen=True):
    """The plan of a session.

    Attributes:
        settings: environment for all scripts; overrides that of a scenario.
        seconds: of each run, DURATION in scripts; ``None``: the scenario decides.
        session: its start; names the folder of its files.
        journal: whether the scripts record every call.
        profile: whether to make flame graphs of the server.
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
    versions = {target.name: await target.check() for target in plan.targets}
    loads = {scenario.name: _version(scenario) for scenario in plan.scenarios}
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
                    raise TargetError(f"{place} cannot be created: {problem.strerror}") from problem
                measured = _Measured(given, scenario, target, number + 1, place)
                advance = partial(_advance, progress, what, done, total)
                yield await measured.run(versions[target.name], loads[scenario.name], advance)
                measured.write_journal()
                done += 1
    progress("done", 1.0)


def _advance(progress: Progress, what: str, done: int, total: int, part: float) -> None:
    progress(what, (done + min(part, 1.0)) / total)


async def _share_of_maximum(plan: Plan, scenario: Scenario, progress: Progress, done: float) -> Plan:
    """The plan with the RATE of a scenario that needs a share of the first server's maximum."""
    if not scenario.share or "RATE" in plan.settings or "SMOKE" in plan.settings:
        return plan
    progress(f"{scenario.name}: maximum of {plan.targets[0].name}", done)
    search = msgspec.structs.replace(
        plan, settings={**plan.settings, "SHAPE": "max"}, seconds=_SEARCH_S, journal=False, profile=False
    )
    with tempfile.TemporaryDirectory(prefix="queen-bench-") as folder:
        measured = _Measured(search, scenario, plan.targets[0], 0, Path(folder))
        found = await measured.run("", "", lambda _: None)
    rate = max(1, round(scenario.share * min(found.pushed, found.delivered) / found.seconds))
    return msgspec.structs.replace(plan, settings={**plan.settings, "RATE": str(rate)})


def _version(scenario: Scenario) -> str:
    return k6.version() if scenario.by_k6 else sockets.version()


class _Measured:
    """One run and its samples."""

    def __init__(self, plan: Plan, scenario: Scenario, target: Target, number: int, folder: Path) -> None:
        self._plan, self._scenario, self._target, self._number, self._folder = plan, scenario, target, number, folder
        self._seconds = plan.seconds or scenario.seconds
        self._timeline: list[Second] = []
        self._levels: list[Level] = []
        self._weights: list[Weight] = []
        self._killed_ns: int | None = None

    def _period_s(self) -> int:
        """A long run has as many points of latency as one of a minute."""
        return max(1, self._seconds // 60)

    def _settings(self) -> dict[str, str]:
        own = {
            "QUEEN_URL": self._target.url, "PREFIX": f"bench-{uuid4().hex[:8]}", "SCENARIO": self._scenario.name,
            "SERVER": self._target.name,
        }  # fmt: skip
        if self._plan.journal:
            # The audit needs the log.
            own |= {"JOURNAL": "1", "KEEP": "1"}
        return {"DURATION": f"{self._seconds}s", **self._scenario.settings, **self._plan.settings, **own}

    def _load(self, settings: Mapping[str, str]) -> AbstractAsyncContextManager[Generator]:
        name, period_s = self._scenario.script, self._period_s()
        if self._scenario.by_k6:
            return k6.running(SCRIPTS / name, settings, self._folder, period_s)
        return sockets.running(name, settings, self._folder, period_s)

    async def run(self, version: str, load_version: str, advance: Callable[[float], None]) -> Run:
        """The result.

        Args:
            version: of the server.
            load_version: of the load generator.
            advance: called every second with the share of the elapsed time.
        """
        settings, started_at = self._settings(), datetime.now(UTC).isoformat(timespec="seconds")
        facts = machine.describe()
        server, (counted, victim) = self._target.server_processes(), await self._postmaster()
        if not self._plan.journal:
            await self._target.compact()
        begin, before = time.monotonic(), self._spent(server, counted)
        async with self._load(settings) as load:
            workers = [each.pid for each in self._target.worker_processes()] if self._plan.profile else []
            async with profile.flame_graphs(workers, self._folder) as graphs:
                await self._watch(load, server, counted, victim, advance)
            memory = meter.memory_bytes(server) or None
            outcome = await load.outcome()
        after, seconds = self._spent(server, counted), time.monotonic() - begin
        missed = _missed_kill(self._killed_ns, outcome) if victim else []
        table_bytes, wal_bytes = bytes_a_message(self._weights, outcome.pushed)
        cpu = {name: after[name] - before[name] for name in before if name in after}
        return Run(
            scenario=self._scenario.name, server=self._target.name, version=version, number=self._number,
            session=self._plan.session, started_at=started_at,
            seconds=max((outcome.ended_ms - outcome.began_ms) / 1000, 0.001), settings=shown(settings),
            pushed=outcome.pushed, delivered=outcome.delivered, acked=outcome.acked, dropped=outcome.dropped,
            crossed=[*outcome.crossed, *missed], latency=outcome.latency,
            used=used(self._timeline, self._whole(outcome, seconds, cpu)), memory_bytes=memory,
            table_bytes=table_bytes if settings.get(_RETENTION, "0") == "0" else None, wal_bytes=wal_bytes,
            stall_s=stall_seconds(self._timeline), timeline=self._timeline, moments=outcome.moments,
            levels=self._levels, machine=facts, postgres=await self._target.describe(), load=load_version,
            profiles=[path.name for path in graphs], workers=self._target.workers,
        )  # fmt: skip

    async def _postmaster(self) -> tuple[psutil.Process | None, psutil.Process | None]:
        """The process of PostgreSQL twice: as the one whose CPU is known, or as the one to kill.

        Raises:
            TargetError: it is to be killed, and is not known.
        """
        postmaster = await self._target.postmaster()
        if not self._scenario.restarts:
            return postmaster, None
        if postmaster is None:
            raise TargetError(
                "A scenario kills PostgreSQL in the middle of the run, but PostgreSQL does not answer at its beginning"
            )
        return None, postmaster

    def _whole(self, outcome: Outcome, seconds: float, cpu: Mapping[str, float]) -> Used:
        """What the run used; the CPU of a preparation is not known separately."""
        load_s = max([moment.cpu.get("load", 0.0) for moment in self._timeline], default=0.0)
        known = {} if outcome.prepared else {**cpu, "load": load_s}
        return Used(outcome.delivered or outcome.pushed, seconds, known)

    async def _watch(
        self,
        load: Generator,
        server: Sequence[psutil.Process],
        postmaster: psutil.Process | None,
        victim: psutil.Process | None,
        advance: Callable[[float], None],
    ) -> None:
        """Takes a sample every second until the load ends, and kills the victim in the middle."""
        begin, next_level = time.monotonic(), 0.0
        while load.running():
            await asyncio.sleep(_TICK_S)
            at = time.monotonic() - begin
            advance(at / self._seconds)
            if (counters := await load.counters()) is not None:
                cpu = self._spent(server, postmaster) | {"load": load.cpu_seconds()}
                self._timeline.append(_second(at, counters, cpu))
            if at >= next_level:
                await self._look(at, server, counters)
                next_level = at + max(_LEVEL_S_MIN, self._seconds / _LEVELS)
            loading = counters is not None and counters.loading
            if victim is not None and loading and at > self._seconds / 2:
                self._killed_ns = time.time_ns()
                victim.kill()
                victim = None

    def _spent(self, server: Sequence[psutil.Process], postmaster: psutil.Process | None) -> dict[str, float]:
        """CPU seconds so far, without processes that do not exist."""
        found = {"server": meter.cpu_seconds(server)} if server else {}
        if postmaster is not None and postmaster.is_running():
            found["postgres"] = meter.cpu_seconds(meter.family(postmaster))
        elif not self._target.has_postgres:
            found["postgres"] = 0.0
        return found

    async def _look(self, at: float, server: Sequence[psutil.Process], counters: Counters | None) -> None:
        sizes = await self._target.sizes()
        self._levels.append(Level(at, meter.memory_bytes(server) or None, sizes.tables if sizes else None))
        if sizes is not None and counters is not None and counters.loading:
            self._weights.append(Weight(counters.pushed, sizes.tables, sizes.wal))

    def write_journal(self) -> None:
        """Writes the journal of the recorded calls, if requested; a broker has none.

        Raises:
            LoadError: an answer does not conform to the interface.
        """
        if self._plan.journal and self._target.has_postgres:
            from bench.load import journal  # noqa: PLC0415 - needs pyarrow, which only audits bring along

            name = f"{self._scenario.name}-{self._number}-{self._target.name} {self._plan.session}"
            lines, place = self._folder / "calls.log", self._folder / "journal.parquet"
            journal.convert(lines, place, self._plan.session, name, ended=True)
            if self._killed_ns is not None:
                journal.write_kill(self._folder / "faults.jsonl", self._plan.session, name, self._killed_ns)


def shown(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings for results and page: without tokens, and without user and password in an address."""
    return {name: "…" if name in SECRETS else _USER.sub("//…@", value) for name, value in settings.items()}


def _second(at: float, counters: Counters, cpu: Mapping[str, float]) -> Second:
    return Second(at, counters.pushed, counters.delivered, counters.requests, cpu, counters.loading)


def _missed_kill(killed_ns: int | None, outcome: Outcome) -> list[str]:
    """The problem of a run that should kill PostgreSQL between the first and the last answer, but did not."""
    if killed_ns is not None and outcome.began_ms <= killed_ns / 1_000_000 <= outcome.ended_ms:
        return []
    return ["PostgreSQL was not killed during the load: give more --seconds"]
