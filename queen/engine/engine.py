"""The engine of a worker process: takes jobs from the HTTP loop, batches them into calls, and returns the results.

It runs in one event loop: that of the requests, or one in a thread of its own (``queen.engine.handle``). Everything
here happens in that loop. The engine wakes up for a job, the end of a call, the time at which a batch leaves, or the
time of a long poll.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from typing import Any
from uuid import UUID

from msgspec import Struct

from queen.core.errors import (
    DatabaseSlowError,
    DatabaseUnavailableError,
    LockedError,
    OverloadedError,
    QueenError,
    forget_frames,
)
from queen.core.job_type import JobType
from queen.core.limits import GROUP_BYTES_MAX, LOCK_WAIT_S
from queen.core.metrics import Connected
from queen.engine.context import Context
from queen.engine.failures import Bisection, Pace, Part, call_limit_s, leaves_alone, lock_wait_s, locked_error
from queen.engine.fetch_result import FetchResult
from queen.engine.handlers.consumer_groups import go_on
from queen.engine.handlers.give_back import give_back_orphans
from queen.engine.handlers.locks import find_locked
from queen.engine.handlers.pop import lost
from queen.engine.handlers.unleased import outlive_unasked
from queen.engine.job import Job
from queen.engine.job_queue import JobQueue
from queen.engine.job_specs import JOB_SPECS, JobSpec, Waiting
from queen.engine.lease_release import LeaseRelease
from queen.engine.lending import BORROWED_BYTES_MAX, LENT_S, Lending, Siblings
from queen.engine.lock_queue import Round
from queen.engine.lock_waits import LockWaits
from queen.engine.metrics import EngineMetrics, SlotMetrics
from queen.engine.offer import Offer, offered
from queen.engine.orphans import Orphan
from queen.engine.ports import Notification
from queen.engine.prefetch import PrefetchedBatch, returned_in_s
from queen.engine.slots import Slots
from queen.engine.subscriptions import SUBSCRIPTIONS, address
from queen.engine.waiters import Waiters
from queen.log.requests import AckItem, Pop, Popped
from queen.metrics.engine import observe_call

log = logging.getLogger("queen.engine")

#: Logged when a task fails after its requests are answered, or has none.
TASK_FAILED = "A task of the engine failed. This is a bug: please report it with the traceback"

#: A pop tries again after this time if another transaction has locked what is ready.
_CONTENDED_S = 0.002
#: After this many attempts a pop that is no long poll gives up, and a long poll doubles its pause up to the limit: a
#: transaction of SQL may hold what it pops for long.
_CONTENDED_CHECKS, _CONTENDED_LIMIT_S = 10, 0.1
#: Long polls and the creation of cursors are tried again after this time while PostgreSQL is unavailable.
_UNAVAILABLE_S = 0.5
#: The most WebSockets, and the most long polls, that a worker tells of.
_CONNECTED_MAX = 1000
#: Errors after which a long poll goes on waiting.
_WAITED_OUT = (DatabaseUnavailableError, DatabaseSlowError, LockedError)


class Shares(Struct, frozen=True):
    """Limits of an engine.

    Attributes:
        hot: connections for messages.
        cold: connections for everything else.
        waiters: maximum of long polls.
    """

    hot: int
    cold: int
    waiters: int


def _connected(job: Job, since_s: float) -> Connected:
    """A long poll, as it is reported; ``since_s``: the time at which the loop's clock was 0."""
    pop, began = job.request, since_s + job.deadline - job.request.wait_ms / 1000
    return Connected(
        pop.queue, pop.namespace, pop.task, pop.group, "longPoll", address(job.client),
        datetime.fromtimestamp(began, UTC),
    )  # fmt: skip


