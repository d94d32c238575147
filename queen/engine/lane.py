"""The queue of one kind of job: which jobs go together, and when. No I/O, no clock of its own."""

from collections import deque
from collections.abc import Hashable, Sequence

from queen.core.batch_policy import BatchPolicy
from queen.engine.job import Job


class Lane:
    """Jobs of one kind, first come first served within each key.

    A key that has a call in flight waits for its end: two pops of one group in two calls would step on each other's
    locks and find less than there is.
    """

    def __init__(self, policy: BatchPolicy) -> None:
        self.policy = policy
        self.in_flight = 0
        self._waiting: dict[Hashable, deque[Job]] = {}
        self._busy: set[Hashable] = set()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, job: Job) -> None:
        """Adds a job behind those of its key."""
        self._waiting.setdefault(job.key, deque()).append(job)
        self._size += 1

    def _ready(self) -> list[Hashable]:
        return [key for key in self._waiting if key not in self._busy]

    def due_in_ms(self, now: float) -> float | None:
        """Milliseconds until a batch should leave; ``None``: not before something else happens. ``now`` in seconds."""
        if not self._size:
            return None
        keys = self._ready() if self._busy else list(self._waiting)
        if not keys:
            return None
        waiting = sum(len(self._waiting[key]) for key in keys)
        oldest = min(self._waiting[key][0].since for key in keys)
        return self.policy.due_in_ms(waiting, (now - oldest) * 1000, self.in_flight)

    def take(self) -> list[Job]:
        """Removes the next batch and marks its keys as busy. End it with ``done``."""
        batch: list[Job] = []
        size = 0
        for key in self._ready():
            jobs = self._waiting[key]
            while jobs and len(batch) < self.policy.batch_max and size < self.policy.bytes_max:
                size += jobs[0].size
                batch.append(jobs.popleft())
            if not jobs:
                del self._waiting[key]
            if key is not None:
                self._busy.add(key)
            if len(batch) >= self.policy.batch_max or size >= self.policy.bytes_max:
                break
        self._size -= len(batch)
        self.in_flight += 1
        return batch

    def done(self, batch: Sequence[Job]) -> None:
        """The call of a batch has ended."""
        self.in_flight -= 1
        for job in batch:
            self._busy.discard(job.key)

    def drop(self, job: Job) -> bool:
        """Removes a job that is still waiting; false if it is not."""
        jobs = self._waiting.get(job.key, ())
        if job not in jobs:
            return False
        self._waiting[job.key].remove(job)
        if not self._waiting[job.key]:
            del self._waiting[job.key]
        self._size -= 1
        return True
