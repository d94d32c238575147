"""Passes jobs from the HTTP loop to the engine's loop, and answers back: one wake-up per batch in each direction.

Each side appends to a deque, which is thread-safe, and wakes the other loop only if that has not been done since the
loop emptied the deque last. The flag is cleared before the deque is emptied, so that a later append wakes the loop
again. If both are the same loop, no wake-up is needed, which saves system calls.
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
        self._same = http is engine
        self._wake = engine.call_soon if self._same else engine.call_soon_threadsafe
        self.accept: Callable[[list[Job]], None] | None = None
        self._inbox: deque[Job] = deque()
        self._outbox: list[tuple[Job, Any]] = []
        self._woken = False

    def submit(self, job: Job) -> None:
        """Hands a job to the engine. Called in the HTTP loop."""
        self._inbox.append(job)
        if not self._woken:
            self._woken = True
            self._wake(self._collect)

    def answer(self, job: Job, result: Any) -> None:  # noqa: ANN401 - a result or an exception
        """Hands a result, or an exception to raise, back to the sender. Called in the engine's loop."""
        if not self._outbox:
            self._engine.call_soon(self._send)
        self._outbox.append((job, result))

    def _collect(self) -> None:
        self._woken = False
        jobs = []
        while self._inbox:
            jobs.append(self._inbox.popleft())
        if jobs and self.accept is not None:
            self.accept(jobs)

    def _send(self) -> None:
        answers, self._outbox = self._outbox, []
        if self._same:
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
