"""Results of scenarios and checkers, for a report."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from ..checkers import NotObservableError, Verdict, Violation, judge
from ..guarantees import GUARANTEES, Check
from .broker import NotCarriedOutError
from .http import BadAnswerError, NoAnswerError
from .lab import RefutedError, SkippedError
from .report import Outcome, Row

H = TypeVar("H")

Result: TypeAlias = tuple[Outcome, str]

_VIOLATIONS_SHOWN = 3
_TEXT_CHARS_MAX = 1000
_OUTCOMES: Mapping[str, Outcome] = MappingProxyType({"VALID": "valid", "UNKNOWN": "unknown", "INVALID": "invalid"})
_PLACES = {id_: number for number, id_ in enumerate(GUARANTEES)}


def failed(problem: Exception) -> Result:
    """What follows from the end of a scenario or workload; it may be wrapped in groups."""
    while isinstance(problem, ExceptionGroup):
        problem = problem.exceptions[0]
    if isinstance(problem, RefutedError):
        return "invalid", str(problem)
    if isinstance(problem, SkippedError):
        return "skipped", str(problem)
    if isinstance(problem, NotCarriedOutError | NoAnswerError | BadAnswerError):
        return "unknown", str(problem)
    return "unknown", f"the check crashed: {problem!r}"


async def outcome_of(work: Awaitable[None], limit_s: float) -> Result:
    """What follows from a scenario or workload, which ends after a time."""
    try:
        async with asyncio.timeout(limit_s):
            await work
    except TimeoutError:
        return "unknown", f"not finished within {limit_s:g} s"
    except Exception as problem:  # no exception that a broken server causes may stop the run
        return failed(problem)
    return "valid", ""


def judged(checker: Callable[[H], Iterator[Violation | None]], history: H) -> tuple[Result, str]:
    """What a checker says of the history of a workload, and the subject of the first violation."""
    try:
        verdict = judge(checker, history)
    except NotObservableError as reason:
        return ("skipped", str(reason)), ""
    subject = verdict.violations[0].subject if verdict.violations else ""
    return (_OUTCOMES[verdict.result.name], _told(verdict)), subject


def _told(verdict: Verdict) -> str:
    if not verdict.violations:
        return verdict.text or f"{verdict.judged} judged"
    shown = "; ".join(f"{each.subject}: {each.text}" for each in verdict.violations[:_VIOLATIONS_SHOWN])
    return f"{len(verdict.violations)} of {verdict.judged}: {shown}"


def rows_of(check: Check, result: Result, evidence: str = "") -> list[Row]:
    """The rows of a check: one a guarantee; the evidence is kept of a violation."""
    outcome, text = result
    # What a broken server answered may hold anything.
    shown = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[:_TEXT_CHARS_MAX]
    )
    kept = evidence if outcome == "invalid" else ""
    return [Row(id_, words(check), outcome, shown, evidence=kept) for id_ in check.ids]


def words(check: Check) -> str:
    """The name of a check; checkers judge the workload."""
    name = check.name.replace("_", " ")
    return f"workload: {name}" if ".checkers." in check.module else name


def place(row: Row) -> int:
    """Where a row stands among the others: in the order of the catalogue."""
    return _PLACES[row.id]
