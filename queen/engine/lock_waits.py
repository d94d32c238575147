"""The jobs of all kinds that wait for locks of other transactions in PostgreSQL, in one lock queue per kind."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from queen.core.errors import TooSlowError
from queen.core.job_type import JobType
from queen.engine.context import Context
from queen.engine.failures import Locked, locked_error
from queen.engine.handlers.locks import find_locked
from queen.engine.job import Job
from queen.engine.job_queue import JobQueue
from queen.engine.job_specs import JobSpec
from queen.engine.lock_queue import LockQueue, Round
from queen.engine.ports import Lock


class LockWaits:
    """Decides which jobs wait for locks. They count as waiting jobs of their job queue meanwhile.

    Args:
        context: asks PostgreSQL which locks are held.
        specs: the kinds of jobs, and what they lock.
        job_queues: by kind.

    Attributes:
        waiting: the kinds of which jobs wait.
    """

    def __init__(
        self, context: Context, specs: Mapping[JobType, JobSpec], job_queues: Mapping[JobType, JobQueue]
    ) -> None:
        self._context, self._specs, self._job_queues = context, specs, job_queues
        self._queues = {kind: LockQueue[Job, Lock](context.rules) for kind in specs}
        self.waiting: set[JobType] = set()

    def queue(self, kind: JobType) -> LockQueue[Job, Lock]:
        """The lock queue of a kind."""
        return self._queues[kind]

    def due(self) -> dict[JobType, Round[Job]]:
        """The rounds that may make their next call, by kind."""
        if not self.waiting:
            return {}
        return {kind: round_ for kind in self.waiting if (round_ := self._queues[kind].due) is not None}

    def without_locked(self, kind: JobType, jobs: list[Job], now: float) -> list[Job]:
        """The jobs of a batch that need none of the locks that jobs wait for already; the others join these."""
        queue = self._queues[kind]
        if not queue or not (locks := queue.locks):
            return jobs
        free = []
        for job in jobs:
            if met := self.needs(job) & locks:
                self._join(kind, job, met, now)
            else:
                free.append(job)
        return free

    def needs_one_lock(self, job: Job) -> bool:
        """Whether a waiting job needs only the lock that it waits for, so that its call holds no other meanwhile."""
        needs = self.needs(job)
        return len(needs) == 1 and needs == self._queues[job.kind].locks_of(job)

    def needs(self, job: Job) -> frozenset[Lock]:
        """What a job locks, as far as that is known."""
        return self._specs[job.kind].locks(self._context.cache, job.request)

    async def locks_met(
        self, kind: JobType, outcomes: Iterable[tuple[Job, Any]]
    ) -> Mapping[Job, frozenset[Lock]] | None:
        """By job whose call has met a lock: the locks that it needs and other transactions hold now.

        Returns:
            ``None`` if no call has met a lock.
        """
        met = [job for job, result in outcomes if type(result) is TooSlowError and result.lock]
        if not met or self._specs[kind].cold:
            return None
        needs = {job: self.needs(job) for job in met}
        locked = await find_locked(self._context, frozenset[Lock]().union(*needs.values()))
        return {job: found for job, each in needs.items() if (found := each & locked)}

    def sort_out(self, kind: JobType, answers: Sequence[tuple[Job, Any]], now: float) -> list[tuple[Job, Any]]:
        """The final answers; jobs that have to wait for locks join the lock queue, and answered ones leave it."""
        final = []
        for job, result in answers:
            if not isinstance(result, Locked):
                final.append((job, result))
            elif not self._join(kind, job, result.locks, now):
                final.append((job, locked_error()))
        for job, result in final:
            self.leave(kind, job, result)
        return final

    def leave(self, kind: JobType, job: Job, result: Any) -> None:  # noqa: ANN401 - a result or an exception
        """Removes an answered job if it has waited for locks."""
        if job in self._queues[kind]:
            self._queues[kind].leave(job, result)
            self._job_queues[kind].release(job)
        if not self._queues[kind]:
            self.waiting.discard(kind)

    def _join(self, kind: JobType, job: Job, locks: frozenset[Any], now: float) -> bool:
        """Makes a job wait for locks; false if its time is over."""
        queue = self._queues[kind]
        waited = job in queue
        if not queue.join(job, locks, now):
            return False
        if not waited:
            self._job_queues[kind].hold(job)
        self.waiting.add(kind)
        return True
