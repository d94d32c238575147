"""Dead letters: listed, replayed, deleted."""

from queen.core import ids
from queen.core.administration import DeadLetter, DeadLetterFilter, DeadLetterRow, MessageKey, Replayed
from queen.db.pool import Pool
from queen.db.statement import call
from queen.db.store import push_arguments
from queen.engine.ports import PushColumns

_LIST = call("list_dead_letters_v1", 7)
_COUNT = "SELECT queen.count_dead_letters_v1($1, $2, $3, $4, $5, $6) AS n"
_SUMMARIZE = call("summarize_dead_letters_v1", 1)
_FIND = call("find_dead_letter_v1", 4)
_REPLAY = call("replay_dead_letter_v1", 13)
_DELETE = "SELECT queen.delete_dead_letters_v1($1, $2, $3) AS n"

#: Counting goes no further.
COUNT_MAX = 100_000


class DeadLetterStore:
    """Implements ``queen.engine.administration.DeadLetters``."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def page(self, wanted: DeadLetterFilter, limit: int, offset: int) -> list[DeadLetterRow]:
        """A page of dead letters, newest failure first."""
        w = wanted
        rows = await self._pool.fetch(_LIST, w.queue, w.group, w.partition, w.begin, w.end, limit, offset)
        return [DeadLetterRow(*row) for row in rows]

    async def count(self, wanted: DeadLetterFilter) -> int:
        """How many match; counting stops at ``COUNT_MAX``."""
        w = wanted
        [row] = await self._pool.fetch(_COUNT, w.queue, w.group, w.partition, w.begin, w.end, COUNT_MAX)
        return int(row["n"])

    async def find(self, number: int) -> DeadLetter | None:
        """A dead letter by its number."""
        rows = await self._pool.fetch(_FIND, number, None, None, None)
        return DeadLetter(*rows[0]) if rows else None

    async def find_newest(self, key: MessageKey) -> DeadLetter | None:
        """The newest dead letter of a message, which itself may be gone."""
        place = ids.parse_message_id(key.transaction_id)
        offset = place[1] if place is not None and place[0] == key.part_id else None
        rows = await self._pool.fetch(_FIND, None, key.part_id, offset, key.transaction_id)
        return DeadLetter(*rows[0]) if rows else None

    async def replay(self, number: int, columns: PushColumns, *, again: bool) -> Replayed:
        """Pushes the one message of ``columns`` and deletes the dead letter: both or nothing."""
        [row] = await self._pool.fetch(
            _REPLAY, number, columns.flush, again, *push_arguments(columns), columns.version, columns.limited
        )
        return Replayed(*row)

    async def summarize(self, queue: str | None) -> tuple[int, list[tuple[str, int]]]:
        """Partitions of the newest dead letters, and their commonest error texts with how many have them."""
        [row] = await self._pool.fetch(_SUMMARIZE, queue)
        return row["partitions"], list(zip(row["error"] or (), row["number"] or (), strict=True))

    async def delete(self, number: int) -> bool:
        """Deletes one; false if there was none."""
        [row] = await self._pool.fetch(_DELETE, number, None, None)
        return bool(row["n"])

    async def purge(self, queue: str, group: str | None) -> int:
        """Deletes those of a queue, of one group if it is named; returns how many."""
        [row] = await self._pool.fetch(_DELETE, None, queue, group)
        return int(row["n"])
