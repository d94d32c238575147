"""The replay: stores the pushes of the spool in PostgreSQL, oldest first, and then ends the spool.

One process of an instance replays at a time: the one that holds the replay lock. It divides the requests of a file into
*lanes*, so that all requests of a partition are in one lane. A lane keeps its order; the lanes are stored in
parallel: one is laid out while PostgreSQL computes for another and a third pending for the disk. A call stores some
requests, and notes in the same transaction how far their lane is stored. So a replay may be interrupted at any time:
PostgreSQL tells the next one where to continue.

Producers go on pushing to the spool during the replay. Each pass is shorter than the one before, but takes some time.
So the last pass holds the lock of all appends, and pushes wait for its end.

A request that cannot be stored yet is *held back*, with the requests after it in its partitions: it is copied to a file
of its own, and the spool ends without it. The replay tries it again beside its other work, after pauses that grow, and
pushes to its partitions are spooled until it is stored.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from errno import EMFILE, ENFILE, ENOENT, ENOMEM
from itertools import zip_longest
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid4, uuid5

import msgspec

from queen.core.errors import (
    DatabaseUnavailableError,
    DataRejectedError,
    QueenError,
    SpoolError,
    TooSlowError,
)
from queen.core.limits import REPLAY_CALL_S, REPLAY_LANES
from queen.engine.context import Context
from queen.engine.failover import Failover, uninterrupted
from queen.engine.held_back import HeldBack, HeldLane
from queen.engine.lane_store import LaneStore, is_refusal
from queen.engine.ports import SpoolDatabase, SpooledKind
from queen.engine.push_options import keep_for_spool
from queen.engine.replay_lanes import (
    Batch,
    Lane,
    Unit,
    batches_of,
    held_lanes_of,
    held_units_of,
    lanes_of,
    units_of,
)
from queen.engine.replay_progress import Progress
from queen.engine.switches import copy_switches, maintenance_is_on
from queen.spool.folder import Lock
from queen.spool.format import Record, SpoolFile
from queen.spool.held import BEHIND, reason_of
from queen.spool.spool import held_file_of

log = logging.getLogger("queen.spool")

#: The most bytes that the last pass replays while pushes wait; doubled after each pass after which more were left.
_LAST_PASS_BYTES = 1 << 20
_SWITCHES_S = 1.0
#: The lowest time limit of a call, after slow calls: all pushes wait for the end of the last pass.
_CALL_MIN_S = 0.5
#: An unreadable file is set aside after this time, except for errors that are not about the file.
_READ_S = 10.0
_SYSTEM_ERRORS = (EMFILE, ENFILE, ENOENT, ENOMEM)
#: How often the replay checks whether a held-back lane is due.
_RETRY_POLL_S = 0.1


class _TriedUnderLockError(Exception):
    """A request takes too long to be stored while all pushes wait."""


def _log_problem(problem: Exception, what: str) -> None:
    """Logs an error, with a traceback if it is not one of the server's own."""
    log.warning("%s: %s", what, problem, exc_info=None if isinstance(problem, QueenError) else problem)


def _since(file: SpoolFile) -> float:
    return file.header.created_at if file.header else time.time()


async def _cancel(*futures: "asyncio.Future[Any] | None") -> None:
    under_way = [future for future in futures if future is not None]
    for future in under_way:
        future.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)


