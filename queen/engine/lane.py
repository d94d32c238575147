"""The queue of one kind of job: which jobs go together, and when. No I/O, no clock of its own."""

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Sequence
from math import inf

from queen.core.batch_policy import BatchPolicy
from queen.core.concurrency import Limiter, Static
from queen.core.operations import JobType
from queen.engine.job import Job
from queen.engine.status import LaneStatus

#: After waiting in vain again and again, so many calls do not wait before one tries it anew.
_PASSES_MAX = 63


class _Linger:
    """Clients who come again as soon as they are answered: for how many the next call waits.

    After a wait that brought less than half of those who were missing, twice as many calls as the time before wait for
    nobody: who does not come again at once costs the others little.
    """

    def __init__(self) -> None:
        self._expected = 0
        self._since: float | None = None
        self._had = 0
        self._in_vain = self._passes = 0

    def waited_ms(self, ready: int, now: float) -> float:
        """How long a call has waited that could leave with so many jobs; ``inf`` if nobody else is expected."""
        if ready >= self._expected:
            return inf
        if self._since is None:
            self._since, self._had = now, ready
        return (now - self._since) * 1000

    def left(self, jobs: int) -> None:
        """The call has left with so many jobs."""
        if self._since is not None:
            came = 2 * jobs >= self._had + self._expected
            self._in_vain = self._passes = 0 if came else min(2 * self._in_vain + 1, _PASSES_MAX)
            self._since = None

    def answered(self, jobs: int, ready: int) -> None:
        """So many jobs of a call are answered, and so many others are ready."""
        self._expected = jobs + ready if not self._passes else 0
        self._passes = max(self._passes - 1, 0)


class Lane:
    """Jobs of one kind, first come first served within each key.

    A key that has a call in flight waits for its end: two pops of one group in two calls would step on each other's
    locks and find less than there is.

    Attributes:
        policy: when a batch leaves, and how large it may be.
        limiter: how many calls may be in flight, within the policy's bound.
        in_flight: calls under way.
        ready: jobs whose key has no call in flight.
        size: bytes of the jobs that wait.
        failed: jobs that were answered with an error so far.
    """

    def __init__(self, policy: BatchPolicy, limiter: Limiter | None = None) -> None:
        self.policy = policy
        self.limiter = limiter or Static(policy.in_flight_max)
        self.in_flight = 0
        self.size = 0
        self._ready: OrderedDict[Hashable, deque[Job]] = OrderedDict()  # popped at the front
        self._blocked: dict[Hashable, deque[Job]] = {}
        self._busy: set[Hashable] = set()
        self.ready = 0
        self._waiting = 0
        self._jobs = self._calls = self._refused = self.failed = 0
        self._linger: _Linger | None = _Linger() if policy.linger_ms else None
        self._batch_sizes = [0] * (policy.batch_max.bit_length() + 1)

    def __len__(self) -> int:
        return self._waiting

    def status(self, kind: JobType) -> LaneStatus:
        """Figures, for metrics."""
        limit = min(self.limiter.limit, self.policy.in_flight_max)
        return LaneStatus(
            kind, self._waiting, self.size, self.in_flight, limit, self.policy.in_flight_max, self.limiter.rtt_ms,
            self._jobs, self._calls, tuple(self._batch_sizes), self._refused, self.failed,
        )  # fmt: skip

    def refuses(self) -> bool:
        """Whether too much waits for one job more; counts those."""
        full = self.policy.refuses(self._waiting, self.size)
        self._refused += full
        return full

    def put(self, job: Job) -> None:
        """Adds a job behind those of its key."""
        if job.key in self._busy:
            self._blocked.setdefault(job.key, deque()).append(job)
        else:
            self._ready.setdefault(job.key, deque()).append(job)
            self.ready += 1
        self._waiting += 1
        self.size += job.size

    def hold(self, job: Job) -> None:
        """A job that was taken waits outside, and is counted."""
        self._waiting += 1
        self.size += job.size

    def release(self, job: Job) -> None:
        """It no longer does."""
        self._waiting -= 1
        self.size -= job.size

    def fit(self, jobs: Iterable[Job]) -> int:
        """How many of these jobs, in this order, share a call."""
        number = size = items = 0
        for job in jobs:
            if self.policy.is_full(number, items, size):
                break
            number += 1
            size += job.size
            items += job.items
        return number

    def due_in_ms(self, now: float) -> float | None:
        """Milliseconds until a batch should leave; ``None``: not before something else happens. ``now`` in seconds."""
        if not self.ready:
            return None
        age_ms = 0.0
        if self.ready < self.policy.preferred:  # so there are few keys to look at
            age_ms = (now - min([jobs[0].since for jobs in self._ready.values()])) * 1000
        due_ms = self.policy.due_in_ms(self.ready, age_ms, self.in_flight, self.limiter.limit)
        if self._linger is None or self.in_flight or self.policy.is_full(self.ready, 0, self.size):
            return due_ms
        return self.policy.lingers_for_ms(self._linger.waited_ms(self.ready, now))

    def stop_lingering(self) -> None:
        """The worker stops: no call waits for clients any more."""
        self._linger = None

    def next_jobs(self) -> list[Job]:
        """Those of the next batch, or more."""
        return [job for jobs in self._ready.values() for job in jobs]

    def take(self) -> list[Job]:
        """Removes the next batch and marks its keys as busy. End it with ``done``."""
        batch: list[Job] = []
        size = items = 0
        while self._ready and not self.policy.is_full(len(batch), items, size):
            key, jobs = self._ready.popitem(last=False)
            while jobs and not self.policy.is_full(len(batch), items, size):
                job = jobs.popleft()
                size += job.size
                items += job.items
                batch.append(job)
            self._keep(key, jobs)
        self._waiting -= len(batch)
        self.ready -= len(batch)
        self.size -= size
        self.in_flight += 1
        self._calls += 1
        self._jobs += len(batch)
        self._batch_sizes[len(batch).bit_length()] += 1
        if self._linger is not None:
            self._linger.left(len(batch))
        return batch

    def _keep(self, key: Hashable, rest: deque[Job]) -> None:
        """Puts back what a batch leaves of a key that it has taken from."""
        if key is not None:
            self._busy.add(key)
            if rest:
                self._blocked[key] = rest
                self.ready -= len(rest)
        elif rest:
            self._ready[key] = rest

    def done(self, batch: Sequence[Job]) -> None:
        """The call of a batch has ended."""
        self.in_flight -= 1
        for key in {job.key for job in batch}:
            self._busy.discard(key)
            if jobs := self._blocked.pop(key, None):
                self._ready[key] = jobs
                self.ready += len(jobs)
        if self._linger is not None:
            # Who is parked has no answer yet.
            self._linger.answered(len([job for job in batch if not job.turn]), self.ready)
