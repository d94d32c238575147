"""The stored procedures of simple-mq as methods: columns in, frozen values out."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from queen.postgres.pool import Pool
from queen.simple_mq.requests import (
    NO_QUEUE,
    Dequeued,
    Enqueued,
    Extended,
    ListedQueue,
    Message,
    NewQueue,
    QueueInfo,
    QueueStatistics,
    Requeued,
    RequeuedAll,
    Routed,
    Statistics,
)

#: Maximum of rows that one call of a bulk procedure moves or removes.
STEP = 10_000
_REQUEUE_STEP = 500
_SWEPT_QUEUES_MAX = 200

_ENQUEUE = "SELECT * FROM simple_mq.enqueue_v1($1, $2, $3, $4, $5, $6)"
_DEQUEUE = "SELECT * FROM simple_mq.dequeue_v1($1, $2)"
_GIVE_BACK = "SELECT simple_mq.give_back_v1($1, $2, $3)"
_ACKNOWLEDGE = "SELECT * FROM simple_mq.acknowledge_v1($1, $2)"
_EXTEND = "SELECT * FROM simple_mq.extend_visibility_v1($1, $2, $3)"
_CREATE = "SELECT simple_mq.create_queue_v1($1, $2, $3, $4, $5, $6, $7) AS made"
_DESCRIBE = "SELECT * FROM simple_mq.describe_queue_v1($1)"
_LIST = "SELECT * FROM simple_mq.list_queues_v1($1, $2, $3)"
_DELETE = "SELECT simple_mq.delete_queue_v1($1) AS outcome"
_PURGE = "SELECT simple_mq.purge_v1($1) AS removed"
_REQUEUE = "SELECT * FROM simple_mq.requeue_v1($1, $2)"
_REQUEUE_ALL = "SELECT * FROM simple_mq.requeue_all_v1($1, $2)"
_PEEK = "SELECT * FROM simple_mq.peek_v1($1, $2, $3, $4)"
_SWEEP = "SELECT * FROM simple_mq.sweep_v1($1)"
_TIDY = "SELECT simple_mq.tidy_v1($1)"
_QUEUE_STATISTICS = "SELECT * FROM simple_mq.gauges_v1($1)"
_COUNT = "SELECT simple_mq.count_outcomes_v1($1, $2, $3, $4)"
_QUEUES = "SELECT count(*) AS queues FROM simple_mq.queues"
_OUTCOMES = (
    "SELECT queue_id, operation, outcome, total FROM simple_mq.outcomes WHERE queue_id = ANY($1) ORDER BY 1, 2, 3"
)


class EnqueueColumns(Struct):
    """The arguments of one enqueue call: see ``sql/procedures/simple_mq/enqueue.sql``."""

    flush: UUID
    queue: list[UUID] = []
    request: list[int] = []
    group: list[str | None] = []
    data: list[str] = []
    traceparent: list[str | None] | None = None


class Polled(Struct, frozen=True):
    """The outcome of a call for polls.

    Attributes:
        answers: one per poll.
        ready_in: for each poll that got fewer messages than it asked for, seconds until one becomes visible by itself;
            ``None``: not before an enqueue; 0 or less: one is visible, but another transaction has locked it.
        routed: messages that were moved to dead-letter queues first.
    """

    answers: list[Dequeued]
    ready_in: list[float | None]
    routed: list[Routed]


class SimpleMqStore:
    """The procedures for messages; they raise what those of ``queen.engine.ports.Database`` raise."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def enqueue(self, columns: EnqueueColumns) -> list[Enqueued]:
        """Stores messages; one answer per request. May be sent again."""
        c = columns
        rows = await self._pool.fetch(_ENQUEUE, c.flush, c.queue, c.request, c.group, c.data, c.traceparent)
        return [Enqueued(row["outcome"], row["message_ids"] or ()) for row in rows]

    async def dequeue(self, queues: Sequence[UUID], limits: Sequence[int]) -> Polled:
        """Takes messages for polls."""
        rows = await self._pool.fetch(_DEQUEUE, queues, limits)
        messages: list[list[Message]] = [[] for _ in queues]
        known: dict[UUID, bool] = {}
        routed: list[Routed] = []
        ready_in: dict[UUID, float | None] = {}
        for poll, queue, exists, dlq_id, dead, stuck, ready, *message in rows:
            if poll is not None:
                messages[poll - 1].append(Message(*message))
                continue
            known[queue], ready_in[queue] = exists, ready
            if dead or stuck:
                routed.append(Routed(queue, dlq_id, dead, stuck))
        answers = [Dequeued(known[queue], got) for queue, got in zip(queues, messages, strict=True)]
        return Polled(answers, [ready_in[queue] for queue in queues], routed)

    async def give_back(self, queue: UUID, messages: Sequence[Message]) -> None:
        """Takes deliveries back as if they had never been made."""
        ids, deliveries = [m.message_id for m in messages], [m.delivery_count for m in messages]
        await self._pool.fetch(_GIVE_BACK, [queue] * len(messages), ids, deliveries)

    async def acknowledge(self, queues: Sequence[UUID], messages: Sequence[UUID]) -> list[tuple[str, bool]]:
        """Removes messages: the result of each, and whether another message of its group is visible now."""
        rows = await self._pool.fetch(_ACKNOWLEDGE, queues, messages)
        found: list[tuple[str, bool]] = [("missing", False)] * len(messages)
        for ack, outcome, freed in rows:
            found[ack - 1] = outcome, freed
        return found

    async def extend_visibility(
        self, queues: Sequence[UUID], messages: Sequence[UUID], seconds: Sequence[int]
    ) -> list[Extended]:
        """Extends or ends the visibility timeout of messages in flight."""
        rows = await self._pool.fetch(_EXTEND, queues, messages, seconds)
        found = {request: Extended(outcome, visible_at) for request, outcome, visible_at in rows}
        return [found[number] for number in range(1, len(messages) + 1)]