class Engine:
    """Job queues and long polls, and the calls that serve them.

    Args:
        context: what handlers need; its ``notify`` calls this engine's ``notify`` and notifies other workers.
        job_queue: makes the job queue of a kind.
        waiters: the long polls.
        shares: the limits.
        answer: returns a result, or an exception, to the sender of a job.
        specs: the kinds of jobs; tests use others than the server.
        clock: seconds, to measure calls. The loop's clock is too coarse: that of uvloop has steps of a millisecond,
            which is as long as a call takes.
    """

    def __init__(
        self,
        context: Context,
        job_queue: Callable[[JobType], JobQueue],
        waiters: Waiters,
        shares: Shares,
        answer: Callable[[Job, Any], None],
        specs: Mapping[JobType, JobSpec] = JOB_SPECS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = clock
        self._context = context
        self._answer = answer
        self._waiters = waiters
        self._shares = shares
        self._specs = specs
        self._job_queues = {kind: job_queue(kind) for kind in specs}
        self._paces = {kind: Pace() for kind in specs}
        self._lock_waits = LockWaits(context, specs, self._job_queues)
        self._hot = Slots(shares.hot, [kind for kind in specs if not specs[kind].cold])
        self._cold = Slots(shares.cold, [kind for kind in specs if specs[kind].cold])
        self._waiting_refused = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._stopping = False
        self._subscribes = False
        self._lease_release = LeaseRelease(context, self._start)
        self._lending: Lending | None = None

    def lend_through(self, siblings: Siblings) -> Callable[[str, bytes], None]:
        """Lets long polls wait in sibling workers, and those of siblings here; returns the receiver of datagrams."""
        self._lending = Lending(siblings, time.monotonic, self._borrow, self._release, self._context.new_lease)
        return self._lending.receive

    def metrics(self) -> EngineMetrics:
        """The current metrics. May be called from any thread."""
        return EngineMetrics(
            job_queues=tuple([job_queue.metrics(kind) for kind, job_queue in self._job_queues.items()]),
            hot=SlotMetrics(self._hot.total, self._hot.free),
            cold=SlotMetrics(self._cold.total, self._cold.free),
            waiting=len(self._waiters),
            waiting_max=self._shares.waiters,
            waiting_refused=self._waiting_refused,
            prefetched=self._context.prefetch.taken,
            prefetched_in_vain=self._context.prefetch.in_vain,
            wait_lists=self._waiters.wait_lists,
            stopping=self._stopping,
        )

    @property
    def waiting(self) -> int:
        """Parked long polls."""
        return len(self._waiters)

    def waiting_by_queue(self) -> dict[str, int]:
        """Parked long polls by queue; those that name no queue under the empty name."""
        return self._waiters.by_queue()

    def connected(self) -> list[Connected]:
        """Consumers that are connected: of WebSockets and of long polls, those that came first."""
        since_s = time.time() - self._loop.time()
        polls = [_connected(job, since_s) for job in self._waiters.longest(_CONNECTED_MAX)]
        return [*SUBSCRIPTIONS.longest(_CONNECTED_MAX), *polls]

    @property
    def queued(self) -> int:
        """Jobs that wait for a call."""
        return sum([len(job_queue) for job_queue in self._job_queues.values()])

    def accept(self, jobs: Sequence[Job]) -> None:
        """Takes new jobs; a job above the limit is answered with ``OverloadedError``."""
        now = self._loop.time()
        for job in jobs:
            job_queue = self._job_queues[job.kind]
            if job_queue.refuses():
                self._answer(job, OverloadedError(f"Too many {job.kind.value} requests wait for the database"))
                continue
            job.since = now
            spec = self._specs[job.kind]
            if job.kind is JobType.POP and (popped := self._prefetched(job)) is not None:
                self._reply(job, popped)
                continue
            if spec.waiting is not None and job.request.wait_ms:
                if self._waiters.live >= self._shares.waiters:
                    self._waiting_refused += 1
                    self._answer(job, OverloadedError("This worker has reached its limit of long polls"))
                    continue
                job.deadline = now + job.request.wait_ms / 1000
                ready_at = self._waiters.ready_at_if_empty(job.request, now)
                self._waiters.begin(job)
                if ready_at is not None:
                    self._park(job, ready_at - now)
                    continue
            if spec.unleased is not None and (unleased := spec.unleased(job.request)):
                self._start(self._put_later(job, unleased))
            else:
                self._put(job)
        self._drain()

    def _put(self, job: Job) -> None:
        spec = self._specs[job.kind]
        if spec.key is not None:
            job.key = spec.key(job.request)
        if spec.size is not None:
            job.size = spec.size(job.request)
        if spec.items is not None:
            job.items = spec.items(job.request)
        self._job_queues[job.kind].put(job)

    async def _put_later(self, job: Job, unleased: Sequence[AckItem]) -> None:
        """Leaves time to release what was prefetched, so that an ack without a lease is not refused for that."""
        await outlive_unasked(self._context, unleased)
        self._put(job)
        self._drain()

    def notify(self, news: Notification, origin: str = "") -> None:
        """Takes a notification of this worker or another one (``origin``), and checks as many long polls as it says."""
        if news.changed:
            self._context.cache.forget_queue(news.queue)
            self._context.cache.forget_push_options()
        if not news.queue:
            return
        waits = self._waiters.wait_lists > 0
        if waits:
            self._check(self._waiters.wake(news.queue, news.messages, news.group, news.served))
        if self._lending is not None:
            if news.group is None and not news.changed:
                self._lending.want(news.queue, origin, news.messages, news.served if origin else ())
            for wait_key, number in (
                self._waiters.missing(news.queue, news.messages, news.group, news.served) if waits else ()
            ):
                self._lending.recall(wait_key, number)

    def missed(self) -> None:
        """Notifications may have been lost: checks one long poll of each wait list."""
        self._context.cache.forget_push_options()
        self._check(self._waiters.wake_all())

    def abandon(self, job: Job) -> None:
        """The sender of a job has gone: the job is dropped, and messages that it gets are released."""
        job.gone = True
        if job.turn:
            self._waiters.cancel(job)

    def release_waiters(self) -> None:
        """Answers all long polls with no messages, now and from now on: the worker stops."""
        self._stopping = self._lease_release.stopping = True
        for job_queue in self._job_queues.values():
            job_queue.stop_lingering()
        for job in self._waiters.drain():
            self._reply(job, self._nothing(job))
        if self._lending is not None:
            self._lending.recall_all()
        if late := self._context.prefetch.drain():
            self._start(self._return_prefetched(late))

    async def stop(self) -> None:
        """Answers long polls, and waits for all other jobs. Call it when no new jobs come."""
        self.release_waiters()
        self._drain()
        while self._tasks:
            await asyncio.wait(set(self._tasks), return_when=asyncio.FIRST_COMPLETED)
            if late := self._context.prefetch.drain():  # prefetched by a call that was under way
                self._start(self._return_prefetched(late))
        if self._timer is not None:
            self._timer.cancel()

    def _prefetched(self, job: Job) -> Popped | None:
        """The prefetched messages for a pop, if there are any."""
        if not self._context.prefetch or self._context.pop_maintenance:
            return None
        return self._context.prefetch.take(job.request)

    def _check(self, jobs: Sequence[Job]) -> None:
        now = self._loop.time()
        for job in jobs:
            job.since = now
            self._job_queues[job.kind].put(job)
        if jobs:
            self._drain()

    def _drain(self) -> None:
        """Sends batches that are due, as far as connections are free, and sets the timer for the others."""
        # Twice per call, and nearly always there is little to do: so there are no calls to find that out.
        now, prefetch = self._loop.time(), self._context.prefetch
        if prefetch.due_at != inf and (late := prefetch.due()):
            self._start(self._return_prefetched(late))
        at = self._waiters.next_event()
        if at <= now:
            self._expire(now)
            at = self._waiters.next_event()
        for due_in_ms in self._send_due(now).values():
            if due_in_ms:
                at = min(at, now + due_in_ms / 1000)
        if prefetch.due_at != inf:
            at = min(at, now + max(prefetch.due_at - prefetch.now(), 0.0))
        if at != inf:
            self._wake_at(at)

    def _send_due(self, now: float) -> dict[JobType, float | None]:
        """Sends batches that are due; returns in how many milliseconds the others are, by kind."""
        waits = {kind: job_queue.due_in_ms(now) for kind, job_queue in self._job_queues.items() if job_queue.ready}
        rounds = self._lock_waits.due()
        if not waits and not rounds:
            return waits
        due = {kind for kind, due_in_ms in waits.items() if due_in_ms == 0} | rounds.keys()
        sent: list[JobType] = []
        for slots in (self._hot, self._cold):
            while due and (kind := slots.next(due)) is not None:
                slots.take(kind)
                if (round_ := rounds.pop(kind, None)) is not None:
                    round_.under_way = True
                    self._start(self._call_lock_queue(kind, round_, slots))
                else:
                    sent.append(kind)
                    self._send(kind, slots, sent)
                waits[kind] = self._job_queues[kind].due_in_ms(now)
                if waits[kind] != 0:
                    due.discard(kind)
        return waits

    def _offer(self, kind: JobType, batch: Sequence[Job]) -> Offer | None:
        """Long polls that wait for the messages of a batch of pushes, to be served by its call."""
        news = self._specs[kind].news
        if news is None or not self._waiters:
            return None
        return self.offer(news.arrivals(job.request for job in batch), sum([job.size for job in batch]))

    def offer(self, messages: Mapping[str, int], size: int) -> Offer | None:
        """Long polls that wait for messages, whose number by queue and size in bytes are given."""
        if not self._waiters or self._context.unavailable or self._context.pop_maintenance or size > GROUP_BYTES_MAX:
            return None
        jobs = [job for queue, number in messages.items() for job in self._waiters.offer(queue, number)]
        if not jobs:
            return None
        return Offer(jobs, messages, self._context.new_lease, small=size <= BORROWED_BYTES_MAX)

    def take_back(self, offer: Offer) -> None:
        """Answers the long polls of an offer that were served; the others go on waiting."""
        self._take_back(offer)
        self._drain()

    def _expire(self, now: float) -> None:
        checks, expired = self._waiters.due(now)
        for job in expired:
            job.gone = True  # if it is being checked, it releases what it gets
            self._reply(job, self._nothing(job))
        for job in checks:
            job.since = now
            self._job_queues[job.kind].put(job)

    def _wake_at(self, at: float) -> None:
        """Makes the engine drain at that time. An earlier timer stays: when it fires, it sets the next one."""
        if self._timer is not None:
            if self._wakes_at <= at:
                return
            self._timer.cancel()
        self._wakes_at = at
        self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._drain()

    def _send(self, kind: JobType, slots: "Slots[JobType]", together: Sequence[JobType]) -> None:
        batch = self._job_queues[kind].take()
        self._start(self._run(kind, batch, slots, self._offer(kind, batch), together))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error(TASK_FAILED, exc_info=problem)

    async def _run(
        self,
        kind: JobType,
        batch: list[Job],
        slots: "Slots[JobType]",
        offer: Offer | None,
        together: Sequence[JobType],
    ) -> None:
        """Makes the call of a batch; ``together``: the kinds of all that were sent in the same step."""
        offered.set(offer)
        leaves_alone.set(len(together) < 2)
        keys, served = {job.key for job in batch}, len(batch)
        try:
            batch[:] = self._still_to_serve(kind, batch)
            served -= len(batch)
            if kind in self._lock_waits.waiting:
                batch[:] = self._lock_waits.without_locked(kind, batch, self._loop.time())
            served += await self._execute(kind, batch, offer)
            for pop in self._context.prefetch.take_fresh() if self._context.prefetch.fresh else ():
                self._check(self._waiters.next_of(pop, more=True))
        finally:
            if offer is not None:
                self._take_back(offer)
            self._job_queues[kind].done(keys, served)
            slots.give_back(kind)
            self._lease_release.run()
            if self._context.unfinished and not self._subscribes:
                self._subscribes = True
                self._start(self._subscribe())
            self._drain()

    def _still_to_serve(self, kind: JobType, batch: Sequence[Job]) -> list[Job]:
        """A batch without jobs whose sender has gone, and without pops that are answered from prefetched messages."""
        jobs = self._still_there(batch)
        if kind is not JobType.POP or not self._context.prefetch:
            return jobs
        rest = []
        for job in jobs:
            if (popped := self._prefetched(job)) is None:
                rest.append(job)
            else:
                self._finish(job, popped)
        return rest

    def _still_there(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs whose sender still waits; the others leave."""
        gone = [job for job in jobs if job.gone]
        for job in gone:
            self._waiters.leave(job)
        return [job for job in jobs if not job.gone] if gone else [*jobs]

    async def _return_prefetched(self, batches: Sequence[PrefetchedBatch]) -> None:
        """Releases prefetched messages that no pop has asked for in time, so that other consumers get them."""
        asked = [batch.asked for batch in batches]
        self._context.orphans.add([Orphan(each.lease, each.pop.queue, each.pop.group) for each in asked])
        with contextlib.suppress(DatabaseUnavailableError):
            await give_back_orphans(self._context)
        self._context.prefetch.forget([each.lease for each in asked])

    async def _call_lock_queue(self, kind: JobType, round_: Round[Job], slots: "Slots[JobType]") -> None:
        """The next call for some of the jobs that wait for locks."""
        lock_queue, fit = self._lock_waits.queue(kind), self._job_queues[kind].fit
        called, wait_s = False, LOCK_WAIT_S
        try:
            if round_ is lock_queue.turn:
                jobs = lock_queue.take_turn(fit)
                # Only if another connection is free for other jobs.
                if slots.free and all([self._lock_waits.needs_one_lock(job) for job in jobs]):
                    wait_s = lock_queue.wait_s()
            else:
                locked = await find_locked(self._context, lock_queue.locks)
                for job in lock_queue.late(locked, self._loop.time()):
                    self._lock_waits.leave(kind, job, problem := locked_error())
                    self._end(job, problem)
                jobs = lock_queue.take_free(locked, fit)
            called = bool(jobs)
            await self._execute(kind, jobs, wait_s=wait_s)
        finally:
            for job in lock_queue.called(round_):
                if job.gone:
                    self._lock_waits.leave(kind, job, None)
                    self._waiters.leave(job)
            slots.give_back(kind)
            self._drain()
            await asyncio.sleep(lock_queue.end(round_, self._loop.time(), called=called))
            round_.under_way = False
            self._drain()

    async def _execute(
        self, kind: JobType, batch: list[Job], offer: Offer | None = None, *, wait_s: float | None = None
    ) -> int:
        """Executes a batch, in parts if a call fails; answers each job as soon as its result is known.

        The batch is emptied, and nothing else here keeps a job that is answered: its future has the messages, and the
        parts of a slow call may take minutes.

        Returns:
            How many of the answered jobs had not waited for messages before.
        """
        if not batch:
            return 0
        served, rules, repeats = 0, self._context.rules, not self._specs[kind].cold
        bisection = Bisection([*batch], rules, self._paces[kind], self._loop.time(), repeats=repeats, wait_s=wait_s)
        batch.clear()
        while (part := bisection.next(self._loop.time())) is not None:
            if part.pause_s:
                await asyncio.sleep(part.pause_s)
            served += await self._execute_part(kind, part, bisection, offer, waits=wait_s is not None)
        return served

    async def _execute_part(
        self, kind: JobType, part: Part[Job], bisection: Bisection[Job], offer: Offer | None, *, waits: bool
    ) -> int:
        """Makes one call of a batch, and answers the jobs whose results are known then; ``waits``: for locks."""
        jobs = self._still_there(part.requests)
        results, problem = await self._try(kind, jobs, part)
        outcomes = list(zip(jobs, results, strict=True))
        locks = await self._lock_waits.locks_met(kind, outcomes)
        answers = bisection.settle(part, outcomes, self._loop.time(), locks)
        if waits or locks is not None:
            answers = self._lock_waits.sort_out(kind, answers, self._loop.time())
        self._end_each(answers, problem)
        if problem is None:
            # After the answers, so that an error in counting or notifying cannot change them.
            requests, results = [job.request for job, _ in answers], [result for _, result in answers]
            self._context.counters.batch(kind, requests, results)
            self._announce(kind, requests, results, offer)
        return len([job for job, _ in answers if not job.turn])

    def _end_each(self, answers: Sequence[tuple[Job, Any]], problem: Exception | None) -> None:
        """Answers jobs; ``problem`` is the error of their call."""
        for job, result in answers:
            if problem is not None and result is problem:
                self._end_with(job, problem)
            else:
                self._end(job, result)

    def _end_with(self, job: Job, problem: Exception) -> None:
        """Ends a job whose call has failed."""
        if isinstance(problem, DatabaseUnavailableError) and self._is_long_poll(job):
            self._wait_out(job)
        else:
            self._fail(job, problem)

    def _end(self, job: Job, result: Any) -> None:  # noqa: ANN401 - a result or an exception
        if isinstance(result, FetchResult):
            self._finish_fetch(job, result)
        elif not isinstance(result, Exception):
            self._finish(job, result)
        elif type(result) in _WAITED_OUT and self._is_long_poll(job):
            self._wait_out(job)
        else:
            self._fail(job, result)

    def _announce(self, kind: JobType, requests: Sequence[Any], results: Sequence[Any], offer: Offer | None) -> None:
        news = self._specs[kind].news
        if news is not None:
            if offer is not None:
                self._take_back(offer)
            news.announce(self._context, requests, results, offer)

    def _take_back(self, offer: Offer) -> None:
        """Answers the long polls that a push has served; the others go on waiting."""
        served, offer.served = offer.served, []
        for job, popped in served:
            self._deliver(job, popped, more=offer.leaves_more(job))
        jobs, offer.jobs = offer.jobs, []
        for job in jobs:
            # A lease is offered once: the outcome of the call may be unknown.
            if offer.may_have_acked(job):
                self._fail(job, lost())
            elif self._may_wait(job) and not (job.reply is not None and offer.was_sent(job)):
                self._park(job, inf)
            else:
                self._finish(job, self._nothing(job))

    def take_over(self, leases: Sequence[UUID]) -> None:
        """Releases what an ended worker had prefetched, which this worker replaces."""
        self._lease_release.release([Orphan(lease, "", "") for lease in leases])

    async def _subscribe(self) -> None:
        """Makes the missing cursors of groups; pops of these groups are served meanwhile."""
        try:
            while self._context.unfinished and not self._stopping:
                try:
                    await go_on(self._context)
                except QueenError:
                    await asyncio.sleep(_UNAVAILABLE_S)
        finally:
            self._subscribes = False

    def _wait_out(self, job: Job) -> None:
        """Lets a long poll wait while PostgreSQL cannot serve it; at its timeout it gets no messages."""
        if self._may_wait(job):
            self._park(job, _UNAVAILABLE_S)
        else:
            self._finish(job, self._nothing(job))

    async def _try(self, kind: JobType, jobs: Sequence[Job], part: Part[Job]) -> tuple[Sequence[Any], Exception | None]:
        """The results of one call; if it failed, its exception as the result of each job, and once more.

        Notes the time of the call for the limiter and the metrics.
        """
        if not jobs:
            return (), None
        job_queue = self._job_queues[kind]
        limited, waits = call_limit_s.set(part.limit_s), lock_wait_s.set(part.wait_s)
        begin, in_flight = self._clock(), job_queue.in_flight
        try:
            results = await self._specs[kind].handler(self._context, [job.request for job in jobs])
            if len(results) != len(jobs):
                raise RuntimeError(f"{len(results)} results for {len(jobs)} {kind.value} jobs")  # noqa: TRY301
        except Exception as problem:
            if not isinstance(problem, QueenError):
                log.exception("A %s call failed", kind.value)
            forget_frames(problem)
            return [problem] * len(jobs), problem
        finally:
            call_limit_s.reset(limited)
            lock_wait_s.reset(waits)
        end = self._clock()
        if part.limit_s is None:
            job_queue.limiter.sample((end - begin) * 1000, len(jobs), in_flight, end)
        observe_call(kind, end - begin, len(jobs))
        return results, None

    def _finish(self, job: Job, result: Any) -> None:  # noqa: ANN401 - a result or an exception
        self._waiters.leave(job)
        if not job.gone:
            self._reply(job, result)

    def _reply(self, job: Job, result: Any) -> None:  # noqa: ANN401 - a result or an exception
        if job.reply is not None:
            popped = result if isinstance(result, Popped) else Popped()
            if not job.reply(popped) and popped.lease is not None:
                self._release(job.request, popped.lease)
            return
        waiting = self._specs[job.kind].waiting
        if waiting is not None and not isinstance(result, Exception):
            waiting.count(self._context, job.request, result)
        self._answer(job, result)

    def _fail(self, job: Job, problem: Exception) -> None:
        self._job_queues[job.kind].failed += 1
        self._finish(job, problem)

    def _park(self, job: Job, ready_in_s: float) -> None:
        if job.on_park is not None:
            job.on_park()
        now = self._loop.time()
        lendable = job.kind is JobType.POP and job.reply is None and job.deadline > now + 3 * LENT_S
        if self._lending is not None and lendable and ready_in_s > LENT_S:
            origin = self._lending.wanted_by(job.request, self._waiters.parked_with(job.request))
            if origin is not None and not self._context.unavailable:
                self._waiters.lend(job)
                self._start(self._wait_in_sibling(self._lending, job, origin))
                return
        self._waiters.park(job, now, now + ready_in_s)

    async def _wait_in_sibling(self, lending: Lending, job: Job, origin: str) -> None:
        popped, must_look = await lending.lend(job.request, origin)
        now = self._loop.time()
        ready_at = self._waiters.ready_at_if_empty(job.request, now)
        self._waiters.take_back(job)
        if popped is not None and popped.claims:
            self._deliver(job, popped, more=False)
        elif not self._may_wait(job):
            self._finish(job, self._nothing(job))
        elif must_look or ready_at is None:
            self._check([job])
        else:
            self._park(job, ready_at - now)
        self._drain()

    def _borrow(self, pop: Pop, lease: UUID, reply: Callable[[Popped], bool]) -> Callable[[], None] | None:
        """Parks a long poll of a sibling, to be served by a push here; returns a function that ends its stay."""
        if self._stopping or self._waiters.live >= self._shares.waiters:
            return None
        job = Job(JobType.POP, pop, self._loop.create_future())
        job.reply, job.lease = reply, lease
        now = self._loop.time()
        job.deadline = now + LENT_S
        self._waiters.begin(job)
        self._waiters.park(job, now, inf)
        self._wake_at(job.deadline)
        if self._context.cache.known_group(pop.queue, None, pop.group) is None:
            self._start(self._learn_group(pop))

        def end() -> None:
            if self._waiters.cancel(job):
                self._reply(job, Popped())

        return end

    async def _learn_group(self, pop: Pop) -> None:
        """Puts the group of a pop into the cache: a push serves only groups in it."""
        with contextlib.suppress(QueenError):
            await self._context.cache.subscribed_group(pop.queue, pop, None, 1)

    def _release(self, pop: Pop, lease: UUID) -> None:
        """Releases a lease whose messages no consumer gets."""
        self._lease_release.release([Orphan(lease, pop.queue, pop.group)])

    def _finish_fetch(self, job: Job, fetched: FetchResult) -> None:
        if fetched.found:
            self._deliver(job, fetched.result, more=fetched.more)
            return
        if fetched.ready_in == -inf and not self._stopping and not job.gone:
            self._check([job])
            return
        now = self._loop.time()
        contended = fetched.ready_in <= 0
        if contended and not self._stopping and (now < job.deadline or job.attempts < _CONTENDED_CHECKS):
            job.attempts += 1
            pause_s = _CONTENDED_S * 2 ** min(max(job.attempts - _CONTENDED_CHECKS, 0), 10)
            self._start(self._fetch_again(job, min(pause_s, _CONTENDED_LIMIT_S)))
        elif (after_s := self._prefetched_until(job, fetched)) is not None:
            job.late_checks += 1
            self._start(self._fetch_again(job, after_s))
        elif self._may_wait(job):
            self._waiters.note_empty(job.request, now, now + fetched.ready_in)
            self._park(job, fetched.ready_in)
        else:
            self._finish(job, fetched.result)

    def _may_wait(self, job: Job) -> bool:
        """Whether a job is a long poll whose timeout is not over."""
        return self._loop.time() < job.deadline and not self._stopping and not job.gone

    def _deliver(self, job: Job, found: Any, *, more: bool) -> None:  # noqa: ANN401 - any operation's
        """Answers a pop that has found messages; the next one of its wait list is checked if there may be more."""
        waiting = self._specs[job.kind].waiting
        if job.kind is JobType.POP and not job.gone and job.reply is None:
            self._context.prefetch.served(job.request, found)
        if job.gone and waiting is not None:
            self._start(self._give_back(job, found, waiting))
        self._finish(job, found)
        self._check(self._waiters.next_of(job.request, more=more))

    def _prefetched_until(self, job: Job, fetched: FetchResult) -> float | None:
        """Seconds until a pop that is no long poll tries again, because a worker may release prefetched messages."""
        waiting = self._specs[job.kind].waiting
        if waiting is None or not waiting.prefetched or job.request.wait_ms or job.gone or self._stopping:
            return None
        return returned_in_s(fetched.ready_in, job.late_checks, prefetched=fetched.prefetched)

    async def _fetch_again(self, job: Job, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self._check([job])

    async def _give_back(self, job: Job, result: Any, waiting: Waiting) -> None:  # noqa: ANN401 - any operation's
        """Releases messages whose sender has gone: other consumers get them now, not when the lease ends."""
        try:
            await waiting.give_back(self._context, job.request, result)
        except Exception:
            log.exception(
                "Leased messages of a disconnected consumer could not be released; they are delivered again "
                "when the lease expires"
            )

    def _nothing(self, job: Job) -> Any:  # noqa: ANN401 - any operation's
        """The answer to a long poll at its timeout."""
        waiting = self._specs[job.kind].waiting
        return waiting.nothing if waiting is not None else None

    def _is_long_poll(self, job: Job) -> bool:
        return self._specs[job.kind].waiting is not None and job.request.wait_ms > 0
