"""Long polls that found no messages. While nothing happens they need no thread, no connection and no database call.

A *wait list* has the long polls that wait for the same: (queue, group, partition or any), or (namespace, task, group).
A poll of simple-mq is a pop of one group that all polls share. A *check* is another attempt of a long poll to get
messages. One pop of a wait list is checked at a time, the one that has waited longest: when a notification says that
messages were stored; at the time, told by PostgreSQL, at which something becomes ready by itself (a lease ends, a delay
is over); and after a back-off that doubles, in case a notification was lost. The pop gets the messages that its check
finds. If it leaves messages behind, the next one is checked.

With thousands of wait lists, one check per second and list would keep PostgreSQL busy for nothing. So there is a budget
of checks per second, given out in slots: at the slowest back-off, a wait list takes the next free slot. Each list gets
its turn, and slots are aligned, so that checks share a call.

Pure: time is an argument, in seconds. Methods return the pops to check and the timed-out ones; the engine acts.
"""

import heapq
from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from math import floor, inf
from typing import NamedTuple, Protocol

from queen.core.backoff import doubled
from queen.engine.job import Job
from queen.engine.ports import SIMPLE_MQ_GROUP

#: The most waiting pops that one push serves per queue.
OFFERED_MAX = 100
#: A heap is rebuilt when this many more of its entries belong to jobs that have left than to others.
_STALE_MAX = 1000
#: The most wait lists that are remembered as empty.
_EMPTY_MAX = 10_000
#: At the slowest back-off, checks are due together this often per interval; once, if the budget makes them rarer.
_SHARED = 4


class Poll(Protocol):
    """A request that may wait: a pop, or a poll of simple-mq. Notifications name its queue and group."""

    @property
    def queue(self) -> str: ...  # noqa: D102
    @property
    def group(self) -> str: ...  # noqa: D102
    @property
    def wait_key(self) -> Hashable: ...  # noqa: D102
    @property
    def takes(self) -> int: ...  # noqa: D102
    @property
    def returnable(self) -> bool: ...  # noqa: D102
    @property
    def looks_first(self) -> bool: ...  # noqa: D102


class WaitList:
    """The waiters of one wait list, in the order in which they came.

    Attributes:
        parked: by turn.
        order: the same turns as a heap, the longest wait first; some may have left.
        checking: the number of its waiters that are being checked.
        lent: the number of its waiters that wait in a sibling.
        wait_key: what its waiters wait for; the same for waiters of this worker and of siblings.
        borrowed: whether its waiters belong to siblings; pushes serve them, and they are never checked.
        check_at: when the next check is due; 0 for none.
        news: whether messages came during a check, which may have missed them.
        takes: whether its waiters are served in the transaction of a push.
    """

    __slots__ = (
        "backoff_ms", "borrowed", "check_at", "checking", "group", "key", "lent", "news", "order", "parked", "queue",
        "takes", "wait_key",
    )  # fmt: skip

    def __init__(self, key: Hashable, pop: Poll, *, borrowed: bool) -> None:
        self.key, self.wait_key, self.borrowed, self.lent = key, pop.wait_key, borrowed, 0
        self.queue, self.group, self.takes = pop.queue, pop.group, pop.takes > 0
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
        """Removes a waiter before its turn; false if it is not parked here."""
        if self.parked.pop(turn, None) is None:
            return False
        if len(self.order) > 2 * len(self.parked) + _STALE_MAX:
            self.order = sorted(self.parked)
        return True

    def take(self) -> Job | None:
        """Removes and returns the waiter whose turn it is."""
        while self.order:
            if job := self.parked.pop(heapq.heappop(self.order), None):
                return job
        return None


class _Empty(NamedTuple):
    """A check has found no messages: assumed to hold until a time, and until something becomes ready by itself."""

    group: str
    until: float
    ready_at: float


def _key(job: Job) -> Hashable:
    """The key of the wait list of a pop; pops of siblings have wait lists of their own."""
    wait_list: Hashable = job.request.wait_key
    return wait_list if job.reply is None else ("borrowed", wait_list)


