"""The stored procedures of SQS as methods: columns in, frozen values out."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from queen.postgres.pool import Pool
from queen.simple_mq.sqs_requests import SqsFigures, SqsMove, SqsOverview, SqsQueue, SqsStatistics

_SWEPT_QUEUES_MAX = 200
#: Maximum of messages of one step of a removal or a move.
_STEP, _MOVE_STEP = 1000, 500
#: Pause between two purges of a queue, as SQS has it.
_PURGE_PAUSE_S = 60

_SEND = "SELECT * FROM simple_mq.sqs_send_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)"
_REPLAY = "SELECT simple_mq.sqs_replay_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) AS replayed"
_RECEIVE = "SELECT * FROM simple_mq.sqs_receive_v1($1, $2, $3, $4, $5)"
_GIVE_BACK = "SELECT simple_mq.sqs_give_back_v1($1, $2, $3)"
_DELETE = "SELECT * FROM simple_mq.sqs_delete_v1($1, $2, $3)"
_CHANGE = "SELECT * FROM simple_mq.sqs_change_visibility_v1($1, $2, $3, $4)"
_CREATE = (
    "SELECT queue_id, queue_name, fifo, attributes::text, tags::text, created_at, modified_at"
    " FROM simple_mq.sqs_create_queue_v1($1, $2, $3, $4::text::jsonb, $5::text::jsonb)"
)
_FIND = (
    "SELECT queue_id, queue_name, fifo, attributes::text, tags::text, created_at, modified_at"
    " FROM simple_mq.sqs_find_queue_v1($1)"
)
_HAS_GROUP = "SELECT simple_mq.sqs_has_group_v1($1) AS found"
_NAMES = "SELECT * FROM simple_mq.sqs_names_v1($1)"
_LIST = "SELECT * FROM simple_mq.sqs_list_queues_v1($1, $2, $3)"
_SOURCES = "SELECT * FROM simple_mq.sqs_list_sources_v1($1, $2, $3)"
_SET = "SELECT simple_mq.sqs_set_attributes_v1($1, $2::text::jsonb) AS known"
_TAG = "SELECT simple_mq.sqs_tag_v1($1, $2::text::jsonb, $3) AS known"
_FIGURES = "SELECT * FROM simple_mq.sqs_figures_v1($1)"
_DELETE_QUEUE = "SELECT simple_mq.sqs_delete_queue_v1($1) AS known"
_PURGE_QUEUE = "SELECT simple_mq.sqs_purge_queue_v1($1, $2, $3) AS outcome"
_START_MOVE = "SELECT simple_mq.sqs_start_move_v1($1, $2, $3, $4) AS outcome"
_LIST_MOVES = (
    "SELECT move_id, source_id, destination_id, per_s, status, failure, started_at, to_move, moved"
    " FROM simple_mq.sqs_list_moves_v1($1, $2)"
)
_CANCEL_MOVE = "SELECT * FROM simple_mq.sqs_cancel_move_v1($1)"
_MOVE = "SELECT * FROM simple_mq.sqs_move_v1($1, $2)"
_GAUGES = "SELECT * FROM simple_mq.sqs_gauges_v1($1)"
_OVERVIEW = "SELECT * FROM simple_mq.sqs_overview_v1($1, $2, $3)"
_PEEK = "SELECT * FROM simple_mq.sqs_peek_v1($1, $2, $3, $4)"
_COUNT = "SELECT count(*) AS queues FROM simple_mq.sqs_queues"
_OUTCOMES = "SELECT queue_id, operation, total FROM simple_mq.outcomes WHERE queue_id = ANY($1) ORDER BY 1, 2"
_SWEEP = "SELECT * FROM simple_mq.sqs_sweep_v1($1)"
_EXPIRE = "SELECT simple_mq.sqs_expire_v1($1, $2) AS removed"
_FORGET = "SELECT simple_mq.sqs_forget_v1($1, $2) AS removed"

_texts = msgspec.json.Decoder(dict[str, str])


class SendColumns(Struct):
    """The arguments of one call of sends: see ``sql/procedures/simple_mq/sqs_send.sql``."""

    flush: UUID
    queue: list[UUID] = []
    request: list[int] = []
    data: list[str] = []
    attributes: list[bytes | None] = []
    key_id: list[str | None] = []
    delay: list[int | None] = []
    group: list[str | None] = []
    deduplication: list[str | None] = []


class ReplayColumns(Struct):
    """The messages of one call of replayed sends: see ``sql/procedures/simple_mq/sqs_replay.sql``."""

    queue: list[UUID] = []
    sent_id: list[UUID] = []
    data: list[str] = []
    attributes: list[bytes | None] = []
    key_id: list[str | None] = []
    delay: list[int | None] = []
    group: list[str | None] = []
    deduplication: list[str | None] = []


class ReceiveColumns(Struct):
    """The arguments of one call of receives: see ``sql/procedures/simple_mq/sqs_receive.sql``."""

    queue: list[UUID]
    limit: list[int]
    visibility: list[int | None]
    attempt: list[str | None]
    in_flight_max: list[int]


class StoredMessage(Struct, frozen=True):
    """A message as it is stored, perhaps encrypted."""

    message_id: UUID
    data: str
    attributes: bytes | None
    key_id: str | None
    delivery_count: int
    created_at: datetime
    first_received_at: datetime | None
    group: str | None
    deduplication_id: str | None
    source: UUID | None
    fifo: bool
    sent_id: UUID | None


class OfQueue(Struct, frozen=True):
    """What a call of receives says of a queue.

    Attributes:
        is_full: it had as many messages in flight as it may.
        dead: messages that went to the dead-letter queue ``dlq_id``.
        ready_in: as of ``queen.simple_mq.storage.Polled``.
    """

    queue_id: UUID
    known: bool
    is_full: bool
    dlq_id: UUID | None
    dead: int
    ready_in: float | None


class SqsStore:
    """The procedures for messages; they raise what those of ``queen.engine.ports.Database`` raise."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def send(self, columns: SendColumns) -> list[tuple[UUID | None, bool, UUID | None]]:
        """Stores messages; may be repeated.

        Returns:
            The id of each (``None``: there is no such queue), whether the queue is FIFO, and the id that the sender of
            the first one was told, if that is another.
        """
        c = columns
        rows = await self._pool.fetch(
            _SEND, c.flush, c.queue, c.request, c.data, c.attributes, c.key_id, c.delay, c.group, c.deduplication
        )
        return [(message_id, fifo, sent_id) for _, message_id, fifo, sent_id in rows]

    async def receive(self, columns: ReceiveColumns) -> tuple[list[list[StoredMessage]], dict[UUID, OfQueue]]:
        """Takes messages: those of each receive, and what there is to say of each queue."""
        c = columns
        rows = await self._pool.fetch(_RECEIVE, c.queue, c.limit, c.visibility, c.attempt, c.in_flight_max)
        messages: list[list[StoredMessage]] = [[] for _ in c.queue]
        queues: dict[UUID, OfQueue] = {}
        for receive, *of_queue in rows:
            if receive is None:
                queues[of_queue[0]] = OfQueue(*of_queue[:6])
            else:
                messages[receive - 1].append(StoredMessage(*of_queue[6:]))
        return messages, queues

    async def give_back(self, queue: UUID, messages: Sequence[tuple[UUID, int]]) -> None:
        """Takes receives back as if they had never been made."""
        await self._pool.fetch(_GIVE_BACK, queue, [id_ for id_, _ in messages], [count for _, count in messages])

    async def delete(
        self, queues: Sequence[UUID], messages: Sequence[UUID], counts: Sequence[int]
    ) -> list[tuple[str, bool]]:
        """Removes messages: the outcome of each, and whether another message of its group is visible now."""
        rows = await self._pool.fetch(_DELETE, queues, messages, counts)
        return [(outcome, freed or False) for _, outcome, freed in rows]

    async def change_visibility(
        self, queues: Sequence[UUID], messages: Sequence[UUID], counts: Sequence[int], seconds: Sequence[int]
    ) -> list[str]:
        """Changes how long messages stay hidden: the outcome of each. May be repeated."""
        rows = await self._pool.fetch(_CHANGE, queues, messages, counts, seconds)
        return [outcome for _, outcome in rows]


