"""The procedures that replay the spool."""

from datetime import datetime
from uuid import UUID

from queen.db.pool import Pool
from queen.db.store import call, push_arguments
from queen.engine.ports import PushColumns, Replayed

_REPLAY = call("replay_spool_v1", 14)
_FORGET = call("forget_spool_file_v1", 1)


class SpoolStore:
    """Implements ``queen.engine.ports.SpoolDatabase``."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def replay(
        self, file: UUID, first: int, upto: int, sent_at: datetime | None, columns: PushColumns
    ) -> Replayed:
        """Stores the requests of a file from ``first`` up to but without ``upto``, unless that was done before."""
        [row] = await self._pool.fetch(
            _REPLAY, file, first, upto, sent_at, columns.flush, *push_arguments(columns), columns.version
        )
        return Replayed(row["replayed"], row["unknown"] or (), row["stale"])

    async def forget(self, file: UUID) -> None:
        """Forgets how far a file is stored, once it is gone."""
        await self._pool.fetch(_FORGET, file)