class SimpleMqAdministrationStore:
    """The procedures for administration, on connections of their own."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def create_queue(self, queue: NewQueue, queues_max: int) -> bool:
        """Creates a queue; may be repeated; false if there are too many. ``queues_max``: 0 for no limit."""
        q = queue
        [row] = await self._pool.fetch(
            _CREATE, q.queue_id, q.name, q.size, q.visibility_timeout, q.max_deliveries, q.max_message_bytes, queues_max
        )
        return bool(row["made"])

    async def describe_queue(self, queue: UUID) -> QueueInfo | None:
        """Settings and number of messages."""
        rows = await self._pool.fetch(_DESCRIBE, queue)
        return QueueInfo(*rows[0]) if rows else None

    async def list_queues(self, search: str, after: UUID | None, limit: int) -> list[ListedQueue]:
        """A page of queues whose names contain a text in lower case, by id."""
        rows = await self._pool.fetch(_LIST, search, after, limit)
        return [ListedQueue(queue, parent, QueueInfo(*rest)) for queue, parent, *rest in rows]

    async def delete_queue(self, queue: UUID) -> str:
        """``deleted``, ``unknown``, or the id of the queue whose dead-letter queue it is."""
        [row] = await self._pool.fetch(_DELETE, queue)
        return str(row["outcome"])

    async def purge(self) -> bool:
        """Removes messages of deleted queues; true if there may be more."""
        [row] = await self._pool.fetch(_PURGE, STEP)
        return bool(row["removed"] >= STEP)

    async def requeue(self, queue: UUID, message: UUID) -> Requeued:
        """Requeues a message."""
        rows = await self._pool.fetch(_REQUEUE, queue, message)
        return Requeued(*rows[0])

    async def requeue_all(self, queue: UUID) -> RequeuedAll:
        """Requeues some messages of a dead-letter queue; 0 if none is left, or there is no room."""
        rows = await self._pool.fetch(_REQUEUE_ALL, queue, _REQUEUE_STEP)
        return RequeuedAll(*rows[0])

    async def peek(
        self, queue: UUID, after: datetime | None, after_id: UUID | None, limit: int
    ) -> Sequence[Message] | None:
        """A page of messages; ``None`` if there is no such queue."""
        rows = await self._pool.fetch(_PEEK, queue, after, after_id, limit)
        if rows and not rows[0]["known"]:
            return None
        return [Message(*message) for _, *message in rows]

    async def sweep(self) -> list[Routed]:
        """Moves exhausted messages to dead-letter queues, also of queues without polls."""
        return [Routed(*row) for row in await self._pool.fetch(_SWEEP, _SWEPT_QUEUES_MAX)]

    async def tidy(self, not_after: datetime | None = None) -> None:
        """Removes expired data; ``not_after`` is an upper bound of PostgreSQL's clock."""
        while await self.purge():
            pass
        await self._pool.fetch(_TIDY, not_after)

    async def statistics(self, queues_max: int) -> Statistics:
        """Statistics and outcomes of the oldest queues, and the outcomes without a queue."""
        [row] = await self._pool.fetch(_QUEUES)
        of_queues = [QueueStatistics(*row) for row in await self._pool.fetch(_QUEUE_STATISTICS, queues_max)]
        shown = [each.queue for each in of_queues] + [NO_QUEUE]
        outcomes = [tuple(row) for row in await self._pool.fetch(_OUTCOMES, shown)]
        return Statistics(row["queues"], of_queues, outcomes)

    async def count_outcomes(self, numbers: Mapping[tuple[UUID, str, str], int]) -> None:
        """Adds to the counters, by queue, operation and outcome."""
        queues, operations, outcomes = zip(*numbers, strict=True)
        await self._pool.fetch(_COUNT, queues, operations, outcomes, list(numbers.values()))
