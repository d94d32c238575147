"""The procedures that replay the spool."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from queen.engine.ports import Replayed
from queen.log.append import AppendBatch
from queen.postgres.pool import Pool
from queen.postgres.statement import call
from queen.postgres.store import push_arguments

_REPLAY = call("replay_spool_v1", 14)
_FORGET = call("forget_spool_lanes_v1", 1)
#: Writes no row, but WAL: a transaction without WAL would not wait for the disk or a standby.
_COMMIT_SOMETHING = "SELECT pg_logical_emit_message(true, 'queen', '')"


class SpoolStore:
    """Implements ``queen.engine.ports.SpoolDatabase``.

    Args:
        pool: connections of its own.
        limit_s: default time limit of a call; if omitted, that of the pool.
    """

    def __init__(self, pool: Pool, limit_s: float | None = None) -> None:
        self._pool, self._limit_s = pool, limit_s

    async def replay(
        self,
        lane: UUID,
        first: int,
        upto: int,
        sent_at: datetime | None,
        batch: AppendBatch,
        limit_s: float | None = None,
    ) -> Replayed:
        """Stores the requests of a lane from ``first`` to before ``upto``, unless they are stored already."""
        [row] = await self._pool.fetch(
            _REPLAY, lane, first, upto, sent_at, batch.flush, *push_arguments(batch), batch.version,
            limit_s=limit_s or self._limit_s,
        )  # fmt: skip
        return Replayed(row["replayed"], row["unknown"] or (), row["stale"])

    async def forget(self, lanes: Sequence[UUID]) -> None:
        """Deletes the positions of the lanes of a removed file."""
        await self._pool.fetch(_FORGET, lanes)

    async def commit_something(self) -> None:
        """Commits without a change, to wait for whatever commits wait for, such as a standby."""
        await self._pool.fetch(_COMMIT_SOMETHING)
