"""The engine of a worker process: takes jobs from the HTTP loop, fuses them into calls, hands the results back.

It runs in one event loop, that of the requests or one in a thread of its own (``queen.engine.thread``), and everything
here happens in that loop. What wakes it: a job, the end of a call, the end of a hold time, a waiter's
time. It sleeps otherwise.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Container, Coroutine, Hashable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

from msgspec import Struct

from queen.core.errors import (
    DatabaseSlowError,
    DatabaseUnavailableError,
    LockedError,
    OverloadedError,
    QueenError,
    TooSlowError,
)
from queen.core.limits import GROUP_BYTES_MAX, LOCK_WAIT_S
from queen.core.operations import JobType
from queen.engine.context import Context
from queen.engine.failures import Line, Locked, Pace, Part, Round, Trial, call_limit_s, lock_wait_s, locked_error
from queen.engine.handlers.consumer_groups import go_on
from queen.engine.handlers.give_back import give_back_orphans
from queen.engine.handlers.locks import find_locked
from queen.engine.job import Job, Ride
from queen.engine.lane import Lane
from queen.engine.look import Look
from queen.engine.operations import OPERATIONS, Operation, Waiting
from queen.engine.ports import Lock, Notice
from queen.engine.slots import Slots
from queen.engine.status import EngineStatus, SlotStatus
from queen.engine.waiters import Waiters
from queen.metrics.engine import observe_call

log = logging.getLogger("queen.engine")

#: A place where somebody else holds what is ready is looked at again after this time.
_CONTENDED_S = 0.002
#: And a pop that does not wait gives up on such a place after so many looks.
_CONTENDED_LOOKS = 10
#: A long poll outlives an outage of PostgreSQL and looks again after this time; so does who gives back orphaned leases.
_AWAY_S = 0.5
#: What a long poll waits out, and looks again.
_OUTWAITED = (DatabaseUnavailableError, DatabaseSlowError, LockedError)


class Shares(Struct, frozen=True):
    """What an engine may use.

    Attributes:
        hot: connections for messages.
        cold: connections for everything else.
        waiters: most parked long polls.
    """

    hot: int
    cold: int
    waiters: int


class Engine:
    """Lanes, waiters and the loop that drains them.

    Args:
        context: what handlers need; its ``heard`` is this engine's ``heard`` plus the notices to other workers.
        lane: makes the lane of each kind.
        shares: what may be used.
        answer: hands a result, or an exception, back to the sender of a job.
        operations: the kinds of jobs; others than those of the server are for tests.
        clock: seconds, by which calls are timed. Not the loop's: uvloop's moves a whole millisecond at a time, which is
            what a call takes.
    """

    def __init__(
        self,
        context: Context,
        lane: Callable[[JobType], Lane],
        waiters: Waiters,
        shares: Shares,
        answer: Callable[[Job, Any], None],
        operations: Mapping[JobType, Operation] = OPERATIONS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = clock
        self._context = context
        self._answer = answer
        self._waiters = waiters
        self._shares = shares
        self._operations = operations
        self._lanes = {kind: lane(kind) for kind in operations}
        self._paces = {kind: Pace() for kind in operations}
        self._lines = {kind: Line[Job, Lock](context.rules) for kind in operations}
        #: Kinds of which somebody waits for locks.
        self._lined: set[JobType] = set()
        self._hot = Slots(shares.hot, [kind for kind in operations if not operations[kind].cold])
        self._cold = Slots(shares.cold, [kind for kind in operations if operations[kind].cold])
        self._waiting_refused = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._stopping = False
        self._fosters = self._subscribes = False

    def status(self) -> EngineStatus:
        """The figures of this moment. May be called from any thread."""
        return EngineStatus(
            lanes=tuple([lane.status(kind) for kind, lane in self._lanes.items()]),
            hot=SlotStatus(self._hot.total, self._hot.free),
            cold=SlotStatus(self._cold.total, self._cold.free),
            waiting=len(self._waiters),
            waiting_max=self._shares.waiters,
            waiting_refused=self._waiting_refused,
            places=self._waiters.places,
            stopping=self._stopping,
        )

    def waiting_by_queue(self) -> dict[str, int]:
        """Parked long polls by queue; those of many queues under the empty name."""
        return self._waiters.by_queue()

    @property
    def queued(self) -> int:
        """Jobs that wait for a call."""
        return sum([len(lane) for lane in self._lanes.values()])

    def accept(self, jobs: Sequence[Job]) -> None:
        """Takes new jobs; one too many is answered with ``OverloadedError``."""
        now = self._loop.time()
        for job in jobs:
            lane = self._lanes[job.kind]
            if lane.refuses():
                self._answer(job, OverloadedError(f"Too many {job.kind.value} requests wait for the database"))
                continue
            job.since = now
            operation = self._operations[job.kind]
            if operation.waiting is not None and job.request.wait_ms:
                if self._waiters.live >= self._shares.waiters:
                    self._waiting_refused += 1
                    self._answer(job, OverloadedError("This worker holds as many long polls as it may"))
                    continue
                job.deadline = now + job.request.wait_ms / 1000
                self._waiters.begin(job)
            job.key, job.size = operation.key(job.request), operation.size(job.request)
            job.items = operation.items(job.request)
            lane.put(job)
        self._drain()

    def heard(self, notice: Notice, besides: Container[Hashable] = ()) -> None:
        """Something happened in a queue: checks so many of its waiters, except at the places named."""
        if notice.changed:
            self._context.directory.forget_queue(notice.queue)
            self._context.directory.forget_push_options()
        if notice.queue:
            self._check(self._waiters.wake(notice.queue, notice.messages, notice.group, besides))

    def missed(self) -> None:
        """Notices may have been lost: looks once for every kind of waiter."""
        self._context.directory.forget_push_options()
        self._check(self._waiters.wake_all())

    def abandon(self, job: Job) -> None:
        """The sender of a job has gone: nothing is done for it any more, and what it gets is given back."""
        job.gone = True
        if job.turn:
            self._waiters.cancel(job)

    def release_waiters(self) -> None:
        """Answers all long polls empty, now and from now on: the worker stops."""
        self._stopping = True
        for lane in self._lanes.values():
            lane.stop_lingering()
        for job in self._waiters.drain():
            self._reply(job, self._nothing(job))

    async def stop(self) -> None:
        """Answers long polls, and waits for all other jobs: no new ones come any more."""
        self.release_waiters()
        self._drain()
        while self._tasks:
            await asyncio.wait(set(self._tasks), return_when=asyncio.FIRST_COMPLETED)
        if self._timer is not None:
            self._timer.cancel()

    def _check(self, jobs: Sequence[Job]) -> None:
        now = self._loop.time()
        for job in jobs:
            job.since = now
            self._lanes[job.kind].put(job)
        if jobs:
            self._drain()

    def _drain(self) -> None:
        """Sends what is due while there are connections for it, and sets the timer for what is not due yet."""
        now = self._loop.time()
        self._expire(now)
        ride = self._board(now)
        waits = {kind: lane.due_in_ms(now) for kind, lane in self._lanes.items() if lane.ready}
        rounds = {kind: round_ for kind in self._lined if (round_ := self._lines[kind].due) is not None}
        due = {kind for kind, due_in_ms in waits.items() if due_in_ms == 0} | rounds.keys()
        if ride is not None:
            due.add(JobType.POP)
        for slots in (self._hot, self._cold):
            while due and (kind := slots.next(due)) is not None:
                slots.take(kind)
                if (round_ := rounds.pop(kind, None)) is not None:
                    round_.under_way = True
                    self._start(self._call_line(kind, round_, slots))
                elif kind is JobType.PUSH:
                    self._send(kind, slots, ride)
                    ride = None
                else:
                    self._send(kind, slots)
                waits[kind] = self._lanes[kind].due_in_ms(now)
                if waits[kind] != 0:
                    due.discard(kind)
        times = [now + due_in_ms / 1000 for due_in_ms in waits.values() if due_in_ms]
        if (event := self._waiters.next_event()) is not None:
            times.append(event)
        if times:
            self._wake_at(min(times))

    def _board(self, now: float) -> Ride | None:
        """Has those look who wait for what is about to be pushed, if both can leave now, to share a transaction."""
        pushes, pops, news = self._lanes[JobType.PUSH], self._lanes[JobType.POP], self._operations[JobType.PUSH].news
        if news is None or not (self._waiters and pushes.ready) or pushes.in_flight or pops.in_flight:
            return None
        if pushes.size > GROUP_BYTES_MAX or self._context.away:
            return None
        messages = news.arrivals(job.request for job in pushes.next_jobs())
        jobs = [job for queue, number in messages.items() for job in self._waiters.board(queue, number)]
        if not jobs:
            return None
        ride = Ride(len(jobs))
        for job in jobs:
            job.since, job.ride = now, ride
            pops.put(job)
        return ride

    def _expire(self, now: float) -> None:
        checks, expired = self._waiters.due(now)
        for job in expired:
            job.gone = True  # one that is out for a check gives back what it gets
            self._reply(job, self._nothing(job))
        for job in checks:
            job.since = now
            self._lanes[job.kind].put(job)

    def _wake_at(self, at: float) -> None:
        """Sees to it that the engine drains at that time. An earlier timer stays: what it wakes sets the next one."""
        if self._timer is not None:
            if self._wakes_at <= at:
                return
            self._timer.cancel()
        self._wakes_at = at
        self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._drain()

    def _send(self, kind: JobType, slots: "Slots[JobType]", ride: Ride | None = None) -> None:
        self._start(self._run(kind, self._lanes[kind].take(), slots, ride))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, kind: JobType, batch: list[Job], slots: "Slots[JobType]", ride: Ride | None) -> None:
        try:
            await self._execute(kind, self._not_locked(kind, [job for job in batch if not job.gone]), ride)
        finally:
            self._lanes[kind].done(batch)
            slots.give_back(kind)
            for job in batch:
                if job.gone:
                    self._waiters.leave(job)
                if job.ride is not None:
                    job.ride.back()
                    job.ride = None
            if self._context.orphans and not self._fosters:
                self._fosters = True
                self._start(self._foster())
            if self._context.unfinished and not self._subscribes:
                self._subscribes = True
                self._start(self._subscribe())
            self._drain()

    def _not_locked(self, kind: JobType, batch: list[Job]) -> list[Job]:
        """A batch without the jobs that need what others in the line wait for: they wait behind these."""
        line = self._lines[kind]
        if not line or not (locks := line.locks):
            return batch
        free, now = [], self._loop.time()
        for job in batch:
            if met := self._needs(job) & locks:
                self._wait_for(kind, job, met, now)
            else:
                free.append(job)
        return free

    def _wait_for(self, kind: JobType, job: Job, locks: frozenset[Any], now: float) -> bool:
        """A job that needs what others have locked waits in the line of its kind, if its patience is not over."""
        line = self._lines[kind]
        waited = job in line
        if not line.join(job, locks, now):
            return False
        if not waited:
            self._lanes[kind].hold(job)
        self._lined.add(kind)
        return True

    def _leave_line(self, kind: JobType, job: Job, result: Any) -> None:  # noqa: ANN401 - a result or an exception
        """A job that is done with, and perhaps had to wait for locks."""
        if job in self._lines[kind]:
            self._lines[kind].leave(job, result)
            self._lanes[kind].release(job)
        if not self._lines[kind]:
            self._lined.discard(kind)

    async def _call_line(self, kind: JobType, round_: Round[Job], slots: "Slots[JobType]") -> None:
        """The next call for some of those that wait for locks."""
        line, fit = self._lines[kind], self._lanes[kind].fit
        jobs: list[Job] = []
        try:
            if round_ is line.turn:
                jobs = line.take_turn(fit)
                # If a connection is left to the others.
                patient = slots.free and all([self._needs_one(job, line) for job in jobs])
                await self._execute(kind, jobs, wait_s=line.wait_s() if patient else LOCK_WAIT_S)
            else:
                locked = await find_locked(self._context, line.locks)
                for job in line.late(locked, self._loop.time()):
                    self._leave_line(kind, job, problem := locked_error())
                    self._end(job, problem)
                jobs = line.take_free(locked, fit)
                await self._execute(kind, jobs, wait_s=LOCK_WAIT_S)
        finally:
            for job in jobs:
                if job.gone:
                    self._leave_line(kind, job, None)
                    self._waiters.leave(job)
            slots.give_back(kind)
            self._drain()
            await asyncio.sleep(line.end(round_, jobs))
            round_.under_way = False
            self._drain()

    def _needs_one(self, job: Job, line: Line[Job, Lock]) -> bool:
        """Whether a job needs nothing but the one lock that it waits for, so that it holds nothing meanwhile."""
        needs = self._needs(job)
        return len(needs) == 1 and needs == line.locks_of(job)

    def _needs(self, job: Job) -> frozenset[Lock]:
        """What a job locks, as far as that is known."""
        return self._operations[job.kind].locks(self._context.directory, job.request)

    async def _execute(
        self, kind: JobType, batch: Sequence[Job], ride: Ride | None = None, *, wait_s: float | None = None
    ) -> None:
        """Carries out a batch, in parts if a call fails; each job is answered as soon as it is clear how."""
        if not batch:
            return
        rules, repeats = self._context.rules, not self._operations[kind].cold
        trial = Trial(batch, rules, self._paces[kind], self._loop.time(), repeats=repeats, wait_s=wait_s)
        while (part := trial.next(self._loop.time())) is not None:
            if part.pause_s:
                await asyncio.sleep(part.pause_s)
            jobs = [job for job in part.requests if not job.gone]
            results, problem = await self._try(kind, jobs, part)
            outcomes = list(zip(jobs, results, strict=True))
            locks = await self._locks_met(kind, outcomes)
            answers = trial.settle(part, outcomes, self._loop.time(), locks)
            if wait_s is not None or locks is not None:
                answers = self._sort_out(kind, answers)
            for job, result in answers:
                if problem is not None and result is problem:
                    self._end_with(job, problem)
                else:
                    self._end(job, result)
            if problem is None:
                # After the answers: what is counted or told must not change what was done.
                requests, results = [job.request for job, _ in answers], [result for _, result in answers]
                self._context.meter.batch(kind, requests, results)
                self._announce(kind, requests, results, ride)

    def _sort_out(self, kind: JobType, answers: Sequence[tuple[Job, Any]]) -> list[tuple[Job, Any]]:
        """The answers without those who have to wait for locks, and join the line; who has an answer leaves it."""
        now, final = self._loop.time(), []
        for job, result in answers:
            if not isinstance(result, Locked):
                final.append((job, result))
            elif not self._wait_for(kind, job, result.locks, now):
                final.append((job, locked_error()))
        for job, result in final:
            self._leave_line(kind, job, result)
        return final

    async def _locks_met(
        self, kind: JobType, outcomes: Sequence[tuple[Job, Any]]
    ) -> Mapping[Job, frozenset[Lock]] | None:
        """What others have locked of the needs of those whose call has met a lock; ``None``: none has."""
        met = [job for job, result in outcomes if type(result) is TooSlowError and result.lock]
        if not met or self._operations[kind].cold:
            return None
        needs = {job: self._needs(job) for job in met}
        locked = await find_locked(self._context, frozenset[Lock]().union(*needs.values()))
        return {job: found for job, each in needs.items() if (found := each & locked)}

    def _end_with(self, job: Job, problem: Exception) -> None:
        """A job whose call has failed."""
        if isinstance(problem, DatabaseUnavailableError) and self._is_long_poll(job):
            self._outwait(job)
        else:
            self._fail(job, problem)

    def _end(self, job: Job, result: Any) -> None:  # noqa: ANN401 - a result or an exception
        if isinstance(result, Look):
            self._finish_look(job, result)
        elif not isinstance(result, Exception):
            self._finish(job, result)
        elif type(result) in _OUTWAITED and self._is_long_poll(job):
            self._outwait(job)
        else:
            self._fail(job, result)

    def _announce(self, kind: JobType, requests: Sequence[Any], results: Sequence[Any], ride: Ride | None) -> None:
        news = self._operations[kind].news
        if news is None:
            return
        if ride is not None and ride.out:
            ride.then.append(partial(news.announce, self._context, requests, results, ride.served))
        else:
            news.announce(self._context, requests, results, ride.served if ride is not None else ())

    async def _foster(self) -> None:
        """Gives orphaned leases back, as soon as PostgreSQL takes them: nobody may ever pop there again."""
        try:
            while self._context.orphans and not self._stopping:
                await asyncio.sleep(_AWAY_S)
                with contextlib.suppress(DatabaseUnavailableError):
                    await give_back_orphans(self._context)
        finally:
            self._fosters = False

    async def _subscribe(self) -> None:
        """Makes the cursors that groups have not yet, which may be popped meanwhile."""
        try:
            while self._context.unfinished and not self._stopping:
                try:
                    await go_on(self._context)
                except QueenError:
                    await asyncio.sleep(_AWAY_S)
        finally:
            self._subscribes = False

    def _outwait(self, job: Job) -> None:
        """A long poll that cannot look at the moment: it looks again, and ends empty at its timeout."""
        if self._may_wait(job):
            self._park(job, _AWAY_S)
        else:
            self._finish(job, self._nothing(job))

    async def _try(self, kind: JobType, jobs: Sequence[Job], part: Part[Job]) -> tuple[Sequence[Any], Exception | None]:
        """The results of one call, and the exception with which it ended, which then stands for each of them."""
        if not jobs:
            return (), None
        limited, waits = call_limit_s.set(part.limit_s), lock_wait_s.set(part.wait_s)
        try:
            return await self._call(kind, jobs), None
        except Exception as problem:
            if not isinstance(problem, QueenError):
                log.exception("A %s call failed", kind.value)
            return [problem] * len(jobs), problem
        finally:
            call_limit_s.reset(limited)
            lock_wait_s.reset(waits)

    async def _call(self, kind: JobType, batch: Sequence[Job]) -> Sequence[Any]:
        """One call of the handler; the limiter and the metrics learn how long it took."""
        lane = self._lanes[kind]
        begin, in_flight = self._clock(), lane.in_flight
        results = await self._operations[kind].handler(self._context, [job.request for job in batch])
        if len(results) != len(batch):
            raise RuntimeError(f"{len(results)} results for {len(batch)} {kind.value} jobs")
        end = self._clock()
        if call_limit_s.get() is None:
            lane.limiter.sample((end - begin) * 1000, len(batch), in_flight, end)
        observe_call(kind, end - begin, len(batch))
        return results

    def _finish(self, job: Job, result: Any) -> None:  # noqa: ANN401 - a result or an exception
        self._waiters.leave(job)
        if not job.gone:
            self._reply(job, result)

    def _reply(self, job: Job, result: Any) -> None:  # noqa: ANN401 - a result or an exception
        waiting = self._operations[job.kind].waiting
        if waiting is not None and not isinstance(result, Exception):
            waiting.count(self._context, job.request, result)
        self._answer(job, result)

    def _fail(self, job: Job, problem: Exception) -> None:
        self._lanes[job.kind].failed += 1
        self._finish(job, problem)

    def _park(self, job: Job, ready_in_s: float) -> None:
        now = self._loop.time()
        self._waiters.park(job, now, now + ready_in_s)

    def _finish_look(self, job: Job, look: Look) -> None:
        if look.found:
            self._deliver(job, look)
            return
        if look.ready_in == -inf and not self._stopping and not job.gone:
            self._check([job])
            return
        now = self._loop.time()
        contended = look.ready_in <= 0
        if contended and not self._stopping and (now < job.deadline or job.looks < _CONTENDED_LOOKS):
            job.looks += 1
            self._start(self._look_again(job))
        elif self._may_wait(job):
            self._park(job, look.ready_in)
        else:
            self._finish(job, look.result)

    def _may_wait(self, job: Job) -> bool:
        """Whether a job is a long poll whose time is not over."""
        return self._loop.time() < job.deadline and not self._stopping and not job.gone

    def _deliver(self, job: Job, look: Look) -> None:
        if job.ride is not None and look.behind:
            job.ride.served.add(job.request.place)
        waiting = self._operations[job.kind].waiting
        if job.gone and waiting is not None:
            self._start(self._give_back(job, look.result, waiting))
        self._finish(job, look.result)
        self._check(self._waiters.next_of(job.request, more=look.more))

    async def _look_again(self, job: Job) -> None:
        await asyncio.sleep(_CONTENDED_S)
        self._check([job])

    async def _give_back(self, job: Job, result: Any, waiting: Waiting) -> None:  # noqa: ANN401 - any operation's
        """Nobody is there to take the messages: others get them now, not when their time is over."""
        try:
            await waiting.give_back(self._context, job.request, result)
        except Exception:
            log.exception("Messages whose consumer had gone could not be given back; they come again by themselves")

    def _nothing(self, job: Job) -> Any:  # noqa: ANN401 - any operation's
        """The answer to a long poll for which nothing came in time."""
        waiting = self._operations[job.kind].waiting
        return waiting.nothing if waiting is not None else None

    def _is_long_poll(self, job: Job) -> bool:
        return self._operations[job.kind].waiting is not None and job.request.wait_ms > 0
