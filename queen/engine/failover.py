"""Whether PostgreSQL is unavailable, as a worker knows it, and the spool for its pushes meanwhile."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from queen.spool.folder import Lock
from queen.spool.format import Record, SpooledBatch
from queen.spool.held import Held, Partition
from queen.spool.spool import MAINTENANCE, POP_MAINTENANCE, Spool
from queen.spool.writer import SpoolWriter

T = TypeVar("T")


async def uninterrupted(work: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401 - those of the work
    """The result of a function in another thread; even if cancelled, this returns only after the function has ended.

    Otherwise a change of the spool could go on after the release of the lock, and undo a change of another worker.
    """
    doing = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        raise


def _release(acquired: "asyncio.Future[Lock]") -> None:
    if not acquired.cancelled() and acquired.exception() is None:
        acquired.result().release()


class Failover:
    """The spool of the instance, as the engine of one worker uses it.

    Attributes:
        unavailable: whether PostgreSQL is known to be unavailable.
    """

    def __init__(self, spool: Spool, clock: Callable[[], float] = time.time) -> None:
        self.spool = spool
        self.unavailable = False
        self._writer = SpoolWriter(spool)
        self._clock = clock
        self._encrypted_content: bytes | None = None
        self._encrypted: frozenset[str] | None = None

    @property
    def spooling(self) -> bool:
        """Whether all workers of the instance spool."""
        return self.spool.spooling

    @property
    def held_back(self) -> Mapping[Partition, Held]:
        """The partitions whose pushes are spooled although the spool has ended; read it after ``spooling``."""
        return self.spool.held_back

    @property
    def maintenance(self) -> bool:
        """Whether pushes are spooled because maintenance is on."""
        return self.spool.has(MAINTENANCE)

    @property
    def pop_maintenance(self) -> bool:
        """Whether pops get no messages because pop maintenance is on."""
        return self.spool.has(POP_MAINTENANCE)

    async def append(
        self, flush: UUID, requests: Sequence[list[SpooledBatch]], sent_at: float | None, *, insist: bool
    ) -> bool:
        """Writes requests to the spool, durably; false if the spool has ended meanwhile, unless ``insist``.

        Args:
            flush: the id under which they were sent to PostgreSQL, if they were.
            requests: at least one.
            sent_at: when they were sent, if the outcome is unknown; seconds since 1970.
            insist: whether to start the spool if it is off.

        Raises:
            SpoolError: the spool cannot be written, or is full.
        """
        record = Record(flush, sent_at, self._clock(), list(requests))
        return await self._writer.append(record, insist=insist)

    async def has_room(self) -> bool:
        """Whether a push can be spooled; after a failed append, this tries the disk."""
        if self.spool.state().full:
            return False
        return not self._writer.refused or await uninterrupted(self.spool.try_disk)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Holds the lock of all appends of all workers for a block."""
        acquiring = asyncio.ensure_future(uninterrupted(self.spool.hold))
        try:
            lock = await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            acquiring.add_done_callback(_release)
            raise
        try:
            yield
        finally:
            lock.release()

    def encrypted_queues(self) -> frozenset[str] | None:
        """The encrypted queues, as a worker of the instance last read them; ``None`` if none ever has."""
        content = self.spool.encrypted_queues()
        if content != self._encrypted_content:
            self._encrypted = msgspec.json.decode(content, type=frozenset[str]) if content is not None else None
            self._encrypted_content = content
        return self._encrypted

    def note_encrypted_queues(self, queues: frozenset[str]) -> None:
        """Stores the list for all workers; the caller holds the lock.

        Raises:
            SpoolError: the list cannot be written.
        """
        self.spool.note_encrypted_queues(msgspec.json.encode(sorted(queues)))

    def close(self) -> None:
        """Ends the thread of the spool."""
        self._writer.close()
