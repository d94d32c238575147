"""Lists, replays and deletes dead letters."""

from collections.abc import Sequence

from queen.core.administration import (
    PAGE_BYTES,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterRow,
    ErrorRow,
    Failure,
    MessageKey,
    Replayed,
)
from queen.log import ids
from queen.log.append import AppendBatch
from queen.postgres.pool import Pool
from queen.postgres.statement import call
from queen.postgres.store import push_arguments

_LIST = call("list_dead_letters_v1", 10)
_COUNT = "SELECT queen.count_dead_letters_v1($1, $2, $3, $4, $5, $6, $7) AS n"
_SUMMARIZE = call("summarize_dead_letters_v1", 1)
_FIND = call("find_dead_letter_v1", 4)
_REPLAY = call("replay_dead_letter_v1", 13)
_DELETE = "SELECT queen.delete_dead_letter_v1($1) AS deleted"
_PURGE = call("delete_dead_letters_v1", 7)
_MATCH = call("match_dead_letters_v1", 7)
_GROUP = call("group_dead_letters_v1", 8)

#: Lists examine this many of the newest ones.
SCAN_MAX = 100_000
#: Errors are counted over this many of the newest ones.
GROUPED_MAX = 10_000
#: Maximum of dead letters that one transaction of a purge examines.
PURGE_STEP = 5000


class DeadLetterStore:
    """Implements ``queen.engine.administration.DeadLetters``."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def page(self, wanted: DeadLetterFilter, limit: int, offset: int) -> list[DeadLetterRow]:
        """A page of dead letters, newest failure first; shorter if they are large."""
        w = wanted
        rows = await self._pool.fetch(
            _LIST, w.queue, w.group, w.partition, w.error, w.begin, w.end, SCAN_MAX, limit, offset, PAGE_BYTES
        )
        return [DeadLetterRow(*row) for row in rows]

    async def count(self, wanted: DeadLetterFilter) -> int:
        """How many of the newest ``SCAN_MAX`` match."""
        w = wanted
        [row] = await self._pool.fetch(_COUNT, w.queue, w.group, w.partition, w.error, w.begin, w.end, SCAN_MAX)
        return int(row["n"])

    async def find(self, number: int) -> DeadLetter | None:
        """A dead letter by its number."""
        rows = await self._pool.fetch(_FIND, number, None, None, None)
        return DeadLetter(*rows[0]) if rows else None

    async def find_newest(self, key: MessageKey) -> DeadLetter | None:
        """The newest dead letter of a message, which itself may be removed."""
        place = ids.parse_message_id(key.transaction_id)
        offset = place[1] if place is not None and place[0] == key.part_id else None
        rows = await self._pool.fetch(_FIND, None, key.part_id, offset, key.transaction_id)
        return DeadLetter(*rows[0]) if rows else None

    async def replay(self, number: int, batch: AppendBatch, *, again: bool) -> Replayed:
        """Pushes the one message of ``batch`` and deletes the dead letter: both or nothing."""
        [row] = await self._pool.fetch(
            _REPLAY, number, batch.flush, again, *push_arguments(batch), batch.version, batch.limited
        )
        return Replayed(*row)

    async def summarize(self, queue: str | None) -> tuple[int, list[tuple[str, int]]]:
        """Partitions of the newest dead letters, and their most frequent error texts with counts."""
        [row] = await self._pool.fetch(_SUMMARIZE, queue)
        return row["partitions"], list(zip(row["error"] or (), row["number"] or (), strict=True))

    async def delete(self, number: int) -> bool:
        """Deletes one; false if it did not exist."""
        [row] = await self._pool.fetch(_DELETE, number)
        return bool(row["deleted"])

    async def errors(self, wanted: DeadLetterFilter, slots: int, limit: int) -> list[ErrorRow]:
        """The newest ``GROUPED_MAX`` that match, by error, commonest first."""
        w = wanted
        rows = await self._pool.fetch(
            _GROUP, w.queue, w.group, w.partition, w.begin, w.end, GROUPED_MAX, slots, limit
        )  # fmt: skip
        return [ErrorRow(*row) for row in rows]

    async def match(
        self, wanted: DeadLetterFilter, after: Failure | None, step: int
    ) -> tuple[Sequence[int], Failure | None]:
        """The next ones of a queue that match, from the oldest failure on; it looks at ``step``.

        Returns their numbers, and where to continue; ``None``: that was all.
        """
        w, place = wanted, after or Failure(None, None)
        [row] = await self._pool.fetch(
            _MATCH, w.queue, w.group, w.partition, w.error, place.failed_at, place.id, step
        )  # fmt: skip
        return row["numbers"] or (), None if row["id"] is None else Failure(row["failed_at"], row["id"])

    async def purge(self, wanted: DeadLetterFilter, after: Failure | None) -> tuple[int, Failure | None]:
        """Deletes the next ones of a queue that match, from the newest failure on.

        Returns their number, and where to continue; ``None``: that was all.
        """
        w, place = wanted, after or Failure(None, None)
        [row] = await self._pool.fetch(
            _PURGE, w.queue, w.group, w.partition, w.error, place.failed_at, place.id, PURGE_STEP
        )  # fmt: skip
        return row["deleted"], None if row["id"] is None else Failure(row["failed_at"], row["id"])
