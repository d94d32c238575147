"""Progress of long work on standard error: a bar on a terminal; else, for work that says so, a line a minute."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from queen.cli.output import err

LINE_S = 60.0


def bar() -> Progress:
    """A progress bar."""
    return _shown(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


def spinner() -> Progress:
    """A spinner, for work without progress reports."""
    return _shown(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())


@contextmanager
def told(first: str, steps: int | None = None) -> Iterator[Callable[[int, int, str], None]]:
    """A function for the steps that are done, their number (0: unknown), and what is done now."""
    with bar() as shown:
        task = shown.add_task(first, total=steps)
        lines = _Lines()

        def tell(done: int, total: int, text: str) -> None:
            shown.update(task, completed=done, total=total or steps, description=text)
            lines.tell(done, total, text)

        yield tell


class _Lines:
    """Without a terminal, a line a minute."""

    def __init__(self) -> None:
        self._last, self._lock = time.monotonic(), threading.Lock()

    def tell(self, done: int, total: int, text: str) -> None:
        if err.is_terminal:
            return
        with self._lock:
            if time.monotonic() - self._last < LINE_S:
                return
            self._last = time.monotonic()
        steps = f"{done} of {total}, " if total else ""
        err.print(f"{datetime.now(UTC):%H:%M:%S} {steps}{text}", markup=False, highlight=False)


def _shown(*columns: ProgressColumn) -> Progress:
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
