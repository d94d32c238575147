"""The procedures that move the outbox into the log."""

from queen.engine.ports import Moved, OutboxMessage, OutboxRead
from queen.log.append import AppendBatch
from queen.postgres.pool import Pool
from queen.postgres.statement import call
from queen.postgres.store import push_arguments

_READ = call("read_outbox_v1", 2)
_MOVE = call("move_outbox_v1", 16)
_RESTART = call("restart_outbox_v1", 0)


class OutboxStore:
    """Implements ``queen.engine.ports.OutboxDatabase`` over a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def restart(self) -> None:
        """Makes the next read look at all rows."""
        await self._pool.fetch(_RESTART)

    async def read(self, messages: int, size: int) -> OutboxRead | None:
        """The next messages: at most so many, and so many bytes of payloads, but one at least; ``None``: none wait."""
        rows = await self._pool.fetch(_READ, messages, size)
        if not rows:
            return None
        end = rows.pop()
        last = rows[-1]
        return OutboxRead(
            end["moves"], end["target"], end["done"], last["xid"], last["seq"],
            [OutboxMessage(row["queue"], row["partition"], row["transaction_id"], row["payload"]) for row in rows],
        )  # fmt: skip

    async def move(self, read: OutboxRead, batch: AppendBatch) -> Moved:
        """Moves the messages of a read, laid out in a batch."""
        [row] = await self._pool.fetch(
            _MOVE, read.moves, read.target, read.done, read.last_xid, read.last_seq, len(read.messages), batch.flush,
            *push_arguments(batch), batch.version,
        )  # fmt: skip
        return Moved(row["moved"], row["unknown"] or (), row["stale"])
