"""Lists, shows, deletes and dead-letters single messages, for people."""

from asyncpg.pgproto.pgproto import UUID as FastUUID  # noqa: N811 - made from 16 bytes, as in queen.postgres.store

from queen.core.administration import (
    PAGE_BYTES,
    GivenUp,
    MessageDetail,
    MessageFilter,
    MessageKey,
    MessageRow,
    Period,
)
from queen.log import ids
from queen.postgres.pool import Pool
from queen.postgres.statement import call

_LIST = call("list_messages_v1", 11)
_GET = call("get_message_v1", 3)
_DELETE_TRACES = "SELECT queen.delete_traces_v1($1, $2, $3, $4) AS n"
_DELETE = "SELECT queen.delete_message_v1($1, $2, $3) AS existed"
_MOVE = call("move_to_dead_letters_v1", 5)

#: Maximum of messages that a list by status examines: the status of each is computed, not stored.
SCAN_MAX = 10_000
#: Traces that one transaction deletes.
_TRACES_STEP = 5000


def address(key: MessageKey) -> tuple[int, int | None, FastUUID]:
    """Partition, offset if the message is named by its id, and hash of its transaction id."""
    place = ids.parse_message_id(key.transaction_id)
    offset = place[1] if place is not None and place[0] == key.part_id else None
    return key.part_id, offset, FastUUID(ids.transaction_hash(key.transaction_id))


class MessageStore:
    """Implements ``queen.engine.administration.Messages``."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def page(self, wanted: MessageFilter, period: Period, limit: int, offset: int) -> list[MessageRow]:
        """A page of messages, newest first; with a status, of the newest ``SCAN_MAX`` that match the rest."""
        rows = await self._pool.fetch(
            _LIST, wanted.queue, wanted.partition, wanted.namespace, wanted.task, wanted.status, period.begin,
            period.end, limit, offset, SCAN_MAX, PAGE_BYTES,
        )  # fmt: skip
        return [MessageRow(*row) for row in rows]

    async def get(self, key: MessageKey) -> MessageDetail | None:
        """One message, or ``None``."""
        rows = await self._pool.fetch(_GET, *address(key))
        return MessageDetail(*rows[0]) if rows else None

    async def delete_traces(self, key: MessageKey) -> bool:
        """Deletes a page of the traces of a message; whether there may be more."""
        [row] = await self._pool.fetch(_DELETE_TRACES, *address(key), _TRACES_STEP)
        return bool(row["n"] == _TRACES_STEP)

    async def delete(self, key: MessageKey) -> bool:
        """Deletes a message for all groups; false if it did not exist."""
        [row] = await self._pool.fetch(_DELETE, *address(key))
        return bool(row["existed"])

    async def give_up(self, key: MessageKey, group: str | None, error: str) -> GivenUp:
        """Moves a message to the dead letters of a group, or of all groups that have not done it."""
        [row] = await self._pool.fetch(_MOVE, *address(key), group, error)
        return GivenUp(*row)
