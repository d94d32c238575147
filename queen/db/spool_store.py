"""The procedures that replay the spool."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from queen.db.pool import Pool
from queen.db.statement import call
from queen.db.store import push_arguments
from queen.engine.ports import PushColumns, Replayed

_REPLAY = call("replay_spool_v1", 14)
_FORGET = call("forget_spool_lanes_v1", 1)
#: Writes no row. A transaction that had written nothing at all would not wait for the disk or a standby.
_COMMIT_SOMETHING = "SELECT pg_logical_emit_message(true, 'queen', '')"


class SpoolStore:
    """Implements ``queen.engine.ports.SpoolDatabase``.

    Args:
        pool: connections of its own.
        limit_s: of a call for which no other is named; by default that of the pool.
    """

    def __init__(self, pool: Pool, limit_s: float | None = None) -> None:
        self._pool, self._limit_s = pool, limit_s

    async def replay(
        self,
        lane: UUID,
        first: int,
        upto: int,
        sent_at: datetime | None,
        columns: PushColumns,
        limit_s: float | None = None,
    ) -> Replayed:
        """Stores the requests of a lane from ``first`` up to but without ``upto``, unless that was done before."""
        [row] = await self._pool.fetch(
            _REPLAY, lane, first, upto, sent_at, columns.flush, *push_arguments(columns), columns.version,
            limit_s=limit_s or self._limit_s,
        )  # fmt: skip
        return Replayed(row["replayed"], row["unknown"] or (), row["stale"])

    async def forget(self, lanes: Sequence[UUID]) -> None:
        """Forgets how far the lanes of a file are stored, once it is gone."""
        await self._pool.fetch(_FORGET, lanes)

    async def commit_something(self) -> None:
        """Returns when a commit has waited for all that commits wait for here; nothing is changed."""
        await self._pool.fetch(_COMMIT_SOMETHING)