class Waiters:
    """All parked pops of a worker.

    A pop starts with ``begin`` and its first check. Each check ends with ``park`` or ``leave``.

    Args:
        initial_ms: the first back-off of a wait list.
        limit_ms: the longest back-off, unless the budget makes it longer.
        checks_per_s: the budget of checks after a back-off, per second; 0 for no limit.
        waiting: called with true before the first check of a pop that may wait, and with false when none is left. In
            between, notifications are needed.
        linger_s: how long a wait list stays when its last pop has left, so that the next one need not look if nothing
            has come.
    """

    def __init__(
        self,
        initial_ms: float,
        limit_ms: float,
        checks_per_s: float = 0,
        waiting: Callable[[bool], None] = lambda _waiting: None,
        linger_s: float = 0,
    ) -> None:
        self._waiting, self._linger_s = waiting, linger_s
        #: Wait lists whose last pop has left, and until when they stay; the first to go first.
        self._lingering: dict[WaitList, float] = {}
        self._now = 0.0
        self._initial_ms, self._limit_ms = initial_ms, limit_ms
        self._slot_s = 1 / checks_per_s if checks_per_s else 0.0
        self._slot = 0.0
        self._wait_lists: dict[Hashable, WaitList] = {}
        self._by_queue: dict[str, dict[Hashable, WaitList]] = {}
        #: By turn. Heap entries outlive their job, so they must not refer to it: it would keep its answer in memory.
        self._jobs: dict[int, Job] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._checks: list[tuple[float, int, WaitList]] = []
        self._serial = 0
        self._count = 0
        #: Wait lists of which a check has just found no messages, by queue and wait key.
        self._empty: dict[str, dict[Hashable, _Empty]] = {}
        self._empties = 0

    def __len__(self) -> int:
        return self._count

    @property
    def wait_lists(self) -> int:
        """The number of wait lists."""
        return len(self._wait_lists)

    @property
    def live(self) -> int:
        """The number of pops that wait, parked or being checked."""
        return len(self._jobs)

    def longest(self, most: int) -> list[Job]:
        """At most so many pops that wait, parked or being checked, the longest waiting first; none of siblings."""
        return list(islice((job for job in self._jobs.values() if job.client is not None), most))

    def begin(self, job: Job) -> None:
        """Adds a pop that may wait, for its first check; its timeout begins now."""
        job.turn = self._next_serial()
        self._jobs[job.turn] = job
        self._wait_list(job).checking += 1
        heapq.heappush(self._deadlines, (job.deadline, job.turn))

    def ready_at_if_empty(self, pop: Poll, now: float) -> float | None:
        """When something becomes ready by itself, if a check has just found no messages; ``None``: a check is needed.

        ``inf`` if other pops are parked in the wait list: these are checked in time.
        """
        if pop.looks_first:
            return None
        wait_list = self._wait_lists.get(pop.wait_key)
        if wait_list is not None and wait_list.parked and not wait_list.checking and not wait_list.news:
            return inf
        empty = self._empty.get(pop.queue, {}).get(pop.wait_key)
        return empty.ready_at if empty is not None and empty.until > now else None

    def note_empty(self, pop: Poll, now: float, ready_at: float) -> None:
        """Notes that a check has found no messages; call it before ``park``. ``ready_at`` is as in ``park``."""
        if not self._wait_lists[pop.wait_key].news:
            if self._empties >= _EMPTY_MAX:
                self._forget_all_empty()
            until = min(now + max(self._initial_ms / 1000, self._linger_s), ready_at)
            wait_lists = self._empty.setdefault(pop.queue, {})
            self._empties += pop.wait_key not in wait_lists
            wait_lists[pop.wait_key] = _Empty(pop.group, until, ready_at)

    def by_queue(self) -> dict[str, int]:
        """The number of parked pops by queue of the log; those that name no queue are under the empty name."""
        waiting = {
            queue: sum(len(wait_list.parked) for wait_list in wait_lists.values() if wait_list.group != SIMPLE_MQ_GROUP)
            for queue, wait_lists in self._by_queue.items()
        }
        return {queue: number for queue, number in waiting.items() if number}

    def park(self, job: Job, now: float, ready_at: float) -> None:
        """Parks a pop whose check found no messages; ``ready_at``: when something may become ready by itself."""
        self._now = now
        wait_list = self._wait_lists[_key(job)]
        wait_list.checking -= 1
        wait_list.backoff_ms = wait_list.backoff_ms or self._initial_ms
        wait_list.park(job)
        self._count += 1
        if wait_list.borrowed:
            return
        if wait_list.news:
            wait_list.news = False
            ready_at = now
        elif not wait_list.check_at or wait_list.backoff_ms < self._limit_ms:
            ready_at = min(self._recheck_at(wait_list, now), ready_at)
        self._check_at(wait_list, ready_at)

    def lend(self, job: Job) -> None:
        """Notes that a checked pop goes to wait in a sibling."""
        wait_list = self._wait_lists[_key(job)]
        wait_list.checking -= 1
        wait_list.lent += 1

    def take_back(self, job: Job) -> None:
        """Notes that a pop is back from a sibling, as after a check."""
        wait_list = self._wait_lists[_key(job)]
        wait_list.lent -= 1
        wait_list.checking += 1

    def parked_with(self, pop: Poll) -> int:
        """The number of pops that are parked in the wait list of this one."""
        wait_list = self._wait_lists.get(pop.wait_key)
        return len(wait_list.parked) if wait_list is not None else 0

    def missing(
        self, queue: str, messages: int, group: str | None, served: Sequence[str]
    ) -> list[tuple[Hashable, int]]:
        """Keys of wait lists for which ``wake`` had fewer pops than messages, and how many lent pops may be checked."""
        return [
            (wait_list.key, messages - wait_list.checking)
            for wait_list in self._lists_of(queue)
            if wait_list.lent
            and wait_list.checking < messages
            and wait_list.group not in served
            and (group is None or wait_list.group == group)
        ]

    def leave(self, job: Job) -> None:
        """Removes a pop after its check."""
        if job.turn:
            wait_list = self._wait_lists[_key(job)]
            wait_list.checking -= 1
            self._end(job, wait_list)

    def cancel(self, job: Job) -> bool:
        """Removes a parked pop; false if it is not parked."""
        wait_list = self._wait_lists.get(_key(job))
        if wait_list is None or not wait_list.remove(job.turn):
            return False
        self._count -= 1
        self._end(job, wait_list)
        return True

    def wake(self, queue: str, messages: int, group: str | None = None, served: Sequence[str] = ()) -> list[Job]:
        """Hands out the pops to check because messages were stored, or were released for one group.

        In each wait list of the queue at most as many pops as messages are checked, including those that are being
        checked already. ``served``: groups that have got the messages.
        """
        woken = []
        self._forget_empty(queue, group, served)
        for wait_list in self._lists_of(queue):
            if (group is not None and wait_list.group != group) or wait_list.group in served or wait_list.borrowed:
                continue
            wait_list.backoff_ms = 0.0
            # Pops that are being checked have waited longer than the parked ones; ``news`` repeats an early check.
            checking = wait_list.checking
            woken += self._hand_out(wait_list, max(messages - checking, 0))
            wait_list.news = wait_list.news or checking > 0
        return woken

    def offer(self, queue: str, messages: int) -> list[Job]:
        """Hands out as many pops of each wait list as can take these messages, for the push that stores them.

        At most ``OFFERED_MAX``, because the call goes through all of them for each partition.
        """
        offered: list[Job] = []
        left: dict[Hashable, int] = {}
        for wait_list in self._lists_of(queue):
            while wait_list.takes and left.get(wait_list.wait_key, messages) > 0 and len(offered) < OFFERED_MAX:
                if not (jobs := self._hand_out(wait_list, 1)):
                    break
                left[wait_list.wait_key] = left.get(wait_list.wait_key, messages) - jobs[0].request.takes
                offered += jobs
        return offered

    def wake_all(self) -> list[Job]:
        """Hands out one pop of each wait list, because notifications may have been lost."""
        self._forget_all_empty()
        return [
            job
            for wait_list in self._wait_lists.values()
            if not wait_list.borrowed
            for job in self._hand_out(wait_list, 1)
        ]

    def next_of(self, pop: Poll, *, more: bool) -> list[Job]:
        """Hands out the next pop of a wait list after a check that found messages, if there may be more.

        There may be more if the check left messages behind, or if messages came that it may have missed.
        """
        if self._linger_s and self._empties:
            self._forget_empty(pop.queue, pop.group, ())
        wait_list = self._wait_lists.get(pop.wait_key)
        if wait_list is None or not (more or wait_list.news):
            return []
        jobs = self._hand_out(wait_list, 1)
        wait_list.news = wait_list.news and not jobs
        return jobs

    def due(self, now: float) -> tuple[list[Job], list[Job]]:
        """Hands out the pops whose check is due, and the pops at their timeout.

        A pop may reach its timeout during a check, because PostgreSQL may be slow. It still has to ``leave`` then. An
        autoAck pop waits for the end of its check instead, because messages that it may have got cannot be released.
        """
        self._now, expired = now, []
        while self._deadlines and self._deadlines[0][0] <= now:
            job = self._jobs.get(heapq.heappop(self._deadlines)[1])
            if job is not None and (self.cancel(job) or (not job.gone and job.request.returnable)):
                expired.append(job)
        checks: list[Job] = []
        while self._checks and self._checks[0][0] <= now:
            at, _, wait_list = heapq.heappop(self._checks)
            if wait_list.check_at == at:
                checks += self._hand_out(wait_list, 1)
                wait_list.check_at = 0.0
                wait_list.backoff_ms = doubled(wait_list.backoff_ms, self._initial_ms, self._limit_ms)
                self._check_at(wait_list, self._recheck_at(wait_list, now))
        self._end_lingering(now)
        return checks, expired

    def next_event(self) -> float:
        """The next time at which ``due`` may return something; ``inf`` if there is none."""
        deadline = self._deadlines[0][0] if self._deadlines else inf
        if self._lingering:
            deadline = min(deadline, next(iter(self._lingering.values())))
        return min(deadline, self._checks[0][0]) if self._checks else deadline

    def drain(self) -> list[Job]:
        """Removes and returns all parked pops, because the worker stops."""
        jobs = [job for wait_list in self._wait_lists.values() for job in wait_list.parked.values()]
        for job in jobs:
            self.cancel(job)
        return jobs

    def _forget_all_empty(self) -> None:
        self._empty.clear()
        self._empties = 0

    def _forget_empty(self, queue: str, group: str | None, served: Sequence[str]) -> None:
        """Forgets that checks of a queue have found nothing, for one group, or for all but the served ones."""
        for name in (queue, ""):
            wait_lists = self._empty.pop(name, {})
            kept = {
                key: known
                for key, known in wait_lists.items()
                if known.group in served or (group is not None and known.group != group)
            }
            self._empties -= len(wait_lists) - len(kept)
            if kept:
                self._empty[name] = kept

    def _lists_of(self, queue: str) -> list[WaitList]:
        """The wait lists that may get messages of a queue."""
        return [*self._by_queue.get(queue, {}).values(), *self._by_queue.get("", {}).values()]

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _wait_list(self, job: Job) -> WaitList:
        key, pop = _key(job), job.request
        wait_list = self._wait_lists.get(key)
        if wait_list is None:
            if not self._wait_lists:
                self._waiting(True)
            wait_list = self._wait_lists[key] = WaitList(key, pop, borrowed=job.reply is not None)
            self._by_queue.setdefault(pop.queue, {})[key] = wait_list
        return wait_list

    def _end(self, job: Job, wait_list: WaitList) -> None:
        """Removes the job of a pop, and its wait list if it was the last one."""
        del self._jobs[job.turn]
        job.turn = 0
        if len(self._deadlines) > 2 * len(self._jobs) + _STALE_MAX:
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._jobs]
            heapq.heapify(self._deadlines)
        if not wait_list.parked and not wait_list.checking and not wait_list.lent:
            if self._linger_s and not wait_list.borrowed:
                wait_list.news = False
                self._lingering.pop(wait_list, None)
                self._lingering[wait_list] = self._now + self._linger_s
            else:
                self._forget(wait_list)

    def _end_lingering(self, now: float) -> None:
        """Forgets the wait lists to which no pop has come back."""
        while self._lingering and next(iter(self._lingering.values())) <= now:
            wait_list = next(iter(self._lingering))
            del self._lingering[wait_list]
            if not wait_list.parked and not wait_list.checking and not wait_list.lent:
                self._forget(wait_list)

    def _forget(self, wait_list: WaitList) -> None:
        wait_list.check_at = 0.0
        del self._wait_lists[wait_list.key]
        wait_lists = self._by_queue[wait_list.queue]
        del wait_lists[wait_list.key]
        if not wait_lists:
            del self._by_queue[wait_list.queue]
        if not self._wait_lists:
            self._waiting(False)
            self._forget_all_empty()  # no notification would say that it is out of date

    def _hand_out(self, wait_list: WaitList, number: int) -> list[Job]:
        jobs: list[Job] = []
        while len(jobs) < number and (job := wait_list.take()):
            jobs.append(job)
        self._count -= len(jobs)
        wait_list.checking += len(jobs)
        return jobs

    def _recheck_at(self, wait_list: WaitList, now: float) -> float:
        if wait_list.backoff_ms < self._limit_ms:
            return now + wait_list.backoff_ms / 1000
        limit_s = self._limit_ms / 1000
        # The time in which each wait list gets a slot.
        period_s = max(limit_s, len(self._wait_lists) * self._slot_s)
        # A later slot was given out when there were more wait lists.
        self._slot = min(max(self._slot + self._slot_s, now + limit_s), now + 2 * period_s - limit_s)
        grid_s = limit_s if period_s >= _SHARED * limit_s else limit_s / _SHARED
        return floor(self._slot / grid_s) * grid_s

    def _check_at(self, wait_list: WaitList, at: float) -> None:
        if not wait_list.check_at or at < wait_list.check_at:
            wait_list.check_at = at
            heapq.heappush(self._checks, (at, self._next_serial(), wait_list))
            if len(self._checks) > 2 * len(self._wait_lists) + _STALE_MAX:
                self._checks = [entry for entry in self._checks if entry[2].check_at == entry[0]]
                heapq.heapify(self._checks)
