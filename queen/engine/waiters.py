"""Long polls that found nothing: no thread, no connection and no database call while nothing happens.

A *place* is what a pop looks at: (queue, group, partition or any), or (namespace, task, group); a poll of simple-mq is
here a pop of a group that all polls share. All waiters of a place are checked by one pop at a time, the one that waits
longest: when a push to the queue is heard of, when the database said that something becomes ready by itself (a lease
ends, a delay is over), and, in case a notice got lost, after a back-off that doubles. What a check finds belongs to the
pop that made it, and a check that leaves something behind brings on the next.

With thousands of places even one check a second of each would keep the database busy for nothing. So there is a budget
of so many a second, which is given out in slots: at the slowest pace a place takes the next one that is free, so that
all have their turn; and re-checks at that pace fall due together, so that they share a call.

Pure: time is an argument, in seconds; what to check and what has timed out is returned, not done.
"""

import heapq
from collections.abc import Container, Hashable
from math import floor
from typing import Protocol

from queen.core.backoff import doubled
from queen.core.simple_mq import CHANNEL
from queen.engine.job import Job

#: Entries of a heap whose job has left are swept out when there are so many more of them than of the others.
_STALE_MAX = 1000
#: At the slowest pace re-checks fall due together so many times an interval; once, where they are put off for longer.
_SHARED = 4


class Poll(Protocol):
    """A request that may wait: a pop, or a poll of simple-mq. Notices name its queue and group."""

    @property
    def queue(self) -> str: ...  # noqa: D102
    @property
    def group(self) -> str: ...  # noqa: D102
    @property
    def place(self) -> Hashable: ...  # noqa: D102
    @property
    def rides(self) -> int: ...  # noqa: D102
    @property
    def returnable(self) -> bool: ...  # noqa: D102


class Place:
    """The waiters of one place, in the order in which they came.

    Attributes:
        parked: by turn.
        order: the same turns as a heap, the first to wait first; some may have left.
        checking: how many of its waiters are out for a check.
        check_at: when the next check is due; 0 for none.
        news: something came while checks were out that may have looked before it.
        rides: whether its waiters may look in the transaction of a push.
    """

    __slots__ = ("backoff_ms", "check_at", "checking", "group", "key", "news", "order", "parked", "queue", "rides")

    def __init__(self, key: Hashable, pop: Poll) -> None:
        self.key = key
        self.queue, self.group, self.rides = pop.queue, pop.group, pop.rides > 0
        self.parked: dict[int, Job] = {}
        self.order: list[int] = []
        self.checking = 0
        self.backoff_ms = 0.0
        self.check_at = 0.0
        self.news = False

    def park(self, job: Job) -> None:
        """Adds a waiter by its turn."""
        self.parked[job.turn] = job
        heapq.heappush(self.order, job.turn)

    def remove(self, turn: int) -> bool:
        """Takes out a waiter who leaves before its turn; false if it is not here."""
        if self.parked.pop(turn, None) is None:
            return False
        if len(self.order) > 2 * len(self.parked) + _STALE_MAX:
            self.order = sorted(self.parked)
        return True

    def take(self) -> Job | None:
        """Takes out the waiter whose turn it is."""
        while self.order:
            if job := self.parked.pop(heapq.heappop(self.order), None):
                return job
        return None


