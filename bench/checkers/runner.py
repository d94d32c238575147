"""Runs all checkers, in one process and one thread, on histories of two lengths."""

import gc
import time
from collections.abc import Callable

from msgspec import Struct

from queen_bench.checkers.histories import history
from queen_bench.errors import MismatchError
from queen_bench.machine import Machine, describe
from queen_spec.checkers import all_checkers, judge
from queen_spec.history import History

#: Of the shorter history: a tenth of the longer one.
_SHARE = 10


class Timing(Struct, frozen=True):
    """One checker: what it judged in the longer history, and the seconds of CPU time that it took."""

    name: str
    judged: int
    seconds: float


class Report(Struct, frozen=True):
    """What was measured.

    Attributes:
        calls: of the longer history; each has an invocation and, unless its outcome is unknown, a completion.
        events: invocations and completions of the longer history.
        timings: the checkers, the slowest first; a view that several share counts for the first that asks for it.
        seconds: CPU time of all of them together.
        shorter_seconds: the same for a history of a tenth of the calls.
    """

    machine: Machine
    calls: int
    events: int
    timings: list[Timing]
    seconds: float
    shorter_seconds: float

    @property
    def growth(self) -> float:
        """How many times longer the longer history took a call."""
        return self.seconds / self.shorter_seconds / _SHARE


def run(calls: int, advance: Callable[[str, float], None]) -> Report:
    """All checkers on so many calls and on a tenth of them.

    Raises:
        MismatchError: a verdict is not what it must be.
    """
    advance(f"a history of {calls // _SHARE:,} calls", 0.0)
    shorter = _time(history(calls // _SHARE), lambda _name, _done: None)
    advance(f"a history of {calls:,} calls", 0.1)
    longer = history(calls)
    timings = _time(longer, lambda name, done: advance(name, 0.4 + 0.6 * done))
    completed = sum(getattr(record, "completed", None) is not None for record in longer.records)
    return Report(
        describe(), len(longer.records), len(longer.records) + completed,
        sorted(timings, key=lambda timing: -timing.seconds),
        sum(timing.seconds for timing in timings), sum(timing.seconds for timing in shorter),
    )  # fmt: skip


def _time(of: History, advance: Callable[[str, float], None]) -> list[Timing]:
    gc.collect()
    timings = []
    checkers = all_checkers()
    for number, (check, checker) in enumerate(checkers):
        advance(check.name.replace("_", " "), number / len(checkers))
        began = time.process_time()
        verdict = judge(checker, of)
        timings.append(Timing(check.name.replace("_", " "), verdict.judged, time.process_time() - began))
        if verdict.result.name != "VALID":
            raise MismatchError(f"{check.name}: {verdict.result.name} {verdict.text} {verdict.violations[:3]}")
    return timings
