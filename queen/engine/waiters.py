"""Long polls that found nothing: no thread, no connection and no database call while nothing happens.

A *place* is what a pop looks at: (queue, group, partition or any), or (namespace, task, group). All waiters of a place
are checked by one pop at a time, the one that waits longest: when a push to the queue is heard of, when the database
said that something becomes ready by itself (a lease ends, a delay is over), and, in case a notice got lost, after a
back-off that doubles. What a check finds belongs to the pop that made it, and a check that finds something brings on
the next.

Pure: time is an argument, in seconds; what to check and what has timed out is returned, not done.
"""

import heapq
from collections import OrderedDict
from collections.abc import Hashable
from itertools import islice

from queen.core.backoff import doubled
from queen.core.operations import Pop
from queen.engine.job import Job


class Place:
    """The waiters of one place, in the order in which they came.

    Attributes:
        parked: by turn, the first to wait first.
        checking: how many of its waiters are out for a check.
        check_at: when the next check is due; 0 for none.
    """

    __slots__ = ("backoff_ms", "check_at", "checking", "group", "key", "parked", "queue")

    def __init__(self, key: Hashable, pop: Pop) -> None:
        self.key = key
        self.queue, self.group = pop.queue, pop.group
        self.parked: OrderedDict[int, Job] = OrderedDict()
        self.checking = 0
        self.backoff_ms = 0.0
        self.check_at = 0.0


def place_of(pop: Pop) -> Hashable:
    """What a pop looks at; two pops with the same place see the same messages."""
    return (pop.queue, pop.group, pop.partition, pop.namespace, pop.task)


class Waiters:
    """All parked pops of a worker.

    A pop that is handed out for a check comes back with ``park``, or ends with ``leave``.

    Args:
        initial_ms: first re-check of a place.
        limit_ms: slowest re-check.
    """

    def __init__(self, initial_ms: float, limit_ms: float) -> None:
        self._initial_ms, self._limit_ms = initial_ms, limit_ms
        self._places: dict[Hashable, Place] = {}
        self._by_queue: dict[str, dict[Hashable, Place]] = {}
        self._deadlines: list[tuple[float, int, Job]] = []
        self._checks: list[tuple[float, int, Place]] = []
        self._serial = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def park(self, job: Job, now: float, ready_at: float) -> None:
        """Parks a pop that has found nothing; ``ready_at``: when something may become ready by itself."""
        place = self._place(job.request)
        if job.turn:
            place.checking -= 1
        else:
            job.turn = self._next_serial()
        place.backoff_ms = place.backoff_ms or self._initial_ms
        place.parked[job.turn] = job
        for turn in [turn for turn in place.parked if turn > job.turn]:
            place.parked.move_to_end(turn)
        self._count += 1
        heapq.heappush(self._deadlines, (job.deadline, self._next_serial(), job))
        self._check_at(place, min(now + place.backoff_ms / 1000, ready_at))

    def leave(self, job: Job) -> None:
        """A pop that was out for a check does not come back."""
        if job.turn:
            place = self._places[place_of(job.request)]
            place.checking -= 1
            self._forget_if_empty(place)

    def cancel(self, job: Job) -> bool:
        """Forgets a parked pop whose sender has gone; false if it is not parked."""
        place = self._places.get(place_of(job.request))
        if place is None or place.parked.pop(job.turn, None) is None:
            return False
        self._count -= 1
        self._forget_if_empty(place)
        return True

    def wake(self, queue: str, messages: int, group: str | None = None) -> list[Job]:
        """Hands out the pops to check because messages came, or came free for one group.

        In each place that is concerned they are at most as many as messages.
        """
        places = [*self._by_queue.get(queue, {}).values(), *self._by_queue.get("", {}).values()]
        places = [place for place in places if group is None or place.group == group]
        for place in places:
            place.backoff_ms = 0.0
        return [job for place in places for job in self._hand_out(place, messages)]

    def next_of(self, pop: Pop) -> list[Job]:
        """Hands out the next pop of a place in which a check has just found something: there may be more."""
        place = self._places.get(place_of(pop))
        return self._hand_out(place, 1) if place else []

    def due(self, now: float) -> tuple[list[Job], list[Job]]:
        """What time brings: the pops to check, handed out, and those whose time is over, taken out."""
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now:
            job = heapq.heappop(self._deadlines)[2]
            if self.cancel(job):
                expired.append(job)
        checks: list[Job] = []
        while self._checks and self._checks[0][0] <= now:
            at, _, place = heapq.heappop(self._checks)
            if place.check_at == at:
                checks += self._hand_out(place, 1)
                place.check_at = 0.0
                place.backoff_ms = doubled(place.backoff_ms, self._initial_ms, self._limit_ms)
                self._check_at(place, now + place.backoff_ms / 1000)
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

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _place(self, pop: Pop) -> Place:
        key = place_of(pop)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = Place(key, pop)
            self._by_queue.setdefault(pop.queue, {})[key] = place
        return place

    def _forget_if_empty(self, place: Place) -> None:
        if place.parked or place.checking:
            return
        place.check_at = 0.0
        del self._places[place.key]
        places = self._by_queue[place.queue]
        del places[place.key]
        if not places:
            del self._by_queue[place.queue]

    def _hand_out(self, place: Place, number: int) -> list[Job]:
        turns = list(islice(place.parked, number))
        self._count -= len(turns)
        place.checking += len(turns)
        return [place.parked.pop(turn) for turn in turns]

    def _check_at(self, place: Place, at: float) -> None:
        if not place.check_at or at < place.check_at:
            place.check_at = at
            heapq.heappush(self._checks, (at, self._next_serial(), place))
