"""A sweep: one pass of a background job over the partitions of queues, in small transactions.

Producers and consumers have priority. A call skips rows that others have locked, and returns to them when the rest is
done: then one partition at a time, and it waits for locks. Calls are short, and after
each the sweep sleeps for a multiple of what it took; for less of it when it does not keep up.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from queen.core.errors import TooSlowError
from queen.jobs.ports import Page, Place, State, Step

PAGE_PARTITIONS = 1000
CALL_PARTITIONS = 100
#: The share of the time for which a sweep works, as long as it keeps up.
DUTY = 0.25


class Service(Struct, frozen=True):
    """A job on partitions.

    Attributes:
        name: for ``queen.find_serviced_queues_v1``.
        interval_s: pause between two sweeps.
        find: the next partitions of a queue with work, after a name; examines a limited number.
        apply: one call; the flag says whether it waits for locks.
    """

    name: str
    interval_s: float
    find: Callable[[int, str, int], Awaitable[Page]]
    apply: Callable[[int, Sequence[Place], bool], Awaitable[list[Step]]]


class Call(Struct, frozen=True):
    """The partitions of one call."""

    places: Sequence[Place]
    wait: bool


class Work:
    """The remaining work in some partitions. No I/O."""

    def __init__(self, part_ids: Sequence[int]) -> None:
        self._todo = deque(Place(part_id) for part_id in part_ids)
        self._held: deque[Place] = deque()

    def next(self) -> Call | None:
        """The next call; ``None`` if all is done."""
        if self._todo:
            places = [self._todo.popleft() for _ in range(min(CALL_PARTITIONS, len(self._todo)))]
            return Call(sorted(places, key=lambda place: place.part_id), False)
        return Call([self._held.popleft()], True) if self._held else None

    def learn(self, call: Call, steps: Sequence[Step]) -> None:
        """Learns what a call has left. Rows that it could not lock although it waited are left to the next sweep."""
        for step in steps:
            if step.state is State.MORE:
                (self._held if call.wait else self._todo).appendleft(step.place)
            elif step.state is State.BUSY and not call.wait:
                self._held.append(step.place)


def share(lasted_s: float, interval_s: float) -> float:
    """The share of the time for a sweep, by its duration so far.

    A sweep that lasts longer than its interval may not keep up with new messages. It gets proportionally more, up to
    all of the time.
    """
    return min(1.0, DUTY * max(1.0, lasted_s / interval_s))


class Pacer:
    """The pace of one sweep, which starts now.

    Args:
        clock: seconds, never set back.
        sleep: waits for so many seconds.
        interval_s: of the service.
    """

    def __init__(
        self, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]], interval_s: float
    ) -> None:
        self.clock, self._sleep, self._interval_s = clock, sleep, interval_s
        self._began = clock()

    async def rest(self, since: float) -> None:
        """Sleeps after a call that began at ``since``."""
        now = self.clock()
        await self._sleep((now - since) * (1 / share(now - self._began, self._interval_s) - 1))


async def sweep(service: Service, queue_ids: Sequence[int], pacer: Pacer, goes_on: Callable[[], bool]) -> int:
    """Does all work in these queues, as long as ``goes_on``; returns the total count."""
    total = 0
    for queue_id in queue_ids:
        after: str | None = ""
        while after is not None and goes_on():
            begin = pacer.clock()
            page = await service.find(queue_id, after, PAGE_PARTITIONS)
            await pacer.rest(begin)
            total += await _work_off(service, queue_id, Work(page.part_ids), pacer, goes_on)
            after = page.last_name
    return total


async def _work_off(service: Service, queue_id: int, work: Work, pacer: Pacer, goes_on: Callable[[], bool]) -> int:
    total = 0
    while goes_on() and (call := work.next()) is not None:
        begin = pacer.clock()
        try:
            steps = await service.apply(queue_id, call.places, call.wait)
        except TooSlowError as problem:
            if not (problem.lock and call.wait):
                raise
            steps = [Step(place, 0, State.BUSY) for place in call.places]
        work.learn(call, steps)
        total += sum(step.count for step in steps)
        await pacer.rest(begin)
    return total
