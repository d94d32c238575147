"""Runs scenarios, one server after the other in turns, so that a noisy machine hits both alike."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psutil
from msgspec import Struct

from queen_bench import machine, usage
from queen_bench.load import k6
from queen_bench.load.results import OPERATIONS, Latency, Run, Second, stall_seconds
from queen_bench.load.scenarios import SCRIPTS, Scenario
from queen_bench.load.target import Target

#: Is told what comes next, and how much of the whole is done.
Progress = Callable[[str, float], None]

_TICK_S = 1.0
#: With fewer messages the bytes a message say more of the pages that happened to be full.
_WEIGHED = 10_000
_TRENDS = {"end_to_end_ms": "end_to_end", "woken_after_ms": "woken"}


class Plan(Struct, frozen=True):
    """What is run.

    Attributes:
        settings: environment for all scripts; wins over a scenario's own.
        seconds: of each run, which scripts know as DURATION.
        journal: whether the scripts write down every call.
    """

    scenarios: Sequence[Scenario]
    targets: Sequence[Target]
    runs: int
    settings: Mapping[str, str]
    seconds: int
    journal: bool


async def run(plan: Plan, folder: Path, progress: Progress) -> AsyncIterator[Run]:
    """The results, one by one. Files of each run, its journal among them, go to a folder of their own.

    Raises:
        QueenError: a server does not answer, or k6 cannot run.
    """
    versions = {target.name: await target.check() for target in plan.targets}
    total, done = plan.runs * len(plan.scenarios) * len(plan.targets), 0
    for scenario in plan.scenarios:
        for number in range(plan.runs):
            for target in plan.targets if number % 2 == 0 else plan.targets[::-1]:
                progress(f"{scenario.name}, run {number + 1}, {target.name}", done / total)
                place = folder / f"{scenario.name}-{number + 1}-{target.name}"
                place.mkdir(parents=True, exist_ok=True)
                yield await _Measured(plan, scenario, target, number + 1, place).run(versions[target.name])
                done += 1
    progress("done", 1.0)


class _Measured:
    """One run, and what is looked at while it goes on."""

    def __init__(self, plan: Plan, scenario: Scenario, target: Target, number: int, folder: Path) -> None:
        self._plan, self._scenario, self._target, self._number, self._folder = plan, scenario, target, number, folder
        self._timeline: list[Second] = []

    def _settings(self) -> dict[str, str]:
        own = {"QUEEN_URL": self._target.url, "PREFIX": f"bench-{uuid4().hex[:8]}"}
        if self._plan.journal:
            # The log has to stay for the audit.
            own |= {"JOURNAL": "1", "KEEP": "1"}
        return {"DURATION": f"{self._plan.seconds}s", **self._scenario.settings, **self._plan.settings, **own}

    async def run(self, version: str) -> Run:
        settings, started_at = self._settings(), datetime.now(UTC).isoformat(timespec="seconds")
        facts = machine.describe()
        server, postmaster = self._target.server_processes(), await self._target.postmaster()
        sizes = await self._target.sizes()
        before = _used(server, postmaster)
        async with k6.running(SCRIPTS / self._scenario.script, settings, self._folder) as load:
            spent = await self._watch(load, psutil.Process(load.pid))
            memory = usage.memory_bytes(server) or None
            after = _used(server, postmaster)
            outcome = await load.outcome()
        if self._plan.journal:
            from queen_bench.load import journal  # noqa: PLC0415 - needs pyarrow, which only audits bring along

            name = f"{self._scenario.name}-{self._number}-{self._target.name}"
            journal.convert(self._folder / "calls.log", self._folder / "journal.parquet", started_at, name, ended=True)
        counts = {name: int(values.get("count", 0)) for name, values in outcome.metrics.items()}
        pushed = counts.get("messages_pushed", 0)
        later = await self._target.sizes()
        grown = (later.tables - sizes.tables, later.wal - sizes.wal) if sizes and later and pushed >= _WEIGHED else None
        return Run(
            scenario=self._scenario.name, server=self._target.name, version=version, number=self._number,
            started_at=started_at, seconds=_seconds(outcome.metrics), settings=settings, pushed=pushed,
            delivered=counts.get("messages_delivered", 0), acked=counts.get("messages_acked", 0),
            dropped=counts.get("dropped_iterations", 0), crossed=outcome.crossed, latency=_latencies(outcome.metrics),
            cpu={name: after[name] - before[name] for name in before if name in after} | {"load": spent},
            memory_bytes=memory,
            table_bytes=grown[0] / pushed if grown else None, wal_bytes=grown[1] / pushed if grown else None,
            stall_s=stall_seconds(self._timeline), timeline=self._timeline, machine=facts,
        )  # fmt: skip

    async def _watch(self, load: k6.K6, generator: psutil.Process) -> float:
        """Counts every second until k6 ends; returns the CPU seconds that it took."""
        begin, spent, victim = time.monotonic(), 0.0, None
        if self._scenario.restarts:
            victim = await self._target.postmaster()
        while load.running():
            await asyncio.sleep(_TICK_S)
            counts = await load.counters()
            if counts:
                totals = [int(counts.get(name, 0)) for name in ("messages_pushed", "messages_delivered", "http_reqs")]
                self._timeline.append(Second(time.monotonic() - begin, *totals))
            try:
                times = generator.cpu_times()
            except psutil.NoSuchProcess:
                break
            spent = times.user + times.system
            if victim is not None and time.monotonic() - begin > self._plan.seconds / 2:
                victim.kill()
                victim = None
        return spent


def _used(server: list[psutil.Process], postmaster: psutil.Process | None) -> dict[str, float]:
    """CPU seconds so far; nothing of who is not there."""
    used = {"server": usage.cpu_seconds(server)} if server else {}
    if postmaster is not None and postmaster.is_running():
        used["postgres"] = usage.cpu_seconds(usage.family(postmaster))
    return used


def _seconds(metrics: Mapping[str, Mapping[str, float]]) -> float:
    """From the first to the last answer of the load itself."""
    moments = metrics.get("moment_ms", {})
    return max((moments.get("max", 0) - moments.get("min", 0)) / 1000, 0.001)


def _latencies(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, Latency]:
    names = {f"http_req_duration{{op:{operation}}}": operation for operation in OPERATIONS} | _TRENDS
    return {
        label: Latency(int(values["count"]), values["med"], values["p(95)"], values["p(99)"], values["max"])
        for name, label in names.items()
        if (values := metrics.get(name)) and values.get("count")
    }
