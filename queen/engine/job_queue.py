"""The queue of one kind of job: which jobs go together, and when. No I/O, no clock of its own."""

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable
from math import inf

from queen.core.batch_policy import BatchPolicy
from queen.core.concurrency import Limiter, Static
from queen.core.job_type import JobType
from queen.engine.job import Job
from queen.engine.metrics import JobQueueMetrics

#: The most calls that do not wait, after waits in vain, before one tries it again.
_PASSES_MAX = 63


class _Linger:
    """The number of clients for which the next call waits: those that send a request again as soon as answered.

    After a wait that brought less than half of the missing clients, the next calls do not wait, twice as many as the
    time before. So clients that do not come back at once cost the others little.
    """

    def __init__(self) -> None:
        self._expected = 0
        self._since: float | None = None
        self._had = 0
        self._in_vain = self._passes = 0

    def waited_ms(self, ready: int, now: float) -> float:
        """How long a call with so many ready jobs has waited; ``inf`` if no other client is expected."""
        if ready >= self._expected:
            return inf
        if self._since is None:
            self._since, self._had = now, ready
        return (now - self._since) * 1000

    def left(self, jobs: int) -> None:
        """Notes that a call has left with so many jobs."""
        if self._since is not None:
            came = 2 * jobs >= self._had + self._expected
            self._in_vain = self._passes = 0 if came else min(2 * self._in_vain + 1, _PASSES_MAX)
            self._since = None

    def answered(self, jobs: int, ready: int) -> None:
        """Notes that so many jobs of a call are answered, and so many others are ready."""
        self._expected = jobs + ready if not self._passes else 0
        self._passes = max(self._passes - 1, 0)


class JobQueue:
    """Jobs of one kind, first come first served within each key.

    Jobs of a key wait while a call with that key is in flight: two calls with pops of one group would skip the cursors
    that the other has locked, and find too few messages.

    Attributes:
        policy: when a batch leaves, and how large it may be.
        limiter: how many calls may be in flight, within the policy's bound.
        in_flight: calls under way.
        ready: jobs whose key has no call in flight.
        size: bytes of the jobs that wait.
        failed: jobs that were answered with an error.
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

    def __len__(self) -> int:
        return self._waiting

    def metrics(self, kind: JobType) -> JobQueueMetrics:
        """The current metrics."""
        limit = min(self.limiter.limit, self.policy.in_flight_max)
        return JobQueueMetrics(
            kind, self._waiting, self.size, self.in_flight, limit, self._jobs, self._calls, self._refused, self.failed
        )  # fmt: skip

    def refuses(self) -> bool:
        """Whether the queue is full for another job; counts refusals."""
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
        """Counts a taken job as waiting again: it waits for locks."""
        self._waiting += 1
        self.size += job.size

    def release(self, job: Job) -> None:
        """Ends ``hold`` for a job."""
        self._waiting -= 1
        self.size -= job.size

    def fit(self, jobs: Iterable[Job]) -> int:
        """How many of these jobs, in this order, fit into a call."""
        number = size = items = 0
        for job in jobs:
            if not self.policy.takes(number, items, size, job.items):
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
        if self.ready < self.policy.preferred:  # so there are few keys
            age_ms = (now - min([jobs[0].since for jobs in self._ready.values()])) * 1000
        due_ms = self.policy.due_in_ms(self.ready, age_ms, self.in_flight, self.limiter.limit)
        if self._linger is None or self.in_flight or self.policy.is_full(self.ready, 0, self.size):
            return due_ms
        return self.policy.lingers_for_ms(self._linger.waited_ms(self.ready, now))

    def stop_lingering(self) -> None:
        """Makes calls no longer wait for clients, because the worker stops."""
        self._linger = None

    def take(self) -> list[Job]:
        """Removes the next batch and marks its keys as busy. End it with ``done``."""
        batch: list[Job] = []
        size = items = 0
        takes = self.policy.takes
        while self._ready and takes(len(batch), items, size, next(iter(self._ready.values()))[0].items):
            key, jobs = self._ready.popitem(last=False)
            while jobs and takes(len(batch), items, size, jobs[0].items):
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
        if self._linger is not None:
            self._linger.left(len(batch))
        return batch

    def _keep(self, key: Hashable, rest: deque[Job]) -> None:
        """Puts back the jobs of a key that did not fit into the batch."""
        if key is not None:
            self._busy.add(key)
            if rest:
                self._blocked[key] = rest
                self.ready -= len(rest)
        elif rest:
            self._ready[key] = rest

    def done(self, keys: Iterable[Hashable], served: int) -> None:
        """Notes that the call of a batch with these keys has ended; ``served``: jobs whose clients may send again."""
        self.in_flight -= 1
        for key in keys:
            self._busy.discard(key)
            if jobs := self._blocked.pop(key, None):
                self._ready[key] = jobs
                self.ready += len(jobs)
        if self._linger is not None:
            self._linger.answered(served, self.ready)
