"""A run: the scenarios, some concurrently, then the workload and the checkers, and finally the cleanup."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ..checkers import Checker, all_checkers
from ..guarantees import GUARANTEES, Check
from ..history import History
from .broker import Broker, UnavailableError
from .http import NoAnswerError
from .lab import Lab, MissingError, NotPreparedError
from .offers import Offer, offered_by, why_not
from .pace import Pace
from .program import calls_about, script
from .report import RECOMMENDED, Report, Row
from .results import Result, failed, judged, rows_of, words
from .scenarios import Scenario, all_scenarios
from .session import Progress, Session, seed_or_new, server_at
from .workload import Size, Workload

_PROBE_S = 10.0
_CLEAN_UP_S = 20.0
#: The same where the server does not answer any more.
_FAREWELL_S = 4.0
#: Producers of the workload get this share of the time that is left: everything has to be drained, too.
_PRODUCING_SHARE = 0.4
_SILENT_SCENARIOS_MAX = 6
#: A scenario is repeated if it fails by time while answers take longer than this, or if the server postpones it.
_SLOW_S, _ATTEMPTS, _PAUSE_S = 0.1, 4, 1.0
#: And once if it misses something: then it waits so long after each push.
_SETTLE_S = 0.5
#: Scenarios without short times use leases of 30 s.
_LEASE_S = 25.0


@dataclass(frozen=True, slots=True)
class Profile:
    """How thorough a run is, and how long it and its parts may take."""

    size: Size
    run_s: float
    scenario_s: float = 45.0
    at_once: int = 6


PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        "quick": Profile(Size(producers=3, consumers=6, pushes=40), run_s=90.0),
        "default": Profile(Size(producers=6, consumers=12, pushes=150), run_s=170.0),
    }
)


@dataclass(kw_only=True)
class _Run(Session[Scenario, Checker]):
    profile: Profile
    fail_fast: bool = False
    queues: list[str] = field(default_factory=list)
    labs: list[Lab] = field(default_factory=list)
    pace: Pace = field(default_factory=Pace)
    name: str = field(default_factory=lambda: f"verify-{secrets.token_hex(5)}")
    deadline: float = 0.0
    offered: Offer = field(default_factory=Offer)
    silent: int = 0
    recommended = RECOMMENDED

    async def judge(self) -> list[Row]:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        self.deadline = time.monotonic() + self.profile.run_s
        if problem := await self._probe():
            return list(self._without_result(problem))
        try:
            limit = asyncio.Semaphore(self.profile.at_once)
            self.offered = await offered_by(self.server)
            labs = [self._run_scenario(number, *each, limit) for number, each in enumerate(self.scenarios)]
            found = await asyncio.gather(*labs)
            refuted = any(row.result == "invalid" for rows in found for row in rows)
            workload = await self._run_workload() if self.checkers and not (refuted and self.fail_fast) else []
        finally:
            await self._clean_up()
        return [row for rows in (*found, workload) for row in rows]

    async def _probe(self) -> str:
        """Why there is nothing to be judged, if so."""
        try:
            await self.server.request("GET", "/health", timeout_s=_PROBE_S)
        except NoAnswerError as problem:
            return f"the server does not speak HTTP: {problem}"
        return ""

    def _without_result(self, problem: str) -> Iterator[Row]:
        for check, _ in (*self.scenarios, *self.checkers):
            yield from rows_of(check, ("unknown", problem))

    async def _run_scenario(self, number: int, check: Check, scenario: Scenario, limit: asyncio.Semaphore) -> list[Row]:
        async with limit:
            rows = await self._judge_scenario(number, check, scenario)
        self.step(check)
        return rows

    async def _judge_scenario(self, number: int, check: Check, scenario: Scenario) -> list[Row]:
        """The rows of a scenario: it is carried out if it is about something that the server offers."""
        rows, asked = self._not_offered(check)
        if asked:
            result, lab = await self._carry_out(scenario, f"{self.name}-{number}")
            rows += rows_of(asked, result, self._script(asked, lab, result[1]) if result[0] == "invalid" else "")
        return rows

    def _not_offered(self, check: Check) -> tuple[list[Row], Check | None]:
        """Rows of the guarantees that are not to be judged, and the check of the others."""
        reasons = {id_: why_not(id_, self.offered) for id_ in check.ids}
        rows = [Row(id_, words(check), "skipped", reason) for id_, reason in reasons.items() if reason]
        left = tuple(id_ for id_, reason in reasons.items() if not reason)
        return rows, replace(check, ids=left) if left else None

    def _script(self, check: Check, lab: Lab, seen: str) -> str:
        """What shows by hand what a scenario has seen."""
        what = "; ".join(f"{id_}: {GUARANTEES[id_].statement}" for id_ in check.ids)
        return script(self.server.url, lab.broker.trace or (), lab.made, lab.name, what, seen)

    async def _carry_out(self, scenario: Scenario, name: str) -> tuple[Result, Lab]:
        """The result of the last attempt: one that a faster or later moment might change is followed by another."""
        settle_s = 0.0
        for attempt in range(1, _ATTEMPTS + 1):
            broker, began = Broker(self.server, self.statuses, pace=self.pace, trace=[]), time.monotonic()
            lab = Lab(
                broker, f"{name}-{attempt}", short_s=2 ** (attempt - 1), settle_s=settle_s,
                over_several=self.offered.over_several,
            )  # fmt: skip
            self.labs.append(lab)
            try:
                result, text = await self._attempt(scenario, lab)
            except UnavailableError as problem:
                result, text = failed(problem)
                await asyncio.sleep(_PAUSE_S)
                continue
            if lab.misses and not settle_s:
                result, settle_s = "unknown", _SETTLE_S
                continue
            excuse = self._excuse(lab, began) if result == "invalid" else ""
            if not excuse:
                break
            result, text = "unknown", f"{text} (attempt {attempt}, {excuse})"
        return (result, text), lab

    def _excuse(self, lab: Lab, began: float) -> str:
        """Why a server that keeps the guarantee may have looked as if it did not, if so."""
        slowest_s, took_s = self.pace.slowest_since(began), time.monotonic() - began
        if lab.is_timed and slowest_s > _SLOW_S * lab.short_s:
            return f"while the slowest answer took {slowest_s:.1f} s"
        if not lab.is_timed and took_s > _LEASE_S:
            return f"which took {took_s:.0f} s, nearly as long as its leases"
        return ""

    async def _attempt(self, scenario: Scenario, lab: Lab) -> Result:
        """The result of a scenario.

        Raises:
            UnavailableError: the server puts it off.
        """
        if self._is_gone:
            return _GONE
        seconds = min(self.profile.scenario_s, self.deadline - time.monotonic())
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await scenario(lab)
        except TimeoutError:
            return "unknown", f"not finished within {max(seconds, 0):.0f} s"
        except UnavailableError:
            raise
        except Exception as problem:  # no exception that a broken server causes may stop the run
            self.silent += isinstance(problem, NoAnswerError)
            lab.misses = isinstance(problem, MissingError | NotPreparedError)
            return failed(problem)
        self.silent = 0
        return "valid", "; ".join(dict.fromkeys(lab.notes))

    @property
    def _is_gone(self) -> bool:
        """Whether the other scenarios need not be tried, because too many had no answer."""
        return self.silent >= _SILENT_SCENARIOS_MAX

    async def _run_workload(self) -> list[Row]:
        self.queues += [queue := f"{self.name}-work", target := f"{self.name}-target"]
        now = time.monotonic()
        until = now + _PRODUCING_SHARE * (self.deadline - now)
        workload = Workload(
            self.server, self.profile.size, self.seed, queue, target, self.statuses, until,
            over_several=self.offered.over_several,
        )  # fmt: skip
        problem = _GONE[1] if self._is_gone else await self._work(workload)
        history, rows = History(tuple(workload.records)), []
        for check, checker in self.checkers:
            result, subject = judged(checker, history)
            # The history of an unfinished workload can refute guarantees, but not confirm them.
            unknown = problem and result[0] != "invalid"
            evidence = calls_about(history.records, subject) if subject else ""
            rows += rows_of(check, ("unknown", problem) if unknown else result, evidence)
            self.step(check)
        return rows

    async def _work(self, workload: Workload) -> str:
        """Why the workload has no result, if so."""
        try:
            async with asyncio.timeout(max(self.deadline - time.monotonic(), 0)):
                await workload.run()
        except TimeoutError:
            return f"the run was not finished within {self.profile.run_s:g} s"
        except Exception as problem:  # as above
            return failed(problem)[1]
        return ""

    async def _clean_up(self) -> None:
        """Delete all that was made; what cannot be deleted stays."""
        limit_s = _FAREWELL_S if self._is_gone else _CLEAN_UP_S
        try:
            async with asyncio.timeout(limit_s):
                await self.server.settle(timeout_s=limit_s / 2)
                made = [*self.queues, *(queue for lab in self.labs for queue in lab.made)]
                await asyncio.gather(*map(self._delete, made), return_exceptions=True)
        except TimeoutError:
            return

    async def _delete(self, queue: str) -> None:
        """Delete a queue; what a broken connection carries away is asked for again."""
        broker = Broker(self.server, self.statuses)
        for _ in range(_ATTEMPTS):
            try:
                await broker.delete(queue)
            except (NoAnswerError, UnavailableError):
                await asyncio.sleep(_PAUSE_S)
            else:
                return


_GONE: Result = ("unknown", "not tried, because the server does not answer any more")


def run(
    url: str,
    *,
    token: str | None = None,
    seed: int | None = None,
    profile: str = "default",
    only: Collection[str] = (),
    fail_fast: bool = False,
    progress: Progress = lambda _done, _all, _last: None,
) -> Report:
    """Judge the server at a URL.

    Args:
        url: such as ``http://127.0.0.1:6632``.
        token: sent as `Authorization: Bearer`.
        seed: of the workload's choices; a new one if none is given.
        profile: a key of `PROFILES`.
        only: run the checks of these guarantees; of all if there are none.
        fail_fast: leave out the workload if a scenario has refuted something.
        progress: called after each check.

    Raises:
        UnreachableError: no server listens there.
        ValueError: no check is about any of the guarantees.
    """
    session = _Run(
        server=server_at(url, token), seed=seed_or_new(seed), scenarios=all_scenarios(), checkers=all_checkers(),
        only=frozenset(only), progress=progress, profile=PROFILES[profile], fail_fast=fail_fast,
    )  # fmt: skip
    return session.report(url, profile)
