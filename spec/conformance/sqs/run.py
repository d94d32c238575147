"""A run for SQS: the scenarios, some at a time, and the cleaning up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ...guarantees import Check
from ..report import Report, Row
from ..results import outcome_of, rows_of
from ..session import Progress, Session, seed_or_new, server_at
from .client import Client, Keys
from .scenarios import Scenario, all_scenarios

_SCENARIO_S = 120.0
_CLEAN_UP_S = 30.0
_SHOWN_CHARS = 300

#: How many scenarios run at once.
PROFILES: Mapping[str, int] = MappingProxyType({"quick": 12, "default": 6})


@dataclass(kw_only=True)
class _Run(Session[Scenario, None]):
    at_once: int
    keys: Keys
    clients: list[Client] = field(default_factory=list)
    recommended = MappingProxyType({"DeleteMessage": "200 or 4xx", "ListQueues": "200 or 403"})

    async def judge(self) -> list[Row]:
        limit = asyncio.Semaphore(self.at_once)
        try:
            found = await asyncio.gather(*(self._scenario(*each, limit) for each in self.scenarios))
        finally:
            await self._clean_up()
        return [row for rows in found for row in rows]

    async def _scenario(self, check: Check, scenario: Scenario, limit: asyncio.Semaphore) -> list[Row]:
        async with limit:
            client = Client(self.server, self.keys, self.statuses)
            self.clients.append(client)
            result = await outcome_of(scenario(client), _SCENARIO_S)
        self.step(check)
        return rows_of(check, result, _calls(client) if result[0] == "invalid" else "")

    async def _clean_up(self) -> None:
        client = Client(self.server, self.keys, Counter())
        made = [url for each in self.clients for url in each.made]
        try:
            async with asyncio.timeout(_CLEAN_UP_S):
                await asyncio.gather(
                    *(client.call("DeleteQueue", QueueUrl=url) for url in made), return_exceptions=True
                )
        except TimeoutError:
            return


def _calls(client: Client) -> str:
    """What a client has sent and got: a line for each action."""
    lines = []
    for each in client.trace:
        answer = each.answer[:_SHOWN_CHARS].decode(errors="replace")
        lines.append(f"{each.method} {(each.body or b'').decode()} -> {each.status} {answer}\n")
    return "".join(lines)


def run(
    url: str,
    *,
    token: str | None = None,
    seed: int | None = None,
    profile: str = "default",
    only: Collection[str] = (),
    progress: Progress = lambda _done, _all, _last: None,
) -> Report:
    """Judge the endpoint of SQS at a URL; arguments as of `conformance.run`. Nothing depends on the seed.

    Raises:
        UnreachableError: no server listens there.
        ValueError: no check is about any of the guarantees.
    """
    session = _Run(
        server=server_at(url, token), seed=seed_or_new(seed), scenarios=all_scenarios(), checkers=[],
        only=frozenset(only), progress=progress, at_once=PROFILES[profile], keys=Keys.of_environment(),
    )  # fmt: skip
    return session.report(url, profile)
