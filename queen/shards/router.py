"""Passes jobs to the engines of the shards, and combines their answers; to HTTP it looks like one engine.

A job whose messages are all on one shard goes to its engine unchanged. Other jobs are divided into *parts*, one per
shard. A pop that names no partition looks at one shard after another, and then waits on all of them.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import count
from typing import Any
from uuid import UUID

from msgspec import Struct, structs

from queen.core.errors import DatabaseUnavailableError, DataRejectedError, QueenError
from queen.core.job_type import JobType
from queen.core.placement import slot_of
from queen.engine.context import Context
from queen.engine.engine import TASK_FAILED
from queen.engine.handle import JobTaker
from queen.engine.handlers.give_back import give_back
from queen.engine.job import Job
from queen.engine.job_specs import JobSpec
from queen.engine.metrics import EngineMetrics
from queen.log.requests import Acked, Pop, Popped
from queen.shards.beginning import begin, is_known
from queen.shards.division import Division, divisions
from queen.shards.homes import Homes
from queen.shards.metrics import combined
from queen.shards.waiting import ack_of, acknowledged

log = logging.getLogger("queen.engine")

#: How often a request is divided again because its partition turned out to belong to another shard, and the pause
#: before: longer together than a change of the list takes.
_ATTEMPTS, _PAUSE_S = 30, 0.25
_CHANGING = "The list of databases is being changed, and the partition cannot be made yet: try again"


class Part(Job):
    """A job of the router itself, which awaits its future."""

    __slots__ = ()


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
        for engine in self._shards.engines.values():
            engine.release_waiters()

    def seems_empty(self, pop: Pop) -> bool:
        """Whether a long poll would be parked without a call on every shard."""
        return all(engine.seems_empty(pop) for engine in self._shards.engines.values())

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
            await asyncio.sleep(_PAUSE_S)
        divided = await division.divide(request)
        if divided is None:
            return await self._pop_anywhere(request, job)
        parts = [self._carry_out_part(slot, kind, part, attempt) for slot, part in divided.requests.items()]
        results = await asyncio.gather(*parts, return_exceptions=True)
        return divided.join(dict(zip(divided.requests, results, strict=True)))

    async def _carry_out_part(self, slot: int, kind: JobType, request: Any, attempt: int) -> Any:  # noqa: ANN401
        """The result of a part; it is divided again if a partition of it belongs to another shard."""
        if kind is JobType.POP:
            return await self._pop_there(slot, request)
        try:
            return await self._send(slot, kind, request).future
        except DataRejectedError as problem:
            if not problem.misplaced:
                raise
            if attempt == _ATTEMPTS:
                raise DatabaseUnavailableError(_CHANGING) from problem
        return await self._divide(kind, request, attempt + 1)

    def _send(self, slot: int, kind: JobType, request: Any) -> Part:  # noqa: ANN401 - any operation
        part = Part(kind, request, self._loop.create_future())
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
        until = self._loop.time() + pop.wait_ms / 1000
        if not pop.queue:
            await begin(self._shards.contexts, pop)
        at_once, first = structs.replace(pop, wait_ms=0), next(self._turn)
        problems = []
        slots = self._shards.homes.available() or self._slots
        if pop.wait_ms:
            slots = [slot for slot in slots if not self._shards.engines[slot].seems_empty(pop)]
        for number in range(len(slots)):
            slot = slots[(first + number) % len(slots)]
            try:
                popped = await self._pop_there(slot, at_once)
            except QueenError as problem:
                problems.append(problem)
                continue
            if popped.claims:
                return popped
        left_ms = int(1000 * (until - self._loop.time()))
        if left_ms > 0:
            return await self._wait_anywhere(pop, left_ms, job)
        if problems and len(problems) == len(slots):
            raise problems[0]
        return Popped()

    async def _pop_there(self, slot: int, pop: Pop) -> Popped:
        """The messages of a pop on one shard."""
        if pop.queue and not is_known(self._shards.contexts[slot], pop):
            await begin(self._shards.contexts, pop)
        return await self._first([(slot, self._send(slot, JobType.POP, pop))], pop)

    async def _wait_anywhere(self, pop: Pop, left_ms: int, job: Job | None) -> Popped:
        leased = structs.replace(pop, wait_ms=left_ms, auto_ack=False)
        parts = [(slot, self._send(slot, JobType.POP, leased)) for slot in self._slots]
        for _, part in parts:
            part.client = job.client if job is not None else None  # each shard shows who waits
        popped = await self._first(parts, leased)
        if not popped.claims or not pop.auto_ack:
            return popped
        slot = slot_of(popped.claims[0].part_id)
        acked: Acked = await self._send(slot, JobType.ACK, ack_of(popped, pop.group)).future
        return acknowledged(popped, acked)

    async def _first(self, parts: Sequence[tuple[int, Part]], pop: Pop) -> Popped:
        """The first answer with messages; what the others find is given back.

        Raises:
            QueenError: every part has failed.
        """
        waiting, results = {part.future for _, part in parts}, []
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for future in done:
                    results.append(future.exception() or future.result())
                    if isinstance(results[-1], Popped) and results[-1].claims:
                        parts = [(slot, part) for slot, part in parts if part.future is not future]
                        return results[-1]
        finally:
            for slot, part in parts:
                self._give_up(slot, part, pop)
        if all(isinstance(result, QueenError) for result in results):
            raise results[0]
        return Popped()

    def _give_up(self, slot: int, part: Part, pop: Pop) -> None:
        """Ends a part whose messages nobody gets any more."""
        if not part.future.done():
            self._shards.engines[slot].abandon(part)
        part.future.add_done_callback(lambda future: self._return(slot, future, pop))

    def _return(self, slot: int, found: "asyncio.Future[Popped]", pop: Pop) -> None:
        if not found.cancelled() and found.exception() is None and found.result().lease is not None:
            task = self._loop.create_task(give_back(self._shards.contexts[slot], found.result(), pop.group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def _settle(future: "asyncio.Future[Any]", result: Any) -> None:  # noqa: ANN401 - a result or an exception
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
