"""The results of checkers.

A checker takes a history and yields one element per judged item: `None` if it is correct, else the violation. The
results form a lattice, valid < unknown < invalid. Silence is not success: a checker that crashed or had nothing to
judge is `unknown`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias, TypeVar

from ..history import History


class Result(IntEnum):
    """A verdict in one word; the greater one wins."""

    VALID = 0
    UNKNOWN = 1
    INVALID = 2


@dataclass(frozen=True, slots=True)
class Violation:
    """A violation of a guarantee.

    Attributes:
        subject: the transaction id, lease id or partition.
        text: what was observed, for people.
    """

    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a checker for a history; `text` has the reason of an unknown result."""

    result: Result
    judged: int = 0
    violations: tuple[Violation, ...] = ()
    text: str = ""


class NotObservableError(Exception):
    """The server does not provide what the checker needs, such as offsets."""


H = TypeVar("H")

Checker: TypeAlias = Callable[[History], Iterator[Violation | None]]


def judge(checker: Callable[[H], Iterator[Violation | None]], history: H) -> Verdict:
    """The verdict of a checker.

    Raises:
        NotObservableError: the history lacks the data for the checker, which is not a fault of the server.
    """
    judged, violations, problem = 0, [], ""
    try:
        with _without_collector():
            for found in checker(history):
                judged += 1
                if found:
                    violations.append(found)
    except NotObservableError:
        raise
    except Exception as error:  # after any exception, nothing has been shown
        problem = f"the checker crashed: {error!r}"
    if not judged and not problem:
        problem = "the history has nothing for it to judge"
    found_result = Result.INVALID if violations else Result.VALID
    return Verdict(
        merge([found_result, Result.UNKNOWN if problem else Result.VALID]), judged, tuple(violations), problem
    )


@contextmanager
def _without_collector() -> Iterator[None]:
    """A history is large and has no garbage, so the collector would walk through all of it repeatedly."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def merge(results: Iterable[Result]) -> Result:
    """The greatest one."""
    return max(results, default=Result.VALID)