class Replay:
    """Replays the spool of an instance while PostgreSQL is reachable.

    Args:
        context: the metadata cache, encryption keys and notifications.
        failover: has the spool.
        database: the procedures for the replay.
        requests_max: maximum of push requests per call.
        interval_s: how often it checks whether there is something to replay.
        kinds: by kind, what stores requests of other interfaces than pushes.

    Attributes:
        store: the calls that it makes.
    """

    def __init__(
        self,
        context: Context,
        failover: Failover,
        database: SpoolDatabase,
        requests_max: int,
        interval_s: float,
        kinds: Mapping[str, SpooledKind] = MappingProxyType({}),
    ) -> None:
        self._context, self._failover, self._database = context, failover, database
        self._spool = failover.spool
        self.store = LaneStore(context, failover.spool, database, kinds)
        self._requests_max, self._interval_s = requests_max, interval_s
        self._progress = Progress()
        self._holds_lock = False
        self._gate, self._changing = asyncio.Lock(), asyncio.Lock()
        self._lock: Lock | None = None
        self._held_back = HeldBack()
        self._limit_s: float | None = None
        self._reached: dict[UUID | None, tuple[int, bool]] = {}
        self._unread: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._retrying: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the task that replays."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Ends the task; what is not stored stays in the spool."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._release()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        switches_at = 0.0
        while True:
            try:
                if not self._failover.unavailable and loop.time() >= switches_at:
                    await copy_switches(self._context)
                    await keep_for_spool(self._context)
                    switches_at = loop.time() + _SWITCHES_S
                await self._step()
            except DatabaseUnavailableError as problem:
                log.info("The replay of the spool waits: %s", problem)
                await self._release()
                await asyncio.sleep(self._interval_s)
            except (QueenError, OSError) as problem:
                log.error("The spool cannot be replayed at the moment: %s", problem)  # noqa: TRY400 - it explains itself
                await self._release()
                await asyncio.sleep(1)
            except Exception:
                log.exception("The spool cannot be replayed")
                await self._release()
                await asyncio.sleep(1)
            await asyncio.sleep(self._interval_s)

    async def _step(self) -> None:
        """Replays what there is, if no other process does."""
        failover = self._failover
        pending = failover.spooling or failover.held_back
        if not pending or failover.unavailable or failover.maintenance:
            await self._release()
        elif self._lock is not None or await self._acquire():
            if failover.spooling or self._held_back.released:
                await self._drain()
            self._start_retries()

    def _start_retries(self) -> None:
        if self._retrying is not None and self._retrying.done():
            self._retrying.result()
            self._retrying = None
        if self._held_back and self._retrying is None:
            self._retrying = asyncio.create_task(self._keep_retrying())

    async def _acquire(self) -> bool:
        """Acquires the replay lock; false if another process has it."""
        lock = self._spool.try_replay_lock()
        if lock is None:
            return False
        self._lock, self._held_back, self._reached = lock, HeldBack(), {}
        return True

    async def _release(self) -> None:
        """Releases the replay lock."""
        if self._retrying is not None:
            await _cancel(self._retrying)
            self._retrying = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def drain(self) -> bool:
        """Replays everything that can be stored now and ends the spool.

        Returns:
            False if another process replays, or maintenance forbids it.

        Raises:
            DatabaseUnavailableError: PostgreSQL is unavailable; the next replay continues at the same position.
        """
        if not await self._acquire():
            return False
        try:
            return await self._drain()
        finally:
            await self._release()

    async def _drain(self) -> bool:
        last_pass_bytes = _LAST_PASS_BYTES
        self._limit_s = None
        await self._load()
        # Pushes wait during the last pass, so commits must work: without its standby, PostgreSQL may block each.
        await self._check_commit()
        while not await self._last_pass(last_pass_bytes):
            if self._failover.maintenance:
                return False
            await self._pass()
            last_pass_bytes *= 2
        return True

    async def _check_commit(self) -> None:
        """Raises DatabaseUnavailableError if a commit is too slow: then no request is at fault."""
        try:
            await self._database.commit_something()
        except TooSlowError as problem:
            raise DatabaseUnavailableError(f"PostgreSQL is slow: {problem}") from problem

    async def _pass(self) -> None:
        """Replays the complete files. Meanwhile it reads the next file and removes the one before."""
        await self._release_moved()
        names = self._spool.waiting_files()
        reading: asyncio.Future[list[Lane] | None] | None = None
        removing: asyncio.Future[None] | None = None
        try:
            for name, following in zip_longest(names, names[1:]):
                lanes = await (reading or self._read_lanes(name))
                reading = asyncio.ensure_future(self._read_lanes(following)) if following else None
                if lanes is None:
                    continue
                await self._replay_lanes(lanes)
                if removing is not None:
                    await removing
                removing = asyncio.ensure_future(self._remove_file(name, lanes))
            if removing is not None:
                await removing
            await self._release_moved()
        except BaseException:
            await _cancel(reading, removing)
            raise

    async def _last_pass(self, bytes_max: int) -> bool:
        """Replays the rest and ends the spool while pushes wait; false if the rest is too large or not all stored."""
        async with self._gate, self._failover.held():
            if await uninterrupted(self._spool.complete) > bytes_max:
                return False
            self._holds_lock = True
            try:
                await self._pass()
            except _TriedUnderLockError as problem:
                log.info("Pushes are accepted while the spool is replayed: %s", problem.__cause__)
                return False
            finally:
                async with self._changing:
                    self._holds_lock = False
            # If maintenance was switched on meanwhile, the flag stays.
            if await maintenance_is_on(self._context):
                return True
            if not self._spool.end(self._held_back.held):
                return False
            self._held_back.released = False
            return True

    async def _change(self, change: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - those of the change
        """Changes the spool under the lock of all appends, which this replay may hold already."""
        if self._holds_lock:
            async with self._changing:
                await uninterrupted(change, *arguments)
            return
        async with self._gate, self._failover.held():
            await uninterrupted(change, *arguments)

    # ------------------------------------------------------------ one file

    async def _read_lanes(self, name: str) -> list[Lane] | None:
        """The lanes of a file; ``None`` if it cannot be read and was set aside."""
        file = await self._read(name, self._spool.read)
        if file is None:
            return None
        divided = await uninterrupted(lanes_of, units_of(file))
        return [
            Lane(
                name, file, uuid5(file.header.file, f"lane {number} of {REPLAY_LANES}") if file.header else None, units
            )
            for number, units in enumerate(divided)
            if units
        ]

    async def _read(self, name: str, read: Callable[[str], SpoolFile | None]) -> SpoolFile | None:
        try:
            file = await uninterrupted(read, name)
        except OSError as problem:
            now = asyncio.get_running_loop().time()
            if problem.errno in _SYSTEM_ERRORS or now - self._unread.setdefault(name, now) < _READ_S:
                raise
            await self._change(self._give_up, name, problem)
            return None
        self._unread.pop(name, None)
        if file is not None:
            self._spool.check_installation(file)
        return file

    def _give_up(self, name: str, problem: OSError) -> None:
        failed = self._spool.give_up(name)
        log.error("The spool file %s cannot be read and was set aside as %s: %s", name, failed, problem)

    async def _replay_lanes(self, lanes: Sequence[Lane]) -> None:
        """Stores the lanes of a file. If one fails, the others go on; then its error is raised."""
        outcomes = await asyncio.gather(*map(self._replay_lane, lanes), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _remove_file(self, name: str, lanes: Sequence[Lane]) -> None:
        """Removes a file that is stored, and then its positions in PostgreSQL."""
        await self._change(self._finish, name, asyncio.get_running_loop().time())
        for lane in lanes:
            self._reached.pop(lane.position, None)
        await self._database.forget([lane.position for lane in lanes if lane.position is not None])

    async def _replay_lane(self, lane: Lane) -> None:
        done, fenced = self._reached.get(lane.position, (0, False))
        while done < len(lane.units):
            for batch in batches_of(lane.units, done, self._requests_max):
                before = done, fenced
                position = await self._replay_batch(lane, msgspec.structs.replace(batch, fenced=fenced))
                done, fenced = (position, False) if position >= 0 else (~position, True)
                if (done, fenced) <= before:
                    raise QueenError(
                        f"A lane of {lane.name} is stored up to request {done} only, and was up to {before[0]} before"
                    )
                if lane.position is not None:
                    self._reached[lane.position] = done, fenced
                if fenced or done != batch.upto:
                    break  # An earlier replay had come further.

    async def _replay_batch(self, lane: Lane, batch: Batch) -> int:
        """Stores a batch as far as possible and holds the rest back; returns the position of the lane."""
        if waiting := self._held_back.behind(lane.name, batch):
            if (position := await self.store.fence(lane, batch)) is not None:
                return position
            batch = await self._without(lane, batch, waiting, BEHIND)
        try:
            upto = await self.store.store(lane, batch, self._limit_s)
        except (DatabaseUnavailableError, SpoolError, OSError):
            raise
        except Exception as problem:
            if is_refusal(problem):
                return await self._split(lane, batch, problem)
            if self._holds_lock:
                raise _TriedUnderLockError from problem
            return await self._hold_back(lane, batch, problem)
        if upto == batch.upto:
            await self._count(batch.stored)
        return upto

    async def _split(self, lane: Lane, batch: Batch, problem: Exception) -> int:
        """Stores a refused batch in halves, and sets aside the unit at fault."""
        units = batch.units
        if len(units) == 1:
            await self.store.set_aside(lane, units[0], units[0].batches, str(problem))
            await self.store.skip(lane, batch)
            await self._count(units)
            return batch.upto
        middle = len(units) // 2
        upto = await self._replay_batch(lane, Batch(batch.begin, units[:middle], fenced=batch.fenced))
        if upto != batch.begin + middle:
            return upto
        return await self._replay_batch(lane, Batch(upto, units[middle:]))

    # ------------------------------------------------------------ what cannot be stored yet

    async def _hold_back(self, lane: Lane, batch: Batch, problem: Exception) -> int:
        """Holds back a batch that cannot be stored now; returns the position of the lane."""
        _log_problem(problem, f"{len(batch.stored)} requests of {lane.name} are held back")
        await self._check_commit()
        self._limit_s = max((self._limit_s or REPLAY_CALL_S) / 2, _CALL_MIN_S)
        if (position := await self.store.fence(lane, batch)) is not None:
            return position
        batch = msgspec.structs.replace(batch, fenced=True)
        settled = await self.store.settle(lane, batch, self._limit_s)
        if settled == batch.upto:
            return batch.upto
        if settled is not None:
            batch = msgspec.structs.replace(batch, doubtful=None)
        return await self.store.skip(lane, await self._without(lane, batch, batch.stored, reason_of(problem)))

    async def _without(self, lane: Lane, batch: Batch, units: Sequence[Unit], reason: str) -> Batch:
        """A fenced batch that skips some of its units: these are held back, durably when this returns."""
        listed = self._held_back.listed.get(lane.name, frozenset[int]())
        new = [unit for unit in units if unit.number not in listed]
        doubtful = batch.doubtful if len(new) == len(batch.units) else None
        if new:
            records = (
                [msgspec.structs.replace(doubtful, reason=reason, number=new[0].number)]
                if doubtful
                else [Record(uuid4(), None, unit.written_at, [unit.batches], reason, unit.number) for unit in new]
            )
            self._held_back.hold(lane.name, new, reason, time.time())
            await self._change(self._spool.hold_back, lane.file, lane.name, records)
        numbers = frozenset([unit.number for unit in units])
        return Batch(batch.begin, batch.units, None, fenced=True, held_back=batch.held_back | numbers)

    async def _load(self) -> None:
        """Reads what is held back from the files."""
        for name in self._spool.held_files():
            if self._spool.waits(name):
                file = await self._read(name, self._spool.read_held)
                if file is not None:
                    source = self._spool.source_of(name)
                    for unit in held_units_of(file):
                        self._held_back.hold(source, [unit], unit.reason, _since(file))
            else:
                await self._add(name)

    async def _release_moved(self) -> None:
        """Allows attempts for the held-back requests of files that are removed."""
        for name in self._held_back.moving:
            if not self._spool.has(name):
                await self._add(held_file_of(name))
                self._held_back.moved(name)

    async def _add(self, name: str) -> None:
        """Adds the lanes of a held-back file, once, unless it has been removed."""
        if self._held_back.knows(name) or not self._spool.has(name):
            return
        file = await self._read(name, self._spool.read_held)
        if file is not None:
            lanes = await uninterrupted(held_lanes_of, name, file)
            self._held_back.add(name, lanes, self._failover.held_back, _since(file))

    async def _keep_retrying(self) -> None:
        """Tries held-back lanes until there are none."""
        loop = asyncio.get_running_loop()
        under_way: set[asyncio.Task[None]] = set()
        try:
            while self._held_back or under_way:
                under_way |= {loop.create_task(self._retry(held)) for held in self._held_back.start(loop.time())}
                if not under_way:
                    await asyncio.sleep(_RETRY_POLL_S)
                    continue
                done, under_way = await asyncio.wait(
                    under_way, timeout=_RETRY_POLL_S, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()
        finally:
            await _cancel(*under_way)

    async def _retry(self, held: HeldLane) -> None:
        """Stores a held-back lane as far as possible."""
        now = asyncio.get_running_loop().time
        try:
            while not held.over:
                batch = held.next_batch(self._requests_max)
                try:
                    held.advance(await self._store_held(held, batch))
                except (DatabaseUnavailableError, SpoolError, OSError) as problem:
                    log.info("Partitions that are held back wait longer: %s", problem)
                    held.rest(now())
                    return
                except Exception as problem:
                    if not await self._try_alone(held, batch):
                        await self._explain(held, problem, now())
                        return
            await self._finish_held(held)
        finally:
            self._held_back.stop(held)

    async def _store_held(self, held: HeldLane, batch: Batch) -> int:
        try:
            upto = await self.store.store(held.lane, batch, held.limit_s)
        except (DataRejectedError, ValueError) as problem:
            if len(batch.units) > 1 or not is_refusal(problem):
                raise
            await self.store.set_aside(held.lane, batch.units[0], batch.units[0].batches, str(problem))
            upto = await self.store.skip(held.lane, batch)
        if upto == batch.upto:
            await self._count(batch.units)
        return upto

    async def _try_alone(self, held: HeldLane, batch: Batch) -> bool:
        """Makes the requests of a failed call be stored one by one; false if they must stay together."""
        if len(batch.units) == 1:
            return False
        if batch.doubtful is None:
            held.try_alone(certain=False)
            return True
        try:
            settled = await self.store.settle(held.lane, batch, self._limit_s)
        except DatabaseUnavailableError:
            return False
        if settled is None:
            return False
        if settled == batch.begin:
            held.try_alone(certain=True)
        else:
            held.advance(settled)
        return True

    async def _explain(self, held: HeldLane, problem: Exception, now: float) -> None:
        held.fail(problem, now)
        if self._held_back.explain(held, reason := reason_of(problem)):
            _log_problem(problem, f"A request of {held.lane.name} is held back")
            await self._change(self._spool.note_reason, held.partitions, reason)

    async def _finish_held(self, held: HeldLane) -> None:
        lanes = self._held_back.finish(held)
        if lanes is not None:
            # First the file: its lanes would be stored again if it were found after their positions are forgotten.
            await self._change(self._finish, lanes[0].name, asyncio.get_running_loop().time())
            self._held_back.gone(lanes[0].name)
            await self._database.forget([lane.position for lane in lanes if lane.position is not None])

    # ------------------------------------------------------------ figures

    async def _count(self, units: Sequence[Unit]) -> None:
        """Counts stored requests, and updates the counts of the spool from time to time."""
        if not units:
            return
        now = asyncio.get_running_loop().time()
        self._progress.add(units)
        if self._progress.is_due(now):
            await self._change(self._note, now)

    def _note(self, now: float) -> None:
        rate = self._progress.rate(now)
        requests, messages, written_at = self._progress.take(now)
        if requests:
            self._spool.note_replayed(requests, messages, written_at, rate)

    def _finish(self, name: str, now: float) -> None:
        self._note(now)
        self._spool.remove_replayed(name)
