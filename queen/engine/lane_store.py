"""Stores batches of a lane of a spool file in PostgreSQL, and sets aside what can never be stored."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol
from uuid import UUID, uuid4

import msgspec

from queen.core.errors import DataRejectedError, NoEncryptionKeyError, TooSlowError
from queen.core.limits import REPLAY_CALL_S
from queen.engine.context import Context
from queen.engine.failover import uninterrupted
from queen.engine.handlers.push import announce, laid_out_anew, lay_out, seal
from queen.engine.ports import Replayed, SpoolDatabase, SpooledKind
from queen.engine.replay_lanes import Batch, Lane, Unit
from queen.log.append import AppendBatch
from queen.spool.format import Damage, Record, SpooledBatch, pick
from queen.spool.spool import Spool

log = logging.getLogger("queen.spool")

#: SQLSTATE classes of errors in the data. Any other error is one of the database, and may not happen again.
_DATA_CLASSES = ("21", "22", "23", "54", "P0", "QN")
#: No push options have this version.
_NO_VERSION = -1


def is_refusal(problem: Exception) -> bool:
    """Whether PostgreSQL, or the driver, has refused the data."""
    if isinstance(problem, DataRejectedError):
        return problem.sqlstate.startswith(_DATA_CLASSES) and not problem.misplaced
    return isinstance(problem, ValueError)


def _position_of(lane: Lane) -> UUID:
    """The id of the position of a lane; a file without a header has damage only."""
    if lane.position is None:
        raise ValueError(f"{lane.name} has records, but no header")
    return lane.position


@asynccontextmanager
async def _within(limit_s: float) -> AsyncIterator[None]:
    """Limits the time of the queries before the call."""
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError as problem:
        raise TooSlowError(f"Queue and partitions were not found within {limit_s:g} s") from problem


class StoreElsewhere(Protocol):
    """Stores a request on the databases to which its partitions belong; what they note of it goes at the end."""

    def __call__(self, lane: Lane, unit: Unit, limit_s: float | None) -> AbstractAsyncContextManager[None]: ...  # noqa: D102


class LaneStore:
    """The calls that the replay makes for a lane.

    Attributes:
        elsewhere: for requests whose partitions belong to another of several databases.

    Args:
        context: the metadata cache, encryption keys and notifications.
        spool: where requests are set aside.
        database: the procedures for the replay.
        kinds: by kind, what stores requests of other interfaces than pushes.
    """

    def __init__(
        self, context: Context, spool: Spool, database: SpoolDatabase, kinds: Mapping[str, SpooledKind]
    ) -> None:
        self._context, self._spool, self._database, self._kinds = context, spool, database, kinds
        self.elsewhere: StoreElsewhere | None = None

    async def store(self, lane: Lane, batch: Batch, limit_s: float | None) -> int:
        """Stores a batch in a call with this time limit; returns the position of the lane."""
        if isinstance(damage := batch.units[0].record, Damage):
            return await self._set_damage_aside(lane, batch, damage)
        if (kind := batch.units[0].kind) and batch.stored:
            return await self._store_kind(self._kinds[kind], lane, batch, limit_s)
        try:
            return await self.store_pushes(lane, batch, limit_s)
        except DataRejectedError as problem:
            # Several requests are held back first, and then come one by one.
            if not problem.misplaced or self.elsewhere is None or len(batch.units) > 1:
                raise
        async with self.elsewhere(lane, batch.units[0], limit_s):
            return await self.skip(lane, batch)

    def store_pushes(self, lane: Lane, batch: Batch, limit_s: float | None) -> Coroutine[Any, Any, int]:
        """The same for pushes to partitions of this database."""
        return laid_out_anew(partial(self._attempt, lane, batch, limit_s))

    async def forget(self, positions: Sequence[UUID]) -> None:
        """Forgets positions of lanes."""
        await self._database.forget(positions)

    async def _store_kind(self, kind: SpooledKind, lane: Lane, batch: Batch, limit_s: float | None) -> int:
        sent_at = datetime.fromtimestamp(batch.units[0].written_at, UTC)
        requests = [unit.batches for unit in batch.stored]
        return await kind.replay(_position_of(lane), batch.position, batch.upto, sent_at, requests, limit_s)

    async def _attempt(self, lane: Lane, batch: Batch, limit_s: float | None) -> int | None:
        append = await self._lay_out(batch, limit_s)
        if append is None:
            return None
        await self._set_refused_aside(lane, batch, append)
        replayed = await self._replay(lane, batch, append, limit_s)
        if not replayed.stale and not replayed.unknown:
            announce(self._context, [unit.request for unit in batch.stored])
            return replayed.upto
        if replayed.stale:
            self._context.cache.forget_push_options()
        self._context.cache.forget_partitions(replayed.unknown)
        return None

    async def _lay_out(self, batch: Batch, limit_s: float | None) -> AppendBatch | None:
        cache = self._context.cache
        async with _within(limit_s or REPLAY_CALL_S):
            options = await cache.push_options()
            try:
                requests = [seal(self._context, unit.request, options) for unit in batch.stored]
            except NoEncryptionKeyError:
                cache.forget_push_options()  # no call follows that would notice a change of the options
                raise
            flush_id = batch.doubtful.flush if batch.doubtful else uuid4()
            return await self._context.past_locks(lambda: lay_out(self._context, requests, options, flush_id))

    async def skip(self, lane: Lane, batch: Batch) -> int:
        """Only notes that the lane is stored up to the end of a batch; returns its position."""
        if lane.position is None:
            return batch.upto
        return (await self._replay(lane, msgspec.structs.replace(batch, doubtful=None), AppendBatch(uuid4()))).upto

    async def _replay(self, lane: Lane, batch: Batch, append: AppendBatch, limit_s: float | None = None) -> Replayed:
        sent = batch.doubtful.sent_at if batch.doubtful else None
        sent_at = datetime.fromtimestamp(sent, UTC) if sent is not None else None
        position = _position_of(lane)
        return await self._database.replay(position, batch.position, batch.upto, sent_at, append, limit_s)

    async def fence(self, lane: Lane, batch: Batch) -> int | None:
        """Makes earlier calls for this position of the lane store nothing; returns the position if one did."""
        if batch.fenced:
            return None
        fence, nothing = ~batch.begin, AppendBatch(uuid4())
        position = (await self._database.replay(_position_of(lane), batch.begin, fence, None, nothing)).upto
        return None if position == fence else position

    async def settle(self, lane: Lane, batch: Batch, limit_s: float | None) -> int | None:
        """Finds out whether requests that were sent together before an outage were stored.

        Returns:
            The end of the batch if they were, another position if they never will be, ``None`` if it stays unknown.
        """
        if batch.doubtful is None or len(batch.units) == 1:
            return None
        try:
            append = await laid_out_anew(partial(self._lay_out, batch, limit_s))
            append.version = _NO_VERSION
            replayed = await self._replay(lane, batch, append, limit_s)
        except TooSlowError:
            return None
        return None if replayed.unknown else replayed.upto

    async def _set_damage_aside(self, lane: Lane, batch: Batch, damage: Damage) -> int:
        content = await uninterrupted(self._spool.cut_out, lane.name, damage)
        failed = await uninterrupted(self._spool.set_aside, lane.file, lane.name, batch.units[0].number, content)
        log.error("Spool file %s is damaged: %d bytes set aside as %s", lane.name, damage.end - damage.start, failed)
        return await self.skip(lane, batch)

    async def _set_refused_aside(self, lane: Lane, batch: Batch, append: AppendBatch) -> None:
        """Sets aside messages whose transaction id only the server may assign: the spool could not check that."""
        for unit, pushed in zip(batch.stored, append.answers(), strict=True):
            batches = [
                pick(each, sorted(stored.refused))
                for each, stored in zip(unit.batches, pushed.stored, strict=True)
                if stored.refused
            ]
            if batches:
                await self.set_aside(lane, unit, batches, "transactionId has the form of a message id")

    async def set_aside(self, lane: Lane, unit: Unit, batches: list[SpooledBatch], reason: str) -> None:
        """Writes batches of a request to a file for people, because they can never be stored."""
        record = Record(uuid4(), None, unit.written_at, [batches], reason)
        failed = await uninterrupted(self._spool.set_aside, lane.file, lane.name, unit.number, record)
        log.error("A spooled push was refused and set aside as %s: %s", failed, reason)