class SqsSpoolStore:
    """The procedure that replays spooled sends.

    Args:
        pool: connections of the replay.
        limit_s: default time limit of a call; if omitted, that of the pool.
    """

    def __init__(self, pool: Pool, limit_s: float | None = None) -> None:
        self._pool, self._limit_s = pool, limit_s

    async def replay(
        self, lane: UUID, first: int, upto: int, sent_at: datetime, columns: ReplayColumns, limit_s: float | None
    ) -> int:
        """Stores the sends of a lane from ``first`` to before ``upto``, unless they are stored; its position."""
        c = columns
        [row] = await self._pool.fetch(
            _REPLAY, lane, first, upto, sent_at, c.queue, c.sent_id, c.data, c.attributes, c.key_id, c.delay, c.group,
            c.deduplication, limit_s=limit_s or self._limit_s,
        )  # fmt: skip
        return int(row["replayed"])


class SqsAdministrationStore:
    """The procedures for administration, on connections of their own."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def create_queue(
        self, queue: UUID, name: str, attributes: Mapping[str, str], tags: Mapping[str, str], *, fifo: bool
    ) -> SqsQueue:
        """The queue of the name; ``queue`` is its id if this call has made it, also if it is repeated."""
        [row] = await self._pool.fetch(_CREATE, queue, name, fifo, _json(attributes), _json(tags))
        return _queue(row)

    async def find_queue(self, name: str) -> SqsQueue | None:
        """The queue of the name."""
        rows = await self._pool.fetch(_FIND, name)
        return _queue(rows[0]) if rows else None

    async def has_group(self, group: str) -> bool:
        """Whether there are queues of a group here."""
        [row] = await self._pool.fetch(_HAS_GROUP, group)
        return bool(row["found"])

    async def names(self, queues: Sequence[UUID]) -> dict[UUID, str]:
        """The names of those queues that there are."""
        return {row[0]: row[1] for row in await self._pool.fetch(_NAMES, queues)}

    async def list_queues(self, prefix: str, after: str, limit: int) -> list[str]:
        """Names that begin so, sorted, behind ``after``."""
        return [row[0] for row in await self._pool.fetch(_LIST, prefix, after, limit)]

    async def dead_letter_sources(self, queue: UUID, after: str, limit: int) -> list[str]:
        """Names of queues whose dead letters go to this one, sorted, behind ``after``."""
        return [row[0] for row in await self._pool.fetch(_SOURCES, queue, after, limit)]

    async def set_attributes(self, queue: UUID, attributes: Mapping[str, str]) -> bool:
        """Sets attributes, and removes those with an empty value; whether there is such a queue."""
        [row] = await self._pool.fetch(_SET, queue, _json(attributes))
        return bool(row["known"])

    async def tag_queue(self, queue: UUID, tags: Mapping[str, str], removed: Sequence[str] = ()) -> bool:
        """Sets and removes tags; whether there is such a queue."""
        [row] = await self._pool.fetch(_TAG, queue, _json(tags), list(removed))
        return bool(row["known"])

    async def figures(self, queue: UUID) -> SqsFigures | None:
        """How many messages a queue has; ``None`` if there is no such queue."""
        rows = await self._pool.fetch(_FIGURES, queue)
        return SqsFigures(*rows[0]) if rows else None

    async def statistics(self, queues_max: int) -> tuple[int, list[SqsStatistics]]:
        """The number of queues, and the statistics of at most so many of them, by name."""
        [row] = await self._pool.fetch(_COUNT)
        found = await self._pool.fetch(_GAUGES, queues_max)
        counts = await self._counts([queue for queue, *_ in found])
        return row["queues"], [_statistics(row, counts) for row in found]

    async def overview(self, search: str, after: str, limit: int) -> list[SqsOverview]:
        """Queues whose names contain a text, sorted, behind ``after``."""
        found = await self._pool.fetch(_OVERVIEW, search, after, limit)
        counts = await self._counts([queue for queue, *_ in found])
        return [SqsOverview(_statistics(row, counts), row["dlq_name"]) for row in found]

    async def _counts(self, queues: Sequence[UUID]) -> dict[UUID, dict[str, int]]:
        """The counters of queues, by operation."""
        counts: dict[UUID, dict[str, int]] = {queue: {} for queue in queues}
        for queue, operation, total in await self._pool.fetch(_OUTCOMES, queues):
            counts[queue][operation] = total
        return counts

    async def peek(
        self, queue: UUID, after: UUID | None, limit: int, bytes_max: int
    ) -> list[tuple[str, datetime, StoredMessage]]:
        """Messages in the order in which they were sent, behind ``after``: place, when it is visible, the message."""
        rows = await self._pool.fetch(_PEEK, queue, after, limit, bytes_max)
        return [(place, visible_at, StoredMessage(*message)) for place, visible_at, *message in rows]

    async def delete_queue(self, queue: UUID) -> bool:
        """Deletes a queue and its messages; whether there was one."""
        [row] = await self._pool.fetch(_DELETE_QUEUE, queue)
        return bool(row["known"])

    async def purge_queue(self, queue: UUID, store: UUID) -> str:
        """``purged``, ``too_soon`` or ``unknown``; may be repeated with the same new ``store``."""
        [row] = await self._pool.fetch(_PURGE_QUEUE, queue, store, _PURGE_PAUSE_S)
        return str(row["outcome"])

    async def start_move(self, move: UUID, source: UUID, destination: UUID | None, per_s: int | None) -> str:
        """``started``, ``running`` or ``unknown``; may be repeated with the same new id."""
        [row] = await self._pool.fetch(_START_MOVE, move, source, destination, per_s)
        return str(row["outcome"])

    async def list_moves(self, source: UUID, limit: int) -> list[SqsMove]:
        """Tasks of a source, newest first."""
        return [SqsMove(*row) for row in await self._pool.fetch(_LIST_MOVES, source, limit)]

    async def cancel_move(self, move: UUID) -> tuple[bool, int] | None:
        """Whether the task is cancelled now, and how many messages it has moved; ``None`` if there is no such task."""
        rows = await self._pool.fetch(_CANCEL_MOVE, move)
        return (rows[0]["cancelled"], rows[0]["moved"]) if rows else None

    async def move(self, *, routes: bool) -> tuple[int, Sequence[UUID]] | None:
        """A step of a task: how many messages it has moved, and to which queues; ``None`` if none can go on now.

        ``routes``: what has become visible comes first, and is moved by the next step.
        """
        rows = await self._pool.fetch(_MOVE, _MOVE_STEP, routes)
        return (rows[0]["moved"], rows[0]["destinations"]) if rows else None

    async def sweep(self) -> list[tuple[UUID, UUID | None, int]]:
        """Queues in which time has brought something about: each with dead-letter queue, and how many went there."""
        return [tuple(row) for row in await self._pool.fetch(_SWEEP, _SWEPT_QUEUES_MAX)]

    async def tidy(self, not_after: datetime | None = None, *, forgets: bool = True) -> None:
        """Removes old messages, deduplication ids and attempts (if it ``forgets``); ``not_after`` bounds the clock."""
        for statement in (_EXPIRE, _FORGET) if forgets else (_EXPIRE,):
            while (await self._pool.fetch(statement, not_after, _STEP))[0]["removed"]:
                pass


def _json(texts: Mapping[str, str]) -> str:
    return msgspec.json.encode(texts).decode()


def _statistics(row: Any, counts: Mapping[UUID, Mapping[str, int]]) -> SqsStatistics:  # noqa: ANN401 - a record
    queue, name, visible, in_flight, delayed, age, *_ = row
    return SqsStatistics(name, visible, in_flight, delayed, age, counts[queue])


def _queue(row: Any) -> SqsQueue:  # noqa: ANN401 - a record
    queue_id, name, fifo, attributes, tags, created_at, modified_at = row
    return SqsQueue(queue_id, name, fifo, _texts.decode(attributes), _texts.decode(tags), created_at, modified_at)
