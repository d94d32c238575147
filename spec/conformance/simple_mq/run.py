"""A run for simple-mq: the scenarios, some at a time, then the workload and its checkers, and the cleaning up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ...checkers import simple_mq as checkers
from ...guarantees import GUARANTEES, REGISTRY, Check
from ...simple_mq_history import SimpleMqHistory
from ..program import calls_about, script
from ..report import Report, Row
from ..results import judged, outcome_of, rows_of
from ..session import Progress, Session, seed_or_new, server_at
from .client import Client
from .scenarios import Scenario, all_scenarios
from .workload import Size, Workload

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


@dataclass(kw_only=True)
class _Run(Session[Scenario, checkers.SimpleMqChecker]):
    size: Size
    made: list[str] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    recommended = _RECOMMENDED

    async def judge(self) -> list[Row]:
        limit = asyncio.Semaphore(_AT_ONCE)
        try:
            found = await asyncio.gather(*(self._scenario(*each, limit) for each in self.scenarios))
            workload = await self._workload() if self.checkers else []
        finally:
            await self._clean_up()
        return [row for rows in (*found, workload) for row in rows]

    async def _scenario(self, check: Check, scenario: Scenario, limit: asyncio.Semaphore) -> list[Row]:
        async with limit:
            client = Client(self.server, self.statuses, trace=[])
            self.clients.append(client)
            result = await outcome_of(scenario(client), _SCENARIO_S)
        self.step(check)
        evidence = self._script(check, client, result[1]) if result[0] == "invalid" else ""
        return rows_of(check, (result[0], result[1] or "; ".join(client.notes)), evidence)

    def _script(self, check: Check, client: Client, seen: str) -> str:
        what = "; ".join(f"{id_}: {GUARANTEES[id_].statement}" for id_ in check.ids)
        # A broken server may have named a queue in any way.
        return script(self.server.url, client.trace or (), list(map(str, client.made)), "", what, seen)

    async def _workload(self) -> list[Row]:
        workload = Workload(self.server, self.size, self.seed, self.made, self.statuses)
        history: list[SimpleMqHistory] = []

        async def work() -> None:
            history.append(await workload.run())

        result = await outcome_of(work(), _WORKLOAD_S)
        rows = []
        for check, checker in self.checkers:
            evidence = ""
            if history:
                result, subject = judged(checker, history[0])
                evidence = calls_about(history[0].records, subject) if subject else ""
            rows += rows_of(check, result, evidence)
            self.step(check)
        return rows

    async def _clean_up(self) -> None:
        """Deletes all queues; dead-letter queues can only go after their parents, so everything is tried twice."""
        client = Client(self.server, Counter())
        try:
            async with asyncio.timeout(_CLEAN_UP_S):
                made = [*self.made, *(queue for each in self.clients for queue in each.made)]
                for _ in range(2):
                    await asyncio.gather(*map(client.delete, made), return_exceptions=True)
        except TimeoutError:
            return


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
        UnreachableError: no server listens there.
        ValueError: no check is about any of the guarantees.
    """
    session = _Run(
        server=server_at(url, token), seed=seed_or_new(seed), scenarios=all_scenarios(), checkers=_checkers(),
        only=frozenset(only), progress=progress, size=PROFILES[profile],
    )  # fmt: skip
    return session.report(url, profile)
