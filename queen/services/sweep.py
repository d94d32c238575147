"""A sweep: one walk over the partitions of queues in which a service has something to do, in small transactions.

Producers and consumers come first. A call passes over what somebody holds, and comes back to it when the rest is done:
then one partition at a time, and it waits. A call is about as many messages as it does in a few milliseconds, and after
each the sweep sleeps for a multiple of what it took.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from queen.services.ports import Page, Place, State, Step

PAGE_PARTITIONS = 1000
CALL_PARTITIONS = 100
#: The share of the time in which the sweep is at work.
DUTY = 0.25
#: How long a call should take, in seconds: who wants what it holds waits for its end.
CALL_S = 0.006
#: A call is never about fewer messages: where a commit alone takes longer than that, smaller calls are no shorter.
FEWEST_MESSAGES = 100


class Service(Struct, frozen=True):
    """One thing that is done in partitions.

    Attributes:
        name: as ``queen.find_serviced_queues_v1`` knows it.
        interval_s: from the end of one sweep to the start of the next.
        find: the next partitions of a queue with something to do, after a name; at most so many are looked at.
        apply: one call about so many messages; whether it waits for what others hold.
        messages: most of one call.
    """

    name: str
    interval_s: float
    find: Callable[[int, str, int], Awaitable[Page]]
    apply: Callable[[int, Sequence[Place], int, bool], Awaitable[list[Step]]]
    messages: int


class Call(Struct, frozen=True):
    """The partitions of one call."""

    places: Sequence[Place]
    wait: bool


class Work:
    """What is left to do in some partitions. No I/O."""

    def __init__(self, part_ids: Sequence[int]) -> None:
        self._todo = deque(Place(part_id) for part_id in part_ids)
        self._held: deque[Place] = deque()

    def next(self) -> Call | None:
        """The next call; ``None``: all is done."""
        if self._todo:
            places = [self._todo.popleft() for _ in range(min(CALL_PARTITIONS, len(self._todo)))]
            return Call(sorted(places, key=lambda place: place.part_id), False)
        return Call([self._held.popleft()], True) if self._held else None

    def learn(self, call: Call, steps: Sequence[Step]) -> None:
        """What a call has left. What it could not have although it waited is for the next sweep."""
        for step in steps:
            if step.state is State.MORE:
                (self._held if call.wait else self._todo).appendleft(step.place)
            elif step.state is State.BUSY and not call.wait:
                self._held.append(step.place)


class Portion:
    """How many messages a call is about: as many as it does in ``CALL_S``, as far as can be told from the last one.

    What a message costs depends on its size, on how its id was made, and on how much larger the tables are than memory:
    from 10 to 50 µs. No I/O.

    Args:
        most: there are never more; and never fewer than ``FEWEST_MESSAGES``, if it is not less.
    """

    def __init__(self, most: int) -> None:
        self._most, self._fewest = most, min(most, FEWEST_MESSAGES)
        self.messages = self._fewest

    def learn(self, took_s: float, done: int) -> None:
        """A call has done so many; one that found nothing says nothing."""
        if done:
            fitting = self.messages * CALL_S / took_s if took_s > 0 else self._most
            self.messages = max(self._fewest, int(min(fitting, 2 * self.messages, self._most)))


def pause_s(took_s: float) -> float:
    """How long to sleep after a call."""
    return took_s * (1 / DUTY - 1)


class Pacer:
    """Time as a sweep sees it."""

    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]]) -> None:
        self.clock, self._sleep = clock, sleep

    async def rest(self, since: float) -> None:
        """Sleeps after a call that began at ``since``."""
        await self._sleep(pause_s(self.clock() - since))


async def sweep(service: Service, queue_ids: Sequence[int], pacer: Pacer, goes_on: Callable[[], bool]) -> int:
    """Does what there is to do in these queues, as long as ``goes_on``; how much it was."""
    total = 0
    portion = Portion(service.messages)
    for queue_id in queue_ids:
        after: str | None = ""
        while after is not None and goes_on():
            begin = pacer.clock()
            page = await service.find(queue_id, after, PAGE_PARTITIONS)
            await pacer.rest(begin)
            total += await _work_off(service, queue_id, Work(page.part_ids), portion, pacer, goes_on)
            after = page.last_name
    return total


async def _work_off(
    service: Service, queue_id: int, work: Work, portion: Portion, pacer: Pacer, goes_on: Callable[[], bool]
) -> int:
    total = 0
    while goes_on() and (call := work.next()) is not None:
        begin = pacer.clock()
        steps = await service.apply(queue_id, call.places, portion.messages, call.wait)
        done = sum(step.count for step in steps)
        portion.learn(pacer.clock() - begin, done)
        work.learn(call, steps)
        total += done
        await pacer.rest(begin)
    return total
