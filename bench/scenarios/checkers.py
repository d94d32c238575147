"""All checkers of the specification on one long, valid history, in one process and one thread."""

import gc
import time
from collections.abc import Iterator
from typing import Annotated

from msgspec import Struct
from typer import Option

from bench.histories import history
from bench.scenario import MismatchError, Progress, Sample, Scenario, Target
from spec.checkers import all_checkers, judge
from spec.history import History

#: The shorter history is this part of the longer one.
_SHARE = 10
_ALL, _SECONDS = "all checkers together", "CPU s"


class Settings(Struct, frozen=True):
    """The size of the history."""

    calls: Annotated[int, Option(help="Length of the history.", min=1000)] = 1_000_000


def measure(_dsn: str, settings: Settings, progress: Progress) -> Iterator[Sample]:
    """All checkers on the whole history and on a tenth of it; a shared view counts for its first checker."""
    progress(f"a history of {settings.calls // _SHARE:,} calls", 0.0)
    shorter = sum(figures[_SECONDS] for _, figures in _timed(history(settings.calls // _SHARE), lambda *_: None))
    progress(f"a history of {settings.calls:,} calls", 0.1)
    longer, total = history(settings.calls), 0.0
    for name, figures in _timed(longer, progress):
        total += figures[_SECONDS]
        yield Sample(name, "checkers", 0, figures)
    # Each call has an invocation and, unless its outcome is unknown, a completion.
    events = len(longer.records) + sum(getattr(each, "completed", None) is not None for each in longer.records)
    figures = {
        "calls": len(longer.records), "events": events, _SECONDS: total,
        "CPU s per million events": 1e6 * total / events,
        "times the CPU per call of a tenth of the calls": total / shorter / _SHARE,
    }  # fmt: skip
    yield Sample(_ALL, "checkers", 0, figures)


def _timed(of: History, progress: Progress) -> Iterator[tuple[str, dict[str, float]]]:
    gc.collect()
    checkers = all_checkers()
    for number, (check, checker) in enumerate(checkers):
        name = check.name.replace("_", " ")
        progress(name, 0.4 + 0.6 * number / len(checkers))
        began = time.process_time()
        verdict = judge(checker, of)
        took = time.process_time() - began
        if verdict.result.name != "VALID":
            raise MismatchError(f"{check.name}: {verdict.result.name} {verdict.text} {verdict.violations[:3]}")
        yield name, {"judged": verdict.judged, _SECONDS: took}


SCENARIO = Scenario(
    "checkers",
    "All checkers of the specification on one long, valid history.",
    "nothing",
    measure,
    Settings,
    smoke={"calls": 3_000},
    targets=(Target(_ALL, "CPU s per million events", "checkers", "<= 10"),),
)
