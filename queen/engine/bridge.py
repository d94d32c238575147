"""The hand-over between the HTTP loop and the engine's loop: one wake-up a batch in each direction, not one a job.

Each side appends to a deque, which the interpreter lock makes safe, and rings the other loop only if the bell has not
been rung since that loop last looked. The flag is cleared before the deque is emptied, so that whatever is appended
afterwards rings again. Where both are the same loop nobody has to be woken, which spares system calls.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from queen.engine.job import Job


class Bridge:
    """Connects one HTTP loop with the engine's loop; both may be the same. ``accept`` takes the jobs, in the latter."""

    def __init__(self, http: asyncio.AbstractEventLoop, engine: asyncio.AbstractEventLoop) -> None:
        self._http, self._engine = http, engine
        self._alone = http is engine
        self._ring = engine.call_soon if self._alone else engine.call_soon_threadsafe
        self.accept: Callable[[list[Job]], None] | None = None
        self._inbox: deque[Job] = deque()
        self._outbox: list[tuple[Job, Any]] = []
        self._rung = False

    def submit(self, job: Job) -> None:
        """Hands a job to the engine. Called in the HTTP loop."""
        self._inbox.append(job)
        if not self._rung:
            self._rung = True
            self._ring(self._collect)

    def answer(self, job: Job, result: Any) -> None:  # noqa: ANN401 - a result or an exception
        """Hands a result, or an exception to raise, back to the sender. Called in the engine's loop."""
        if not self._outbox:
            self._engine.call_soon(self._send)
        self._outbox.append((job, result))

    def _collect(self) -> None:
        self._rung = False
        jobs = []
        while self._inbox:
            jobs.append(self._inbox.popleft())
        if jobs and self.accept is not None:
            self.accept(jobs)

    def _send(self) -> None:
        answers, self._outbox = self._outbox, []
        if self._alone:
            _deliver(answers)
        else:
            self._http.call_soon_threadsafe(_deliver, answers)


def _deliver(answers: list[tuple[Job, Any]]) -> None:
    for job, result in answers:
        if job.future.done():
            continue
        if isinstance(result, BaseException):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)
