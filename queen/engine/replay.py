"""The replay: what the spool holds goes to PostgreSQL, oldest first, and then the spool ends.

One process of an instance replays at a time, the one that has the replay lock. The requests of a file are dealt out to
*lanes*, so that no partition is in two of them. Each lane keeps its order, and all go on side by side: one is laid
out while PostgreSQL computes for another and a third waits for the disk. A call stores some requests and notes in the
same transaction how far their lane is stored, so it can be broken off anywhere and by anything: the next one is told by
PostgreSQL where to go on.

While producers go on pushing, the spool grows behind the replay. Each pass is shorter than the one before, but no pass
is of no length. So the last one happens under the lock of all appends: for that moment pushes wait.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any
from uuid import UUID, uuid4, uuid5

import msgspec
from msgspec import Struct

from queen.core.errors import DatabaseUnavailableError, DataRejectedError, QueenError
from queen.core.limits import REPLAY_LANES
from queen.core.operations import Push
from queen.engine.context import Context
from queen.engine.failover import Failover, uninterrupted
from queen.engine.flush import Flush
from queen.engine.handlers.push import CHANGES_TOO_OFTEN, LAYOUTS_MAX, announce, lay_out, seal
from queen.engine.ports import PushColumns, Replayed, SpoolDatabase
from queen.engine.push_options import keep_for_spool
from queen.engine.switches import copy_switches, maintenance_is_on
from queen.spool.format import Damage, Record, SpooledLot, SpoolFile, packed, request_of

log = logging.getLogger("queen.spool")

#: SQLSTATE classes that speak of the data. Any other refusal says something of the database, and may pass.
_DATA_CLASSES = ("21", "22", "23", "54", "P0", "QN")
#: So that PostgreSQL and this process find what they copy in their caches.
_CALL_BYTES = 1 << 20
#: The last pass may replay so many bytes while pushes wait; twice as many after each pass that did not come to an end.
_LAST_PASS_BYTES = 1 << 20
_SWITCHES_S = 1.0
#: How often the figures of the spool are brought up to date, and how long a pause no rate is told of.
_TELL_S, _BREAK_S = 0.2, 10.0


class Unit(Struct, frozen=True):
    """One push request of a file, by its number in it; ``request`` is ``None`` where the file is damaged."""

    place: int
    record: Record | Damage
    lots: list[SpooledLot]

    @property
    def request(self) -> Push:
        """The request."""
        return request_of(self.lots)

    @property
    def messages(self) -> int:
        """How many messages it holds."""
        return sum(len(lot.lengths) // 4 for lot in self.lots)

    @property
    def bytes(self) -> int:
        """About how large it is."""
        return sum(len(lot.body) for lot in self.lots)


class Lane(Struct, frozen=True):
    """Requests of a file that are replayed one after the other, beside those of other lanes.

    Attributes:
        name: of the file, in the folder.
        file: what it is a part of.
        position: by which PostgreSQL knows how far it is stored; ``None`` if the file has no header.
        units: in the order of the file.
    """

    name: str
    file: SpoolFile
    position: UUID | None
    units: Sequence[Unit]


class Batch(Struct, frozen=True):
    """Units of a lane that one call stores.

    Attributes:
        begin: how many units of the lane come before them.
        units: at least one.
        doubtful: their record was sent to PostgreSQL before, all of it.
    """

    begin: int
    units: Sequence[Unit]
    doubtful: Record | None = None

    @property
    def upto(self) -> int:
        """How many units of the lane are stored with it."""
        return self.begin + len(self.units)


def units_of(file: SpoolFile) -> list[Unit]:
    """The requests of a file; damage counts as one."""
    units: list[Unit] = []
    for record in file.records:
        requests: Sequence[list[SpooledLot]] = [[]] if isinstance(record, Damage) else record.requests
        units += [Unit(len(units) + number, record, lots) for number, lots in enumerate(requests)]
    return units


class _Groups:
    """What belongs together, because something else belongs to both (a disjoint-set forest)."""

    def __init__(self) -> None:
        self._above: dict[Hashable, Hashable] = {}

    def of(self, member: Hashable) -> Hashable:
        """The name of its group."""
        above = self._above
        while (upper := above.setdefault(member, member)) != member:
            above[member] = upper = above[upper]
            member = upper
        return member

    def join(self, members: Sequence[Hashable]) -> None:
        """These are in one group from now on."""
        for member in members[1:]:
            self._above[self.of(member)] = self.of(members[0])


def _ties(unit: Unit) -> list[Hashable]:
    """What a unit shares with others of its lane: partitions, and the call in which they were sent before."""
    record = unit.record
    sent = [record.flush] if isinstance(record, Record) and record.sent_at is not None else []
    return [*((lot.queue, lot.partition) for lot in unit.lots), *sent]


def lanes_of(units: Sequence[Unit], number: int = REPLAY_LANES) -> list[list[Unit]]:
    """Deals units out to lanes of about the same size: no partition is in two, and no call that was sent before.

    The same units are always dealt out the same way.
    """
    groups = _Groups()
    ties = [_ties(unit) for unit in units]
    for each in ties:
        groups.join(each)
    names = [groups.of(each[0]) if each else None for each in ties]
    sizes = dict.fromkeys(names, 0)
    for unit, name in zip(units, names, strict=True):
        sizes[name] += unit.bytes
    loads = [0] * number
    lanes: list[list[Unit]] = [[] for _ in loads]
    lane_of: dict[Hashable, list[Unit]] = {}
    for name, size in sizes.items():
        least = loads.index(min(loads))
        loads[least] += size
        lane_of[name] = lanes[least]
    for unit, name in zip(units, names, strict=True):
        lane_of[name].append(unit)
    return lanes


def batches_of(units: Sequence[Unit], begin: int, requests_max: int) -> Iterator[Batch]:
    """The units of a lane from one on, in their order; a record of unknown outcome alone, damage alone."""
    gathered: list[Unit] = []
    size = 0
    number = begin
    while number < len(units):
        unit = units[number]
        record = unit.record
        whole = isinstance(record, Record) and record.sent_at is not None
        alone = whole or isinstance(record, Damage)
        if gathered and (alone or len(gathered) >= requests_max or size >= _CALL_BYTES):
            yield Batch(number - len(gathered), gathered)
            gathered, size = [], 0
        if alone:
            members = [each for each in units[number:] if each.record is record] if whole else [unit]
            # Not all of it is left: the others were stored one by one, because the whole was refused.
            complete = isinstance(record, Record) and len(members) == len(record.requests)
            yield Batch(number, members, record if isinstance(record, Record) and complete else None)
            number += len(members)
            continue
        gathered.append(unit)
        size += unit.bytes
        number += 1
    if gathered:
        yield Batch(number - len(gathered), gathered)


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
        self._changing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to look whether there is something to do."""
        self._task = asyncio.get_running_loop().create_task(self._keep_looking())

    async def stop(self) -> None:
        """Breaks off, wherever it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        switches_at = 0.0
        while True:
            try:
                if not self._failover.away and loop.time() >= switches_at:
                    await copy_switches(self._context)
                    await keep_for_spool(self._context)
                    switches_at = loop.time() + _SWITCHES_S
                if self._failover.spooling and not self._failover.away and not self._failover.maintenance:
                    await self.drain()
            except DatabaseUnavailableError as problem:
                log.info("The spool waits: %s", problem)
                await asyncio.sleep(self._interval_s)
            except (QueenError, OSError) as problem:
                log.error("The spool cannot be replayed at the moment: %s", problem)  # noqa: TRY400 - it explains itself
                await asyncio.sleep(1)
            except Exception:
                log.exception("The spool cannot be replayed")
                await asyncio.sleep(1)
            await asyncio.sleep(self._interval_s)

    async def drain(self) -> bool:
        """Replays everything and ends the spool.

        Returns:
            False if another process is at it, or maintenance forbids it.

        Raises:
            DatabaseUnavailableError: PostgreSQL went away; what was replayed is noted.
        """
        lock = self._spool.try_replay_lock()
        if lock is None:
            return False
        try:
            last_pass_bytes = _LAST_PASS_BYTES
            # Pushes wait while the last pass does. A commit may wait for as long as a standby is gone: without them.
            await self._database.commit_something()
            while not await self._last_pass(last_pass_bytes):
                if self._failover.maintenance:
                    return False
                await self._pass()
                last_pass_bytes *= 2
            return True
        finally:
            lock.release()

    async def _pass(self) -> None:
        """Replays the complete files. Meanwhile the next one is read, and the one before is removed."""
        names = self._spool.waiting_files()
        reading: asyncio.Future[list[Lane]] | None = None
        removing: asyncio.Future[None] | None = None
        try:
            for name, following in zip_longest(names, names[1:]):
                lanes = await (reading or self._read_lanes(name))
                reading = asyncio.ensure_future(self._read_lanes(following)) if following else None
                await self._replay_lanes(lanes)
                if removing is not None:
                    await removing
                removing = asyncio.ensure_future(self._remove_file(name, lanes))
            if removing is not None:
                await removing
        except BaseException:
            await _break_off(reading, removing)
            raise

    async def _last_pass(self, bytes_max: int) -> bool:
        """Replays the rest and ends the spool while pushes wait, if the rest is small enough."""
        async with self._failover.held():
            if await uninterrupted(self._spool.complete) > bytes_max:
                return False
            self._holds = True
            try:
                await self._pass()
            finally:
                self._holds = False
            # If it was switched on meanwhile, the flag stays.
            return await maintenance_is_on(self._context) or self._spool.end()

    async def _change(self, change: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - those of the change
        """Changes the spool under the lock of all appends, which may be held already."""
        async with self._changing:
            if self._holds:
                await uninterrupted(change, *arguments)
                return
            async with self._failover.held():
                await uninterrupted(change, *arguments)

    # ------------------------------------------------------------ one file

    async def _read_lanes(self, name: str) -> list[Lane]:
        file = await uninterrupted(self._spool.read, name)
        self._spool.check_installation(file)
        dealt = await uninterrupted(lanes_of, units_of(file))
        return [
            Lane(
                name, file, uuid5(file.header.file, f"lane {number} of {REPLAY_LANES}") if file.header else None, units
            )
            for number, units in enumerate(dealt)
            if units
        ]

    async def _replay_lanes(self, lanes: Sequence[Lane]) -> None:
        """Stores all of a file. A lane that cannot go on does not break the others off."""
        outcomes = await asyncio.gather(*map(self._replay_lane, lanes), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _remove_file(self, name: str, lanes: Sequence[Lane]) -> None:
        """A file of which PostgreSQL has everything goes, and then its positions."""
        await self._change(self._finish, name, asyncio.get_running_loop().time())
        await self._database.forget([lane.position for lane in lanes if lane.position is not None])

    async def _replay_lane(self, lane: Lane) -> None:
        done = 0
        while done < len(lane.units):
            for batch in batches_of(lane.units, done, self._requests_max):
                upto = await self._replay_batch(lane, batch)
                if upto <= done:
                    raise QueenError(
                        f"A lane of {lane.name} is stored up to request {upto} only, and was up to {done} before"
                    )
                skipped, done = upto != batch.upto, upto
                if skipped:
                    break  # An earlier replay came further than this one knew.

    async def _replay_batch(self, lane: Lane, batch: Batch) -> int:
        """Stores a batch, or what of it can be stored; returns how many units of the lane are done."""
        try:
            upto = await self._store(lane, batch)
        except (DataRejectedError, ValueError) as problem:
            if isinstance(problem, DataRejectedError) and not problem.sqlstate.startswith(_DATA_CLASSES):
                raise
            upto = await self._split(lane, batch, problem)
        else:
            if upto == batch.upto:
                await self._count(batch)
        return upto

    async def _split(self, lane: Lane, batch: Batch, problem: Exception) -> int:
        """Finds out which unit is at fault, stores the others, and sets that one aside."""
        units = batch.units
        if len(units) == 1:
            await self._set_aside(lane, units[0], units[0].lots, str(problem))
            await self._store_nothing(lane, batch)
            await self._count(batch)
            return batch.upto
        middle = len(units) // 2
        upto = await self._replay_batch(lane, Batch(batch.begin, units[:middle]))
        if upto != batch.begin + middle:
            return upto
        return await self._replay_batch(lane, Batch(upto, units[middle:]))

    async def _store(self, lane: Lane, batch: Batch) -> int:
        if isinstance(damage := batch.units[0].record, Damage):
            return await self._set_damage_aside(lane, batch, damage)
        doubtful = batch.doubtful
        flush_id = doubtful.flush if doubtful else uuid4()
        sent_at = datetime.fromtimestamp(doubtful.sent_at, UTC) if doubtful and doubtful.sent_at else None
        for _ in range(LAYOUTS_MAX):
            options = await self._context.directory.push_options()
            requests = [seal(self._context, unit.request, options) for unit in batch.units]
            flush = await lay_out(self._context, requests, options, flush_id)
            await self._set_refused_aside(lane, batch, flush)
            replayed = await self._replay(lane, batch, flush.columns, sent_at)
            if not replayed.stale and not replayed.unknown:
                announce(self._context, requests)
                return replayed.upto
            if replayed.stale:
                self._context.directory.forget_push_options()
            self._context.directory.forget_partitions(replayed.unknown)
        raise DatabaseUnavailableError(CHANGES_TOO_OFTEN)

    async def _store_nothing(self, lane: Lane, batch: Batch) -> None:
        if lane.position is not None:
            await self._replay(lane, batch, PushColumns(uuid4()))

    async def _replay(
        self, lane: Lane, batch: Batch, columns: PushColumns, sent_at: datetime | None = None
    ) -> Replayed:
        if lane.position is None:
            raise ValueError(f"{lane.name} has records, but no header")
        return await self._database.replay(lane.position, batch.begin, batch.upto, sent_at, columns)

    # ------------------------------------------------------------ what cannot be stored

    async def _set_damage_aside(self, lane: Lane, batch: Batch, damage: Damage) -> int:
        content = await uninterrupted(self._spool.cut_out, lane.name, damage)
        failed = await uninterrupted(self._spool.set_aside, lane.file, lane.name, batch.units[0].place, content)
        log.error("Spool file %s is damaged: %d bytes set aside as %s", lane.name, damage.end - damage.start, failed)
        await self._store_nothing(lane, batch)
        return batch.upto

    async def _set_refused_aside(self, lane: Lane, batch: Batch, flush: Flush) -> None:
        """Items whose transaction id only the server gives out: nobody could know that while PostgreSQL was away."""
        for unit, pushed in zip(batch.units, flush.answers(()), strict=True):
            lots = [
                pick(lot, sorted(stored.refused))
                for lot, stored in zip(unit.lots, pushed.stored, strict=True)
                if stored.refused
            ]
            if lots:
                await self._set_aside(lane, unit, lots, "transactionId has the form of a message id")

    async def _set_aside(self, lane: Lane, unit: Unit, lots: list[SpooledLot], reason: str) -> None:
        now = datetime.now(UTC).timestamp()
        written_at = unit.record.written_at if isinstance(unit.record, Record) else now
        record = Record(uuid4(), None, written_at, [lots], reason)
        failed = await uninterrupted(self._spool.set_aside, lane.file, lane.name, unit.place, record)
        log.error("A spooled push was refused and set aside as %s: %s", failed, reason)

    # ------------------------------------------------------------ figures

    async def _count(self, batch: Batch) -> None:
        """Counts what is stored, and now and then tells everybody."""
        now = asyncio.get_running_loop().time()
        record = batch.units[-1].record
        self._progress.add(batch, record.written_at if isinstance(record, Record) else 0.0)
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

    def add(self, batch: Batch, written_at: float) -> None:
        """A batch is stored, which was written to the spool at that time."""
        self._requests += len(batch.units)
        self._messages += sum(unit.messages for unit in batch.units)
        self._written_at = written_at

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
