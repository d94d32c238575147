"""The engine of a worker process: takes jobs from the HTTP loop, fuses them into calls, hands the results back.

It runs in one event loop of its own, in its own thread (``queen.engine.thread``), and everything here happens in that
loop. What wakes it: a job, the end of a call, the end of a hold time, a waiter's time. It sleeps otherwise.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from uuid import UUID

from queen.core.batch_policy import BatchPolicy
from queen.core.errors import DatabaseUnavailableError, DataRejectedError, QueenError
from queen.core.operations import JobType, Pop, Popped
from queen.engine.context import Context
from queen.engine.handlers.pop import Outcome
from queen.engine.job import Job
from queen.engine.lane import Lane
from queen.engine.operations import OPERATIONS
from queen.engine.ports import Notice
from queen.engine.waiters import Waiters

log = logging.getLogger("queen.engine")

#: A place where somebody else holds what is ready is looked at again after this time.
_CONTENDED_S = 0.002
#: And a pop that does not wait gives up on such a place after so many looks.
_CONTENDED_LOOKS = 10
#: A long poll outlives an outage of PostgreSQL and looks again after this time.
_AWAY_S = 0.5


class Engine:
    """Lanes, waiters and the loop that drains them.

    Args:
        context: what handlers need; its ``heard`` is this engine's ``heard`` plus the notices to other workers.
        policy: the batch policy of each kind.
        answer: hands a result, or an exception, back to the sender of a job.
    """

    def __init__(
        self,
        context: Context,
        policy: Callable[[JobType], BatchPolicy],
        waiters: Waiters,
        answer: Callable[[Job, Any], None],
    ) -> None:
        self._context = context
        self._answer = answer
        self._waiters = waiters
        self._lanes = {kind: Lane(policy(kind)) for kind in OPERATIONS}
        self._order = list(OPERATIONS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._stopping = False

    @property
    def waiting(self) -> int:
        """Parked long polls."""
        return len(self._waiters)

    def queued(self, kind: JobType) -> int:
        """Jobs of a kind that wait for a call."""
        return len(self._lanes[kind])

    def in_flight(self, kind: JobType) -> int:
        """Calls of a kind under way."""
        return self._lanes[kind].in_flight

    def accept(self, jobs: Sequence[Job]) -> None:
        """Takes new jobs."""
        now = self._loop.time()
        for job in jobs:
            job.since = now
            if isinstance(job.request, Pop):
                job.deadline = now + job.request.wait_ms / 1000
            operation = OPERATIONS[job.kind]
            job.key, job.size = operation.key(job.request), operation.size(job.request)
            self._lanes[job.kind].put(job)
        self._drain()

    def heard(self, notice: Notice) -> None:
        """Something may have become available in a queue: checks so many of its waiters."""
        self._check(self._waiters.wake(notice.queue, notice.messages, notice.group))

    def abandon(self, job: Job) -> None:
        """The sender of a job has gone: nothing is done for it any more, and what it gets is given back."""
        job.gone = True
        if not self._waiters.cancel(job) and self._lanes[job.kind].drop(job):
            self._leave(job)

    def release_waiters(self) -> None:
        """Answers all long polls empty, now and from now on: the worker stops."""
        self._stopping = True
        for job in self._waiters.drain():
            self._answer(job, Popped())

    async def stop(self) -> None:
        """Answers long polls, and waits for all other jobs: no new ones come any more."""
        self.release_waiters()
        self._drain()
        while self._tasks:
            await asyncio.wait(set(self._tasks), return_when=asyncio.FIRST_COMPLETED)
        if self._timer is not None:
            self._timer.cancel()

    def _check(self, jobs: Sequence[Job]) -> None:
        now = self._loop.time()
        for job in jobs:
            job.since = now
            self._lanes[job.kind].put(job)
        if jobs:
            self._drain()

    def _drain(self) -> None:
        """Sends what is due, starting with another kind each time, and sets the timer for what is not."""
        now = self._loop.time()
        self._expire(now)
        self._order.append(self._order.pop(0))
        waits = []
        for kind in self._order:
            lane = self._lanes[kind]
            while (due_in_ms := lane.due_in_ms(now)) == 0:
                self._send(kind, lane, lane.take())
            if due_in_ms is not None:
                waits.append(now + due_in_ms / 1000)
        if (event := self._waiters.next_event()) is not None:
            waits.append(event)
        self._wake_at(min(waits, default=None))

    def _expire(self, now: float) -> None:
        checks, expired = self._waiters.due(now)
        for job in expired:
            self._answer(job, Popped())
        for job in checks:
            job.since = now
            self._lanes[job.kind].put(job)

    def _wake_at(self, at: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._drain) if at is not None else None

    def _send(self, kind: JobType, lane: Lane, batch: list[Job]) -> None:
        self._start(self._run(kind, lane, batch))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, kind: JobType, lane: Lane, batch: list[Job]) -> None:
        try:
            await self._execute(kind, [job for job in batch if not job.gone])
        finally:
            lane.done(batch)
            for job in batch:
                if job.gone:
                    self._leave(job)
            self._drain()

    async def _execute(self, kind: JobType, batch: Sequence[Job]) -> None:
        if not batch:
            return
        try:
            results = await OPERATIONS[kind].handler(self._context, [job.request for job in batch])
        except DataRejectedError as problem:
            await self._split(kind, batch, problem)
        except Exception as problem:
            if not isinstance(problem, QueenError):
                log.exception("A %s call failed", kind.value)
            for job in batch:
                if isinstance(problem, DatabaseUnavailableError) and _is_long_poll(job):
                    self._outwait(job)
                else:
                    self._finish(job, problem)
        else:
            for job, result in zip(batch, results, strict=True):
                if isinstance(result, Outcome):
                    self._finish_pop(job, result)
                else:
                    self._finish(job, result)

    def _outwait(self, job: Job) -> None:
        """A long poll during an outage: it looks again, and ends empty at its timeout."""
        now = self._loop.time()
        if self._may_wait(job):
            self._waiters.park(job, now, now + _AWAY_S)
        else:
            self._finish(job, Popped())

    async def _split(self, kind: JobType, batch: Sequence[Job], problem: DataRejectedError) -> None:
        """Repeats a refused batch in halves, so that the requests beside the bad one succeed."""
        if len(batch) == 1:
            self._finish(batch[0], problem)
            return
        middle = len(batch) // 2
        await self._execute(kind, batch[:middle])
        await self._execute(kind, batch[middle:])

    def _finish(self, job: Job, result: Any) -> None:  # noqa: ANN401 - a result or an exception
        self._leave(job)
        if not job.gone:
            self._answer(job, result)

    def _leave(self, job: Job) -> None:
        """A job that was out for a check does not go back to the waiters."""
        self._waiters.leave(job)
        job.turn = 0

    def _finish_pop(self, job: Job, outcome: Outcome) -> None:
        if outcome.popped.claims:
            self._deliver(job, outcome.popped)
            return
        now = self._loop.time()
        contended = outcome.ready_in <= 0
        if contended and not self._stopping and (now < job.deadline or job.looks < _CONTENDED_LOOKS):
            job.looks += 1
            self._start(self._look_again(job))
        elif self._may_wait(job):
            self._waiters.park(job, now, now + outcome.ready_in)
        else:
            self._finish(job, outcome.popped)

    def _may_wait(self, job: Job) -> bool:
        """Whether a job is a long poll whose time is not over."""
        return self._loop.time() < job.deadline and not self._stopping and not job.gone

    def _deliver(self, job: Job, popped: Popped) -> None:
        if job.gone and popped.lease is not None:
            self._start(self._give_back(popped.lease, popped, job.request.group))
        self._finish(job, popped)
        self._check(self._waiters.next_of(job.request))

    async def _look_again(self, job: Job) -> None:
        await asyncio.sleep(_CONTENDED_S)
        self._check([job])

    async def _give_back(self, lease: UUID, popped: Popped, group: str) -> None:
        """Nobody is there to take the messages: others get them now, not when the lease ends."""
        try:
            await self._context.patiently(lambda _again: self._context.database.release_leases([lease]))
        except Exception:
            log.exception("A lease whose consumer had gone could not be given back; it ends by itself")
        for claim in popped.claims:
            self._context.heard(Notice(claim.queue, 1, group))


def _is_long_poll(job: Job) -> bool:
    return isinstance(job.request, Pop) and job.request.wait_ms > 0