class Waiters:
    """All parked pops of a worker.

    A pop begins with a first look, and comes back from it, and from each later check, with ``park``; or it ends with
    ``leave``.

    Args:
        initial_ms: first re-check of a place.
        limit_ms: slowest re-check, as long as that makes no more of them than
        checks_per_s: the budget of re-checks a second; 0 for no bound.
    """

    def __init__(self, initial_ms: float, limit_ms: float, checks_per_s: float = 0) -> None:
        self._initial_ms, self._limit_ms = initial_ms, limit_ms
        self._slot_s = 1 / checks_per_s if checks_per_s else 0.0
        self._slot = 0.0
        self._places: dict[Hashable, Place] = {}
        self._by_queue: dict[str, dict[Hashable, Place]] = {}
        #: By turn: an entry of the heap outlives its job, and must not keep what that was answered.
        self._jobs: dict[int, Job] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._checks: list[tuple[float, int, Place]] = []
        self._serial = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def places(self) -> int:
        """Places that somebody waits at."""
        return len(self._places)

    @property
    def live(self) -> int:
        """Pops that wait, parked or out for a check."""
        return len(self._jobs)

    def begin(self, job: Job) -> None:
        """A pop that is willing to wait goes out for its first look; from now on its time runs."""
        job.turn = self._next_serial()
        self._jobs[job.turn] = job
        self._place(job.request).checking += 1
        heapq.heappush(self._deadlines, (job.deadline, job.turn))

    def by_queue(self) -> dict[str, int]:
        """How many wait for each queue of the log; those that look at many queues stand under the empty name."""
        waiting = {
            queue: sum(len(place.parked) for place in places.values() if place.group != CHANNEL)
            for queue, places in self._by_queue.items()
        }
        return {queue: number for queue, number in waiting.items() if number}

    def park(self, job: Job, now: float, ready_at: float) -> None:
        """Parks a pop that has found nothing; ``ready_at``: when something may become ready by itself."""
        place = self._places[job.request.place]
        place.checking -= 1
        place.backoff_ms = place.backoff_ms or self._initial_ms
        place.park(job)
        self._count += 1
        if place.news:
            place.news = False
            ready_at = now
        elif not place.check_at or place.backoff_ms < self._limit_ms:
            ready_at = min(self._recheck_at(place, now), ready_at)
        self._check_at(place, ready_at)

    def leave(self, job: Job) -> None:
        """A pop that was out for a check does not come back."""
        if job.turn:
            place = self._places[job.request.place]
            place.checking -= 1
            self._end(job, place)

    def cancel(self, job: Job) -> bool:
        """Forgets a parked pop whose sender has gone; false if it is not parked."""
        place = self._places.get(job.request.place)
        if place is None or not place.remove(job.turn):
            return False
        self._count -= 1
        self._end(job, place)
        return True

    def wake(self, queue: str, messages: int, group: str | None = None, besides: Container[Hashable] = ()) -> list[Job]:
        """Hands out the pops to check because messages came, or came free for one group.

        In each place that is concerned they are, with those that are out already, at most as many as messages.
        ``besides``: places that know already.
        """
        woken = []
        for place in self._concerned(queue):
            if (group is not None and place.group != group) or place.key in besides:
                continue
            place.backoff_ms = 0.0
            # Those that are out came before those that are parked; a check that looked too early is made again.
            out = place.checking
            woken += self._hand_out(place, max(messages - out, 0))
            place.news = place.news or out > 0
        return woken

    def board(self, queue: str, messages: int) -> list[Job]:
        """Hands out pops of each place, as many as take so many messages, to look in the transaction that pushes them.

        Not where checks are out, which may look before the push: those places have to hear of it.
        """
        boarded: list[Job] = []
        for place in self._concerned(queue):
            left = 0 if place.checking else messages
            while left > 0 and place.rides and (jobs := self._hand_out(place, 1)):
                left -= jobs[0].request.rides
                boarded += jobs
        return boarded

    def wake_all(self) -> list[Job]:
        """Hands out one pop of each place: news may have been missed."""
        return [job for place in self._places.values() for job in self._hand_out(place, 1)]

    def next_of(self, pop: Poll, *, more: bool) -> list[Job]:
        """Hands out the next pop of a place in which a check has just found something, if there may be more.

        That is so if the check did not take all that it saw, or something came that it may have looked before.
        """
        place = self._places.get(pop.place)
        if place is None or not (more or place.news):
            return []
        jobs = self._hand_out(place, 1)
        place.news = place.news and not jobs
        return jobs

    def due(self, now: float) -> tuple[list[Job], list[Job]]:
        """What time brings: the pops to check, handed out, and those whose time is over, taken out.

        A pop whose time ends while it is out for a check is among the latter, and still has to ``leave``: the database
        may be slow to answer. Only one that acknowledges by itself waits for the end of the check, because what it may
        have got is nowhere else.
        """
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now:
            job = self._jobs.get(heapq.heappop(self._deadlines)[1])
            if job is not None and (self.cancel(job) or (not job.gone and job.request.returnable)):
                expired.append(job)
        checks: list[Job] = []
        while self._checks and self._checks[0][0] <= now:
            at, _, place = heapq.heappop(self._checks)
            if place.check_at == at:
                checks += self._hand_out(place, 1)
                place.check_at = 0.0
                place.backoff_ms = doubled(place.backoff_ms, self._initial_ms, self._limit_ms)
                self._check_at(place, self._recheck_at(place, now))
        return checks, expired

    def next_event(self) -> float | None:
        """When ``due`` may have something to return."""
        times = [heap[0][0] for heap in (self._deadlines, self._checks) if heap]
        return min(times, default=None)

    def drain(self) -> list[Job]:
        """Takes out all parked pops: the worker stops."""
        jobs = [job for place in self._places.values() for job in place.parked.values()]
        for job in jobs:
            self.cancel(job)
        return jobs

    def _concerned(self, queue: str) -> list[Place]:
        """The places where messages of a queue are seen."""
        return [*self._by_queue.get(queue, {}).values(), *self._by_queue.get("", {}).values()]

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _place(self, pop: Poll) -> Place:
        key = pop.place
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = Place(key, pop)
            self._by_queue.setdefault(pop.queue, {})[key] = place
        return place

    def _end(self, job: Job, place: Place) -> None:
        """A pop is no longer a waiter."""
        del self._jobs[job.turn]
        job.turn = 0
        if len(self._deadlines) > 2 * len(self._jobs) + _STALE_MAX:
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._jobs]
            heapq.heapify(self._deadlines)
        if not place.parked and not place.checking:
            self._forget(place)

    def _forget(self, place: Place) -> None:
        place.check_at = 0.0
        del self._places[place.key]
        places = self._by_queue[place.queue]
        del places[place.key]
        if not places:
            del self._by_queue[place.queue]

    def _hand_out(self, place: Place, number: int) -> list[Job]:
        jobs: list[Job] = []
        while len(jobs) < number and (job := place.take()):
            jobs.append(job)
        self._count -= len(jobs)
        place.checking += len(jobs)
        return jobs

    def _recheck_at(self, place: Place, now: float) -> float:
        if place.backoff_ms < self._limit_ms:
            return now + place.backoff_ms / 1000
        limit_s = self._limit_ms / 1000
        # How long it takes until all places have had their turn.
        period_s = max(limit_s, len(self._places) * self._slot_s)
        # A slot that lies farther ahead than that was given out when there were more places.
        self._slot = min(max(self._slot + self._slot_s, now + limit_s), now + 2 * period_s - limit_s)
        grid_s = limit_s if period_s >= _SHARED * limit_s else limit_s / _SHARED
        return floor(self._slot / grid_s) * grid_s

    def _check_at(self, place: Place, at: float) -> None:
        if not place.check_at or at < place.check_at:
            place.check_at = at
            heapq.heappush(self._checks, (at, self._next_serial(), place))
            if len(self._checks) > 2 * len(self._places) + _STALE_MAX:
                self._checks = [entry for entry in self._checks if entry[2].check_at == entry[0]]
                heapq.heapify(self._checks)
