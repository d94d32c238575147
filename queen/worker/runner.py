"""Runs the tasks of a worker until it is told to stop."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from queen.worker.client import Client, Popped, UnavailableError
from queen.worker.tasks import Message, Reject, Retry, Task, Worker

log = logging.getLogger("queen.worker")

T = TypeVar("T")

#: Names of the threads in which functions run that are not async.
THREADS = "queen-task"
#: How long a long poll waits; it is given up at a stop.
_WAIT_S = 30.0
#: Pause after a failed request, first and at most.
_PAUSE_S, _PAUSE_MAX_S = 0.5, 10.0
_TEXT = 2000


async def run(worker: Worker, client: Client, stop: asyncio.Event, grace_s: float = 30.0) -> None:
    """Works until ``stop`` is set; then messages that are being worked on have ``grace_s`` to be finished.

    What is not finished by then, or was fetched and not begun, is released: it is delivered again at once.

    Raises:
        RefusedError: the server refuses this worker, for instance its token.
    """
    limits = {task.queue: task.retries for task in worker.tasks if task.retries is not None}
    for queue, limit in limits.items():
        await _insist(partial(client.set_retry_limit, queue, limit), stop)
    threads = ThreadPoolExecutor(sum(task.concurrency for task in worker.tasks), THREADS)
    lanes = [
        _Lane(worker, task, client, threads, stop, grace_s) for task in worker.tasks for _ in range(task.concurrency)
    ]
    try:
        async with asyncio.TaskGroup() as group:
            for lane in lanes:
                group.create_task(lane.run())
    except ExceptionGroup as problems:
        raise problems.exceptions[0] from None
    finally:
        # A thread cannot be stopped: a function that outlasts its time is left behind.
        threads.shutdown(wait=False, cancel_futures=True)


class _Lane:
    """Works on one partition of a task at a time, and on one message of it."""

    def __init__(
        self,
        worker: Worker,
        task: Task[..., Any],
        client: Client,
        threads: Executor,
        stop: asyncio.Event,
        grace_s: float,
    ) -> None:
        self._worker, self._task, self._client, self._threads = worker, task, client, threads
        self._stop, self._grace_s = stop, grace_s

    async def run(self) -> None:
        """Until the stop."""
        while not self._stop.is_set():
            popped = await _unless(self._stop, _insist(self._pop, self._stop))
            if popped:
                await self._work(popped)

    async def _pop(self) -> list[Popped]:
        task = self._task
        return await self._client.pop(task.queue, task.group, task.batch, task.lease_s, _WAIT_S)

    async def _work(self, batch: list[Popped]) -> None:
        """The messages of a partition, in their order. A failure ends the lease, and so the batch."""
        async with self._leased(batch[0].lease_id):
            for popped in batch:
                status, error = ("retry", None) if self._stop.is_set() else await self._outcome(popped)
                # At a stop without a server it is delivered again when its lease ends.
                if not await _insist(partial(self._client.ack, popped, status, error), self._stop):
                    return

    async def _outcome(self, popped: Popped) -> tuple[str, str | None]:
        """What becomes of a message, and the text of its error."""
        if popped.error:
            return "failed", popped.error
        message = Message.of(self._task, popped)
        work = asyncio.ensure_future(self._worker.handle(self._task, message, self._threads))
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await asyncio.wait({work}, timeout=self._grace_s)
        finally:
            stopped.cancel()
        if not work.done():
            work.cancel()
            log.warning("%s was not finished in time and is delivered again", popped.id)
            return "retry", None
        return self._judged(message, work.exception())

    def _judged(self, message: Message, problem: BaseException | None) -> tuple[str, str | None]:
        if problem is None:
            return "completed", None
        if isinstance(problem, Retry):
            return "retry", None
        if isinstance(problem, Reject):
            return "dlq", str(problem)[:_TEXT]
        log.error("%s failed on %s, attempt %d", message.task, message.id, message.attempt, exc_info=problem)
        return "failed", f"{type(problem).__name__}: {problem}"[:_TEXT]

    @asynccontextmanager
    async def _leased(self, lease_id: str) -> AsyncIterator[None]:
        """Extends a lease for a block."""
        extending = asyncio.create_task(self._extend(lease_id))
        try:
            yield
        finally:
            extending.cancel()
            with suppress(asyncio.CancelledError):
                await extending

    async def _extend(self, lease_id: str) -> None:
        while True:
            await asyncio.sleep(self._task.lease_s / 3)
            with suppress(UnavailableError):
                await self._client.extend(lease_id, self._task.lease_s)


async def _insist(call: Callable[[], Awaitable[T]], stop: asyncio.Event) -> T | None:
    """The result of a call, repeated after growing pauses while the server is unavailable; ``None`` after a stop."""
    pause = _PAUSE_S
    while True:
        try:
            return await call()
        except UnavailableError as problem:
            log.warning("%s; trying again in %.1f s", problem, pause)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause)
            return None
        pause = min(2 * pause, _PAUSE_MAX_S)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of the work, or ``None`` if the stop comes first: then it is given up."""
    doing, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({doing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        for each in (doing, stopped):
            each.cancel()
