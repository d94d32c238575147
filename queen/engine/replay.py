"""The replay: what the spool holds goes to PostgreSQL, oldest first, and then the spool ends.

One process of an instance replays at a time, the one that has the replay lock. The requests of a file are dealt out to
*lanes*, so that no partition is in two of them. Each lane keeps its order, and all go on side by side: one is laid
out while PostgreSQL computes for another and a third waits for the disk. A call stores some requests and notes in the
same transaction how far their lane is stored, so it can be broken off anywhere and by anything: the next one is told by
PostgreSQL where to go on.

While producers go on pushing, the spool grows behind the replay. Each pass is shorter than the one before, but no pass
is of no length. So the last one happens under the lock of all appends: for that moment pushes wait.

A request that cannot be stored yet is *held back*, with what stands behind it in its partitions: it is copied to a file
of its own, and the spool ends without it. It is tried again beside everything else, for longer and longer, and pushes
to its partitions are spooled until it is stored.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from errno import EMFILE, ENFILE, ENOENT, ENOMEM
from itertools import zip_longest
from typing import Any
from uuid import UUID, uuid4, uuid5

import msgspec

from queen.core.errors import (
    DatabaseUnavailableError,
    DataRejectedError,
    NoEncryptionKeyError,
    QueenError,
    SpoolError,
    TooSlowError,
)
from queen.core.limits import REPLAY_CALL_S, REPLAY_LANES
from queen.core.operations import Push
from queen.engine.backlog import Backlog, HeldLane
from queen.engine.context import Context
from queen.engine.failover import Failover, uninterrupted
from queen.engine.flush import Flush
from queen.engine.handlers.push import CHANGES_TOO_OFTEN, LAYOUTS_MAX, announce, lay_out, seal
from queen.engine.ports import PushColumns, Replayed, SpoolDatabase
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
from queen.engine.switches import copy_switches, maintenance_is_on
from queen.spool.folder import Lock
from queen.spool.format import Damage, Record, SpooledLot, SpoolFile, packed, request_of
from queen.spool.held import BEHIND, reason_of
from queen.spool.spool import held_file_of

log = logging.getLogger("queen.spool")

#: SQLSTATE classes that speak of the data. Any other refusal says something of the database, and may pass.
_DATA_CLASSES = ("21", "22", "23", "54", "P0", "QN")
#: The last pass may replay so many bytes while pushes wait; twice as many after each pass that did not come to an end.
_LAST_PASS_BYTES = 1 << 20
_SWITCHES_S = 1.0
#: How often the figures of the spool are brought up to date, and how long a pause no rate is told of.
_TELL_S, _BREAK_S = 0.2, 10.0
#: The limit of a call falls to this when calls before it were too slow: all pushes wait for the end of the pass.
_CALL_MIN_S = 0.5
#: How long a file is tried that cannot be read. Some errors say nothing of the file.
_READ_S = 10.0
_NOT_OF_THE_FILE = (EMFILE, ENFILE, ENOENT, ENOMEM)
#: How often it is looked whether what is held back is to be tried.
_RETRY_LOOK_S = 0.1
#: No push options have this version.
_NO_VERSION = -1


class _TriedUnderLockError(Exception):
    """A request cannot be stored while all pushes wait: it takes too long for that."""


def _is_refusal(problem: Exception) -> bool:
    """Whether PostgreSQL, or the driver, refuses the data."""
    if isinstance(problem, DataRejectedError):
        return problem.sqlstate.startswith(_DATA_CLASSES)
    return isinstance(problem, ValueError)


@asynccontextmanager
async def _within(limit_s: float) -> AsyncIterator[None]:
    """A limit for what is asked before the call."""
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError as problem:
        raise TooSlowError(f"Queue and partitions were not found within {limit_s:g} s") from problem


def _tell(problem: Exception, what: str) -> None:
    """What no part of the server has foreseen is told with its place."""
    log.warning("%s: %s", what, problem, exc_info=None if isinstance(problem, QueenError) else problem)


def _written_at(unit: Unit) -> float:
    return unit.record.written_at if isinstance(unit.record, Record) else time.time()


def _reason(unit: Unit) -> str:
    return unit.record.reason if isinstance(unit.record, Record) else BEHIND


def _since(file: SpoolFile) -> float:
    return file.header.created_at if file.header else time.time()


async def _break_off(*futures: "asyncio.Future[Any] | None") -> None:
    under_way = [future for future in futures if future is not None]
    for future in under_way:
        future.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)


class Replay:
    """Replays the spool of an instance when PostgreSQL is there.

    Args:
        context: names, numbers and notices.
        failover: has the spool.
        database: the procedures for it.
        requests_max: push requests that one call stores at most.
        interval_s: how often it looks.
    """

    def __init__(
        self, context: Context, failover: Failover, database: SpoolDatabase, requests_max: int, interval_s: float
    ) -> None:
        self._context, self._failover, self._database = context, failover, database
        self._spool = failover.spool
        self._requests_max, self._interval_s = requests_max, interval_s
        self._progress = Progress()
        self._holds = False
        self._gate, self._changing = asyncio.Lock(), asyncio.Lock()
        self._lock: Lock | None = None
        self._backlog = Backlog()
        self._limit_s: float | None = None
        self._reached: dict[UUID | None, tuple[int, bool]] = {}
        self._unread: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._retrying: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to look whether there is something to do."""
        self._task = asyncio.get_running_loop().create_task(self._keep_looking())

    async def stop(self) -> None:
        """Breaks off, wherever it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._let_go()

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        switches_at = 0.0
        while True:
            try:
                if not self._failover.away and loop.time() >= switches_at:
                    await copy_switches(self._context)
                    await keep_for_spool(self._context)
                    switches_at = loop.time() + _SWITCHES_S
                await self._look()
            except DatabaseUnavailableError as problem:
                log.info("The spool waits: %s", problem)
                await self._let_go()
                await asyncio.sleep(self._interval_s)
            except (QueenError, OSError) as problem:
                log.error("The spool cannot be replayed at the moment: %s", problem)  # noqa: TRY400 - it explains itself
                await self._let_go()
                await asyncio.sleep(1)
            except Exception:
                log.exception("The spool cannot be replayed")
                await self._let_go()
                await asyncio.sleep(1)
            await asyncio.sleep(self._interval_s)

    async def _look(self) -> None:
        """Does what there is to do, if no other process does."""
        failover = self._failover
        waits = failover.spooling or failover.held_back
        if not waits or failover.away or failover.maintenance:
            await self._let_go()
        elif self._lock is not None or await self._take():
            if failover.spooling or self._backlog.released:
                await self._drain()
            if self._retrying is not None and self._retrying.done():
                self._retrying.result()
                self._retrying = None
            if self._backlog and self._retrying is None:
                self._retrying = asyncio.create_task(self._keep_retrying())

    async def _take(self) -> bool:
        """Becomes the process that replays; false if another one is."""
        lock = self._spool.try_replay_lock()
        if lock is None:
            return False
        self._lock, self._backlog, self._reached = lock, Backlog(), {}
        return True

    async def _let_go(self) -> None:
        """Lets another process replay."""
        if self._retrying is not None:
            await _break_off(self._retrying)
            self._retrying = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def drain(self) -> bool:
        """Replays everything that can be stored now and ends the spool.

        Returns:
            False if another process is at it, or maintenance forbids it.

        Raises:
            DatabaseUnavailableError: PostgreSQL went away; what was replayed is noted.
        """
        if not await self._take():
            return False
        try:
            return await self._drain()
        finally:
            await self._let_go()

    async def _drain(self) -> bool:
        last_pass_bytes = _LAST_PASS_BYTES
        self._limit_s = None
        await self._load()
        # Pushes wait while the last pass does. A commit may wait for as long as a standby is gone: without them.
        await self._see_a_commit()
        while not await self._last_pass(last_pass_bytes):
            if self._failover.maintenance:
                return False
            await self._pass()
            last_pass_bytes *= 2
        return True

    async def _see_a_commit(self) -> None:
        """Raises DatabaseUnavailableError if nothing can be committed soon: then no request is at fault."""
        try:
            await self._database.commit_something()
        except TooSlowError as problem:
            raise DatabaseUnavailableError(f"PostgreSQL is slow: {problem}") from problem

    async def _pass(self) -> None:
        """Replays the complete files. Meanwhile the next one is read, and the one before is removed."""
        await self._adopt()
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
            await self._adopt()
        except BaseException:
            await _break_off(reading, removing)
            raise

    async def _last_pass(self, bytes_max: int) -> bool:
        """Replays the rest and ends the spool while pushes wait, if the rest is small enough."""
        async with self._gate, self._failover.held():
            if await uninterrupted(self._spool.complete) > bytes_max:
                return False
            self._holds = True
            try:
                await self._pass()
            except _TriedUnderLockError as problem:
                log.info("Pushes go on while the spool is stored: %s", problem.__cause__)
                return False
            finally:
                async with self._changing:
                    self._holds = False
            # If it was switched on meanwhile, the flag stays.
            if await maintenance_is_on(self._context):
                return True
            if not self._spool.end(self._backlog.held):
                return False
            self._backlog.released = False
            return True

    async def _change(self, change: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - those of the change
        """Changes the spool under the lock of all appends, which may be held already."""
        if self._holds:
            async with self._changing:
                await uninterrupted(change, *arguments)
            return
        async with self._gate, self._failover.held():
            await uninterrupted(change, *arguments)

    # ------------------------------------------------------------ one file

    async def _read_lanes(self, name: str) -> list[Lane] | None:
        """The lanes of a file; ``None`` if it was set aside, because it cannot be read."""
        file = await self._read(name, self._spool.read)
        if file is None:
            return None
        dealt = await uninterrupted(lanes_of, units_of(file))
        return [
            Lane(
                name, file, uuid5(file.header.file, f"lane {number} of {REPLAY_LANES}") if file.header else None, units
            )
            for number, units in enumerate(dealt)
            if units
        ]

    async def _read(self, name: str, read: Callable[[str], SpoolFile | None]) -> SpoolFile | None:
        try:
            file = await uninterrupted(read, name)
        except OSError as problem:
            now = asyncio.get_running_loop().time()
            if problem.errno in _NOT_OF_THE_FILE or now - self._unread.setdefault(name, now) < _READ_S:
                raise
            await self._change(self._give_up, name, problem)
            return None
        self._unread.pop(name, None)
        if file is not None:
            self._spool.check_installation(file)
        return file

    def _give_up(self, name: str, problem: OSError) -> None:
        failed = self._spool.give_up(name)
        log.error("The spool file %s cannot be read and is set aside as %s: %s", name, failed, problem)

    async def _replay_lanes(self, lanes: Sequence[Lane]) -> None:
        """Stores all of a file. A lane that cannot go on does not break the others off."""
        outcomes = await asyncio.gather(*map(self._replay_lane, lanes), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _remove_file(self, name: str, lanes: Sequence[Lane]) -> None:
        """A file of which PostgreSQL has everything goes, and then its positions."""
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
                    break  # An earlier replay came further than this one knew.

    async def _replay_batch(self, lane: Lane, batch: Batch) -> int:
        """Stores a batch, or what of it can be stored now; returns the position of the lane."""
        if waiting := self._backlog.behind(lane.name, batch):
            if (position := await self._fence(lane, batch)) is not None:
                return position
            batch = await self._without(lane, batch, waiting, BEHIND)
        try:
            upto = await self._store(lane, batch, self._limit_s)
        except (DatabaseUnavailableError, SpoolError, OSError):
            raise
        except Exception as problem:
            if _is_refusal(problem):
                return await self._split(lane, batch, problem)
            if self._holds:
                raise _TriedUnderLockError from problem
            return await self._hold_back(lane, batch, problem)
        if upto == batch.upto:
            await self._count(batch.stored)
        return upto

    async def _split(self, lane: Lane, batch: Batch, problem: Exception) -> int:
        """Finds out which unit is at fault, stores the others, and sets that one aside."""
        units = batch.units
        if len(units) == 1:
            await self._set_aside(lane, units[0], units[0].lots, str(problem))
            await self._store_nothing(lane, batch)
            await self._count(units)
            return batch.upto
        middle = len(units) // 2
        upto = await self._replay_batch(lane, Batch(batch.begin, units[:middle], fenced=batch.fenced))
        if upto != batch.begin + middle:
            return upto
        return await self._replay_batch(lane, Batch(upto, units[middle:]))

    async def _store(self, lane: Lane, batch: Batch, limit_s: float | None) -> int:
        if isinstance(damage := batch.units[0].record, Damage):
            return await self._set_damage_aside(lane, batch, damage)
        for _ in range(LAYOUTS_MAX):
            requests, flush = await self._lay_out(batch, limit_s)
            await self._set_refused_aside(lane, batch, flush)
            replayed = await self._replay(lane, batch, flush.columns, limit_s)
            if not replayed.stale and not replayed.unknown:
                announce(self._context, requests)
                return replayed.upto
            if replayed.stale:
                self._context.directory.forget_push_options()
            self._context.directory.forget_partitions(replayed.unknown)
        raise DatabaseUnavailableError(CHANGES_TOO_OFTEN)

    async def _lay_out(self, batch: Batch, limit_s: float | None) -> tuple[list[Push], Flush]:
        directory = self._context.directory
        async with _within(limit_s or REPLAY_CALL_S):
            options = await directory.push_options()
            try:
                requests = [seal(self._context, unit.request, options) for unit in batch.stored]
            except NoEncryptionKeyError:
                directory.forget_push_options()  # PostgreSQL, which would say that they have changed, is not asked
                raise
            flush_id = batch.doubtful.flush if batch.doubtful else uuid4()
            return requests, await self._context.past_locks(lambda: lay_out(self._context, requests, options, flush_id))

    async def _store_nothing(self, lane: Lane, batch: Batch) -> int:
        """Only notes that the lane has come so far; its position."""
        if lane.position is None:
            return batch.upto
        return (await self._replay(lane, msgspec.structs.replace(batch, doubtful=None), PushColumns(uuid4()))).upto

    async def _replay(self, lane: Lane, batch: Batch, columns: PushColumns, limit_s: float | None = None) -> Replayed:
        if lane.position is None:
            raise ValueError(f"{lane.name} has records, but no header")
        sent = batch.doubtful.sent_at if batch.doubtful else None
        sent_at = datetime.fromtimestamp(sent, UTC) if sent is not None else None
        return await self._database.replay(lane.position, batch.position, batch.upto, sent_at, columns, limit_s)

    # ------------------------------------------------------------ what cannot be stored yet

    async def _hold_back(self, lane: Lane, batch: Batch, problem: Exception) -> int:
        """Holds a batch back that cannot be stored now; returns the position of the lane."""
        _tell(problem, f"{len(batch.stored)} requests of {lane.name} are held back")
        await self._see_a_commit()
        self._limit_s = max((self._limit_s or REPLAY_CALL_S) / 2, _CALL_MIN_S)
        if (position := await self._fence(lane, batch)) is not None:
            return position
        batch = msgspec.structs.replace(batch, fenced=True)
        settled = await self._settle(lane, batch)
        if settled == batch.upto:
            return batch.upto
        if settled is not None:
            batch = msgspec.structs.replace(batch, doubtful=None)
        return await self._store_nothing(lane, await self._without(lane, batch, batch.stored, reason_of(problem)))

    async def _fence(self, lane: Lane, batch: Batch) -> int | None:
        """What was sent for this place of the lane stores nothing any more; the lane's position if it had."""
        if batch.fenced:
            return None
        assert lane.position is not None  # noqa: S101 - a file without a header has damage only
        fence, nothing = ~batch.begin, PushColumns(uuid4())
        position = (await self._database.replay(lane.position, batch.begin, fence, None, nothing)).upto
        return None if position == fence else position

    async def _settle(self, lane: Lane, batch: Batch) -> int | None:
        """Whether requests that were sent together before were stored then.

        Returns:
            The end of the batch if they were, another position if they never will be, ``None`` if that is not known.
        """
        if batch.doubtful is None or len(batch.units) == 1:
            return None
        try:
            _, flush = await self._lay_out(batch, self._limit_s)
            flush.columns.version = _NO_VERSION
            replayed = await self._replay(lane, batch, flush.columns, self._limit_s)
        except TooSlowError:
            return None
        return None if replayed.unknown else replayed.upto

    async def _without(self, lane: Lane, batch: Batch, units: Sequence[Unit], reason: str) -> Batch:
        """A fenced batch without some of its units, which are held back: they are on the disk when this returns."""
        listed = self._backlog.listed.get(lane.name, frozenset[int]())
        new = [unit for unit in units if unit.place not in listed]
        doubtful = batch.doubtful if len(new) == len(batch.units) else None
        if new:
            records = (
                [msgspec.structs.replace(doubtful, reason=reason, place=new[0].place)]
                if doubtful
                else [Record(uuid4(), None, _written_at(unit), [unit.lots], reason, unit.place) for unit in new]
            )
            self._backlog.hold(lane.name, new, reason, time.time())
            await self._change(self._spool.hold_back, lane.file, lane.name, records)
        places = frozenset([unit.place for unit in units])
        return Batch(batch.begin, batch.units, None, fenced=True, held_back=batch.held_back | places)

    async def _load(self) -> None:
        """Learns what is held back."""
        for name in self._spool.held_files():
            if self._spool.waits(name):
                file = await self._read(name, self._spool.read_held)
                if file is not None:
                    source = self._spool.source_of(name)
                    for unit in held_units_of(file):
                        self._backlog.hold(source, [unit], _reason(unit), _since(file))
            else:
                await self._add(name)

    async def _adopt(self) -> None:
        """What is held back of files that are gone may be tried from now on."""
        for name in self._backlog.moving:
            if not self._spool.has(name):
                await self._add(held_file_of(name))
                self._backlog.moved(name)

    async def _add(self, name: str) -> None:
        """Adds the lanes of a file, once, unless it is gone since the files were listed."""
        if self._backlog.knows(name) or not self._spool.has(name):
            return
        file = await self._read(name, self._spool.read_held)
        if file is not None:
            lanes = await uninterrupted(held_lanes_of, name, file)
            self._backlog.add(name, lanes, self._failover.held_back, _since(file))

    async def _keep_retrying(self) -> None:
        """Tries lanes that are held back, until none is."""
        loop = asyncio.get_running_loop()
        under_way: set[asyncio.Task[None]] = set()
        try:
            while self._backlog or under_way:
                under_way |= {loop.create_task(self._retry(held)) for held in self._backlog.start(loop.time())}
                if not under_way:
                    await asyncio.sleep(_RETRY_LOOK_S)
                    continue
                done, under_way = await asyncio.wait(
                    under_way, timeout=_RETRY_LOOK_S, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()
        finally:
            await _break_off(*under_way)

    async def _retry(self, held: HeldLane) -> None:
        """Stores a lane that is held back, as far as it can be stored."""
        now = asyncio.get_running_loop().time
        try:
            while not held.over:
                batch = held.next_batch(self._requests_max)
                try:
                    held.advance(await self._store_held(held, batch))
                except (DatabaseUnavailableError, SpoolError, OSError) as problem:
                    log.info("What is held back waits: %s", problem)
                    held.rest(now())
                    return
                except Exception as problem:
                    if not await self._try_alone(held, batch):
                        await self._explain(held, problem, now())
                        return
            await self._finish_held(held)
        finally:
            self._backlog.stop(held)

    async def _store_held(self, held: HeldLane, batch: Batch) -> int:
        try:
            upto = await self._store(held.lane, batch, held.limit_s)
        except (DataRejectedError, ValueError) as problem:
            if len(batch.units) > 1 or not _is_refusal(problem):
                raise
            await self._set_aside(held.lane, batch.units[0], batch.units[0].lots, str(problem))
            upto = await self._store_nothing(held.lane, batch)
        if upto == batch.upto:
            await self._count(batch.units)
        return upto

    async def _try_alone(self, held: HeldLane, batch: Batch) -> bool:
        """Whether requests of a call that failed can be stored one by one."""
        if len(batch.units) == 1:
            return False
        if batch.doubtful is None:
            held.try_alone(certain=False)
            return True
        try:
            settled = await self._settle(held.lane, batch)
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
        if self._backlog.explain(held, reason := reason_of(problem)):
            _tell(problem, f"A request of {held.lane.name} is held back")
            await self._change(self._spool.note_reason, held.partitions, reason)

    async def _finish_held(self, held: HeldLane) -> None:
        lanes = self._backlog.finish(held)
        if lanes is not None:
            # Its lanes would be added once more by who still found the file, and stored again when they are forgotten.
            await self._change(self._finish, lanes[0].name, asyncio.get_running_loop().time())
            self._backlog.gone(lanes[0].name)
            await self._database.forget([lane.position for lane in lanes if lane.position is not None])

    # ------------------------------------------------------------ what cannot be stored

    async def _set_damage_aside(self, lane: Lane, batch: Batch, damage: Damage) -> int:
        content = await uninterrupted(self._spool.cut_out, lane.name, damage)
        failed = await uninterrupted(self._spool.set_aside, lane.file, lane.name, batch.units[0].place, content)
        log.error("Spool file %s is damaged: %d bytes set aside as %s", lane.name, damage.end - damage.start, failed)
        return await self._store_nothing(lane, batch)

    async def _set_refused_aside(self, lane: Lane, batch: Batch, flush: Flush) -> None:
        """Items whose transaction id only the server gives out: nobody could know that while PostgreSQL was away."""
        for unit, pushed in zip(batch.stored, flush.answers(()), strict=True):
            lots = [
                pick(lot, sorted(stored.refused))
                for lot, stored in zip(unit.lots, pushed.stored, strict=True)
                if stored.refused
            ]
            if lots:
                await self._set_aside(lane, unit, lots, "transactionId has the form of a message id")

    async def _set_aside(self, lane: Lane, unit: Unit, lots: list[SpooledLot], reason: str) -> None:
        record = Record(uuid4(), None, _written_at(unit), [lots], reason)
        failed = await uninterrupted(self._spool.set_aside, lane.file, lane.name, unit.place, record)
        log.error("A spooled push was refused and set aside as %s: %s", failed, reason)

    # ------------------------------------------------------------ figures

    async def _count(self, units: Sequence[Unit]) -> None:
        """Counts what is stored, and now and then tells everybody."""
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


class Progress:
    """What was stored since everybody was told of it. Pure; the time in seconds is an argument."""

    def __init__(self) -> None:
        self._since = 0.0
        self._requests, self._messages, self._written_at = 0, 0, 0.0

    def add(self, units: Sequence[Unit]) -> None:
        """Requests are stored."""
        self._requests += len(units)
        self._messages += sum(unit.messages for unit in units)
        record = units[-1].record
        self._written_at = record.written_at if isinstance(record, Record) else 0.0

    def is_due(self, now: float) -> bool:
        """Whether it is time to tell: that takes a lock which appends need too."""
        return now - self._since >= _TELL_S

    def rate(self, now: float) -> float:
        """Messages a second; 0 when it was not counted without a break."""
        elapsed = now - self._since
        return self._messages / elapsed if 0 < elapsed < _BREAK_S else 0.0

    def take(self, now: float) -> tuple[int, int, float]:
        """Requests, messages, and when the last of them was written; begins to count anew."""
        taken = self._requests, self._messages, self._written_at
        self._since = now
        self._requests, self._messages = 0, 0
        return taken


def pick(lot: SpooledLot, numbers: Sequence[int]) -> SpooledLot:
    """Only these messages of a lot."""
    [whole] = request_of([lot]).lots
    bodies, lengths, ids = [], [], []
    begin = 0
    for number, length in enumerate(whole.lengths):
        if number in numbers:
            bodies.append(whole.body[begin : begin + length - 1])
            lengths.append(length)
            ids.append((whole.ids or [])[number])
        begin += length
    picked = msgspec.structs.replace(whole, body=b",".join(bodies), lengths=lengths, ids=ids)
    return SpooledLot(lot.queue, lot.partition, picked.body, packed(lengths), ids)
