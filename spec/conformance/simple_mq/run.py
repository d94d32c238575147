"""A run for simple-mq: the scenarios, some at a time, then the workload and its checkers, and the cleaning up."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from ...checkers import simple_mq as checkers
from ...guarantees import REGISTRY, Check
from ...simple_mq_history import SimpleMqHistory
from ..http import Server
from ..report import Report, Row, status_rows
from ..results import Result, failed, judged, place, rows_of, words
from ..run import UnreachableError
from .client import Client
from .scenarios import Scenario, all_scenarios
from .workload import Size, Workload

Progress: TypeAlias = Callable[[int, int, str], None]

_SCENARIO_S = 45.0
_WORKLOAD_S = 120.0
_CLEAN_UP_S = 30.0
_AT_ONCE = 6

PROFILES: Mapping[str, Size] = MappingProxyType(
    {
        "quick": Size(producers=2, consumers=6, messages=100, timeout_s=1),
        "default": Size(producers=4, consumers=12, messages=600),
    }
)

#: What the documents of simple-mq, or this interface, recommend where servers differ.
_RECOMMENDED = {
    "create a queue": "201",
    "enqueue": "201 or 429",
    "batch enqueue": "201 or 429",
    "malformed request": "400",
    "request for an unknown queue": "404",
    "poll of an unknown queue": "404",
    "ack": "200 or 404",
    "ack in another queue": "404",
    "show a deleted queue": "404",
    "requeue": "200 or 404",
    "extend what is not in flight": "409",
}


@dataclass
class _Run:
    server: Server
    seed: int
    size: Size
    progress: Progress
    only: frozenset[str] = frozenset()
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    made: list[str] = field(default_factory=list)
    done: int = 0

    async def rows(self) -> list[Row]:
        """All results, in the order of the catalogue."""
        try:
            await self.server.connect(timeout_s=10)
        except (OSError, TimeoutError) as problem:
            raise UnreachableError(str(problem) or "no connection within 10 s") from problem
        limit = asyncio.Semaphore(_AT_ONCE)
        try:
            found = await asyncio.gather(*(self._scenario(*each, limit) for each in self.scenarios))
            workload = await self._workload() if self.checkers else []
        finally:
            await self._clean_up()
        return sorted([row for rows in (*found, workload) for row in rows], key=place)

    @property
    def scenarios(self) -> list[tuple[Check, Scenario]]:
        """Those that are wanted."""
        return [each for each in all_scenarios() if self._wants(each[0])]

    @property
    def checkers(self) -> list[tuple[Check, checkers.SimpleMqChecker]]:
        """Those that are wanted."""
        return [each for each in _checkers() if self._wants(each[0])]

    def _wants(self, check: Check) -> bool:
        return not self.only or not self.only.isdisjoint(check.ids)

    async def _scenario(self, check: Check, scenario: Scenario, limit: asyncio.Semaphore) -> list[Row]:
        async with limit:
            client = Client(self.server, self.statuses, made=self.made)
            result = await _result(scenario(client), _SCENARIO_S)
        self._step(check)
        return rows_of(check, (result[0], result[1] or "; ".join(client.notes)))

    async def _workload(self) -> list[Row]:
        workload = Workload(self.server, self.size, self.seed, self.made, self.statuses)
        history: list[SimpleMqHistory] = []

        async def work() -> None:
            history.append(await workload.run())

        result = await _result(work(), _WORKLOAD_S)
        rows = []
        for check, checker in self.checkers:
            if history:
                result = judged(checker, history[0])
            rows += rows_of(check, result)
            self._step(check)
        return rows

    def _step(self, check: Check) -> None:
        self.done += 1
        self.progress(self.done, len(self.scenarios) + len(self.checkers), words(check))

    async def _clean_up(self) -> None:
        """Deletes all queues; dead-letter queues can only go after their parents, so everything is tried twice."""
        client = Client(self.server, Counter())
        try:
            async with asyncio.timeout(_CLEAN_UP_S):
                for _ in range(2):
                    await asyncio.gather(*(client.delete(queue) for queue in self.made), return_exceptions=True)
        except TimeoutError:
            return


async def _result(work: object, limit_s: float) -> Result:
    try:
        async with asyncio.timeout(limit_s):
            await work  # type: ignore[misc]
    except TimeoutError:
        return "unknown", f"not finished within {limit_s:g} s"
    except Exception as problem:  # whatever a broken server provokes is no reason to stop
        return failed(problem)
    return "valid", ""


def _checkers() -> list[tuple[Check, checkers.SimpleMqChecker]]:
    found = {check.name: check for check in REGISTRY if check.module == checkers.__name__}
    return [(found[checker.__name__], checker) for checker in checkers.CHECKERS]


def run(
    url: str,
    *,
    token: str | None = None,
    seed: int | None = None,
    profile: str = "default",
    only: Collection[str] = (),
    progress: Progress = lambda _done, _all, _last: None,
) -> Report:
    """Judge the server at a URL by the interface of simple-mq; arguments as of `conformance.run`.

    Raises:
        UnreachableError: nobody listens there.
        ValueError: no check is about any of the guarantees.
    """
    seed = secrets.randbelow(1_000_000_000) if seed is None else seed
    try:
        server = Server.at(url, token)
    except ValueError as problem:
        raise UnreachableError(str(problem)) from problem
    began = time.monotonic()
    run_ = _Run(server, seed, PROFILES[profile], progress, frozenset(only))
    if not run_.scenarios and not run_.checkers:
        raise ValueError(f"no check here is about {', '.join(sorted(only))}")
    rows = asyncio.run(run_.rows())
    statuses = status_rows(run_.statuses, _RECOMMENDED)
    return Report(url, seed, profile, time.monotonic() - began, tuple(rows), statuses)
