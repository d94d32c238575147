"""Passes jobs to the engines of the shards, and combines their answers; to HTTP it looks like one engine.

A job whose messages are all on one shard goes to its engine unchanged. Other jobs are divided into *parts*, one per
shard. A pop that names no partition looks at one shard after another, and waits on those that had nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import count
from typing import Any
from uuid import UUID

from msgspec import Struct, structs

from queen.core.errors import DatabaseUnavailableError, DataRejectedError, QueenError, forget_frames
from queen.core.job_type import JobType
from queen.engine.context import Context
from queen.engine.engine import TASK_FAILED
from queen.engine.handle import JobTaker
from queen.engine.handlers.give_back import give_back
from queen.engine.job import Job
from queen.engine.job_specs import JobSpec
from queen.engine.metrics import EngineMetrics
from queen.log.requests import Acked, Pop, Popped
from queen.shards import moves
from queen.shards.beginning import begin, is_known
from queen.shards.division import Division, divisions
from queen.shards.following import Following
from queen.shards.homes import Homes
from queen.shards.metrics import combined
from queen.shards.waiting import ack_of, acknowledged

log = logging.getLogger("queen.engine")

#: A pop goes on to the next shard if one has not answered for so long; it may have failed.
_SLOW_S = 0.5
#: The pause of a long poll whose group cannot begin, in seconds.
_PAUSE_S = 0.5
#: What goes to the shard of a number, not of a name.
_OF_LEASES = (JobType.ACK, JobType.RENEW_LEASE)
_CHANGING = "The list of databases is being changed, and the partition cannot be made yet: try again"


class Part(Job):
    """A job of the router itself on one shard, which awaits its future.

    Attributes:
        slot: of the shard.
        parked: done when it is a long poll that has looked, found nothing, and waits.
    """

    __slots__ = ("parked", "slot")

    def __init__(self, slot: int, kind: JobType, request: Any, loop: asyncio.AbstractEventLoop) -> None:  # noqa: ANN401
        super().__init__(kind, request, loop.create_future())
        self.slot = slot
        self.parked: asyncio.Future[None] = loop.create_future()
        self.on_park = self._note_parked

    def _note_parked(self) -> None:
        if not self.parked.done():
            self.parked.set_result(None)


class Shards(Struct, frozen=True):
    """What the router works with.

    Attributes:
        engines: of each shard, by slot.
        contexts: of each engine.
        homes: finds partitions.
        run: carries out a function of administration.
        specs: the kinds of jobs.
    """

    engines: Mapping[int, JobTaker]
    contexts: Mapping[int, Context]
    homes: Homes
    run: Callable[[Any], Coroutine[Any, Any, Any]]
    specs: Mapping[JobType, JobSpec]


class Router:
    """The engines of all shards as one.

    Args:
        answer: returns a result, or an exception, to the sender of a job.
    """

    def __init__(self, answer: Callable[[Job, Any], None]) -> None:
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        #: Jobs that may be abandoned: those of one shard with its engine, and those with parts.
        self._whole: dict[Job, JobTaker] = {}
        self._working: dict[Job, asyncio.Task[None]] = {}
        self._turn = count()
        self._released = False

    def begin(self, shards: Shards) -> None:
        """Takes the engines, which need ``answered`` when they are made."""
        self._shards = shards
        self._divisions: Mapping[JobType, Division] = divisions(shards.homes, shards.engines)

    @property
    def _slots(self) -> Sequence[int]:
        """The shards; one may be added at any time."""
        return list(self._shards.engines)

    def answered(self, job: Job, result: Any) -> None:  # noqa: ANN401 - a result or an exception
        """Takes the answer of an engine."""
        if isinstance(job, Part):
            if not job.future.done():
                _settle(job.future, result)
            return
        self._whole.pop(job, None)
        if isinstance(result, DataRejectedError) and result.misplaced:
            self._start(job, self._divide(job.kind, job.request, 1, job=job))
        else:
            self._answer(job, result)

    def accept(self, jobs: Sequence[Job]) -> None:
        """Takes new jobs."""
        whole: dict[int, list[Job]] = {}
        for job in jobs:
            slot = self._slot(job)
            if slot is None:
                self._start(job, self._divide(job.kind, job.request, job=job))
                continue
            whole.setdefault(slot, []).append(job)
            if self._shards.specs[job.kind].waiting is not None:
                self._whole[job] = self._shards.engines[slot]
        for slot, own in whole.items():
            self._shards.engines[slot].accept(own)

    def abandon(self, job: Job) -> None:
        """The sender of a job has gone."""
        job.gone = True
        if (engine := self._whole.pop(job, None)) is not None:
            engine.abandon(job)
        elif (task := self._working.get(job)) is not None:
            task.cancel()

    def take_over(self, leases: Sequence[UUID]) -> None:
        """Releases what an ended worker had prefetched; a shard ignores the leases of others."""
        for engine in self._shards.engines.values():
            engine.take_over(leases)

    def release_waiters(self) -> None:
        """Answers all long polls without messages."""
        self._released = True
        for engine in self._shards.engines.values():
            engine.release_waiters()

    async def stop(self) -> None:
        """Answers long polls, and waits for all other jobs."""
        self.release_waiters()
        while self._tasks:
            await asyncio.wait(set(self._tasks), return_when=asyncio.FIRST_COMPLETED)
        for engine in self._shards.engines.values():
            await engine.stop()

    def metrics(self) -> EngineMetrics:
        """The metrics of all engines together."""
        return combined([engine.metrics() for engine in self._shards.engines.values()])

    def _slot(self, job: Job) -> int | None:
        """The shard of a job that concerns one; ``None``: not known yet, or several."""
        if job.kind is JobType.CUSTOM:
            return None
        slots = self._divisions[job.kind].slots(job.request)
        if slots is None or len(set(slots)) != 1 or slots[0] not in self._shards.engines:
            return None
        if job.kind is JobType.POP and not is_known(self._shards.contexts[slots[0]], job.request):
            return None
        if job.kind in _OF_LEASES and self._shards.homes.moves.active:
            return None
        return slots[0]

    def _start(self, job: Job, work: Coroutine[Any, Any, Any]) -> None:
        task = self._loop.create_task(self._carry_out(job, work))
        self._tasks.add(task)
        self._working[job] = task
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, job: Job, work: Coroutine[Any, Any, Any]) -> None:
        try:
            result = await work
        except asyncio.CancelledError:
            if not job.gone:
                raise
            return
        except Exception as problem:
            if not isinstance(problem, QueenError):
                log.exception(TASK_FAILED)
            forget_frames(problem)
            result = problem
        finally:
            self._working.pop(job, None)
        self._answer(job, result)

    async def _divide(self, kind: JobType, request: Any, attempt: int = 0, *, job: Job | None = None) -> Any:  # noqa: ANN401 - any operation's
        """The result of a request that concerns several shards, or partitions that have to be found.

        ``attempt``: how often its partitions turned out to belong to other shards.
        """
        if kind is JobType.CUSTOM:
            return await self._run(request)
        division = self._divisions[kind]
        if attempt:
            self._shards.homes.forget(division.partitions(request))
            await asyncio.sleep(moves.PAUSE_S)
        follows = kind in _OF_LEASES and not attempt and self._shards.homes.moves.active
        following = Following(self._shards.homes.moves, kind, request) if follows else None
        divided = await division.divide(request)
        if divided is None:
            return await self._pop_anywhere(request, job)
        parts = [self._carry_out_part(slot, kind, part, attempt) for slot, part in divided.requests.items()]
        results = await asyncio.gather(*parts, return_exceptions=True)
        result = divided.join(dict(zip(divided.requests, results, strict=True)))
        return result if following is None else await self._follow(kind, following, result)

    async def _follow(self, kind: JobType, following: Following, result: Any) -> Any:  # noqa: ANN401
        """Repeats what found nothing, because its partition is on its way to another shard, until it is there."""
        for attempt in range(1, moves.ATTEMPTS + 1):
            await self._shards.homes.refresh_moves()
            rest = following.rest(result)
            if rest is None:
                return result
            result = following.joined(result, await self._divide(kind, rest, attempt))
        return result

    async def _carry_out_part(self, slot: int, kind: JobType, request: Any, attempt: int) -> Any:  # noqa: ANN401
        """The result of a part; it is divided again if a partition of it belongs to another shard."""
        if kind is JobType.POP:
            return await self._pop_there(slot, request)
        try:
            return await self._send(slot, kind, request).future
        except DataRejectedError as problem:
            if not problem.misplaced:
                raise
            if attempt == moves.ATTEMPTS:
                raise DatabaseUnavailableError(_CHANGING) from problem
        return await self._divide(kind, request, attempt + 1)

    def _send(self, slot: int, kind: JobType, request: Any) -> Part:  # noqa: ANN401 - any operation
        part = Part(slot, kind, request, self._loop)
        self._shards.engines[slot].accept([part])
        return part

    async def _run(self, work: Any) -> Any:  # noqa: ANN401 - any function of administration
        """The result of a function of administration."""
        try:
            return await self._shards.run(work)
        except DataRejectedError as problem:
            if not problem.misplaced:
                raise
            raise DatabaseUnavailableError(_CHANGING) from problem

    async def _pop_anywhere(self, pop: Pop, job: Job | None) -> Popped:
        """The messages of one shard: of the first that has some, from another one each time; or after a wait.

        Raises:
            QueenError: no shard could be asked.
        """
        if not pop.queue:
            await begin(self._shards.contexts, pop)
        slots = self._shards.homes.available() or self._slots
        first = next(self._turn) % len(slots)
        slots = [*slots[first:], *slots[:first]]
        if pop.wait_ms:
            # A shard that is down is not asked for a namespace or task: it is unknown which groups have begun there.
            down = [slot for slot in self._slots if slot not in slots] if pop.queue else []
            return await self._wait_anywhere([*slots, *down], pop, job)
        problems = []
        for slot in slots:
            try:
                popped = await self._pop_there(slot, pop)
            except QueenError as problem:
                problems.append(problem)
                continue
            if popped.claims:
                return popped
        if len(problems) == len(slots):
            raise problems[0]
        return Popped()

    async def _pop_there(self, slot: int, pop: Pop) -> Popped:
        """The messages of a pop on one shard.

        Raises:
            DatabaseUnavailableError: its group cannot begin there yet, and the pop does not wait.
        """
        until = self._loop.time() + pop.wait_ms / 1000
        while not await self._has_begun(slot, pop):
            if not pop.wait_ms:
                raise DatabaseUnavailableError("The consumer group cannot begin: its database is unavailable")
            if not await self._paused(until):
                return Popped()
        part = self._send(slot, JobType.POP, structs.replace(pop, wait_ms=self._left_ms(until)) if pop.wait_ms else pop)
        try:
            await asyncio.wait([part.future])  # unlike `await`, this leaves the future to the engine if it is cancelled
        except asyncio.CancelledError:
            self._give_up(part, pop)
            raise
        return part.future.result()  # type: ignore[no-any-return]

    async def _has_begun(self, slot: int, pop: Pop) -> bool:
        """Whether the group of a pop has begun on a shard: there before, or now."""
        context = self._shards.contexts[slot]
        return not pop.queue or is_known(context, pop) or context in await begin(self._shards.contexts, pop)

    async def _paused(self, until: float) -> bool:
        """Lets a long poll pause; ``False``: it is over."""
        if self._released or self._loop.time() >= until:
            return False
        await asyncio.sleep(_PAUSE_S)
        return True

    def _left_ms(self, until: float) -> int:
        return max(int(1000 * (until - self._loop.time())), 1)

    async def _wait_anywhere(self, slots: Sequence[int], pop: Pop, job: Job | None) -> Popped:
        """Looks at one shard after another, and waits on those that had nothing: the first with messages answers.

        Raises:
            QueenError: every part has failed.
        """
        parts: list[Part] = []
        winner: Part | None = None
        try:
            until = self._loop.time() + pop.wait_ms / 1000
            winner = await self._ask_in_turn(slots, pop, job, parts, until)
            while not parts and await self._paused(until):
                winner = await self._ask_in_turn(slots, pop, job, parts, until)
            while winner is None and (waiting := [part.future for part in parts if not part.future.done()]):
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                winner = _with_messages(parts)
        finally:
            for part in parts:
                if part is not winner:
                    self._give_up(part, pop)
        if winner is None:
            return _nothing(parts)
        popped: Popped = winner.future.result()
        if not pop.auto_ack:
            return popped
        acked: Acked = await self._send(winner.slot, JobType.ACK, ack_of(popped, pop.group)).future
        return acknowledged(popped, acked)

    async def _ask_in_turn(
        self, slots: Sequence[int], pop: Pop, job: Job | None, parts: list[Part], until: float
    ) -> Part | None:
        """Adds a part for one shard after another, until one has messages.

        None for a shard that is down and does not have the group yet: the part would make it when the shard is back,
        and the group would miss what was stored there before.
        """
        for slot in slots:
            if not await self._has_begun(slot, pop):
                continue
            left_ms = self._left_ms(until)
            # Several shards may find messages, and what is acknowledged could not be given back.
            part = self._send(slot, JobType.POP, structs.replace(pop, wait_ms=left_ms, auto_ack=False))
            part.client = job.client if job is not None else None  # each shard shows who waits
            parts.append(part)
            await _looked(parts)
            if winner := _with_messages(parts):
                return winner
        return None

    def _give_up(self, part: Part, pop: Pop) -> None:
        """Ends a part whose messages nobody gets any more."""
        if not part.future.done():
            self._shards.engines[part.slot].abandon(part)
        part.future.add_done_callback(lambda future: self._return(part.slot, future, pop))

    def _return(self, slot: int, found: "asyncio.Future[Popped]", pop: Pop) -> None:
        if not found.cancelled() and found.exception() is None and found.result().lease is not None:
            task = self._loop.create_task(give_back(self._shards.contexts[slot], found.result(), pop.group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _looked(parts: Sequence[Part]) -> None:
    """Returns when the last part has looked for messages, is slow, or another one got some."""
    waiting = [part.future for part in parts if not part.future.done()]
    await asyncio.wait([parts[-1].parked, *waiting], timeout=_SLOW_S, return_when=asyncio.FIRST_COMPLETED)


def _with_messages(parts: Sequence[Part]) -> Part | None:
    """A part that has messages."""
    done = [part for part in parts if part.future.done() and not part.future.exception()]
    return next((part for part in done if part.future.result().claims), None)


def _nothing(parts: Sequence[Part]) -> Popped:
    """The answer of parts that have ended without messages; raises an error if all have failed."""
    problems = [problem for part in parts if (problem := part.future.exception())]
    if problems and len(problems) == len(parts):
        raise problems[0]
    return Popped()


def _settle(future: "asyncio.Future[Any]", result: Any) -> None:  # noqa: ANN401 - a result or an exception
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
