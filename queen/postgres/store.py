"""The stored procedures as methods: columns in, frozen values out."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from asyncpg.pgproto.pgproto import UUID as FastUUID  # noqa: N811 - made from 16 bytes at a fifth of uuid.UUID's cost

from queen.core.limits import CURSORS_STEP, GROUP_BYTES_MAX, ITEMS_MAX, POP_BYTES, POP_CALL_BYTES_MAX
from queen.engine.ports import (
    AckColumns,
    AckRow,
    CompleteColumns,
    CompletedRow,
    CycleRows,
    Delivered,
    Given,
    LimitedQueue,
    Lock,
    PartitionName,
    PopColumns,
    PushOptions,
    StateColumns,
    Subscription,
    TransactionRows,
    Unserved,
    WaitingColumns,
)
from queen.log.append import AppendBatch, Appended
from queen.log.requests import Slice, StateRow, StateRows, TimerChange, TimerVerdict
from queen.postgres.group_commit import GroupCommit, Member
from queen.postgres.pool import Pool
from queen.postgres.statement import call

_EXECUTE = call("execute_transaction_v1", 24)
_EXECUTE_WITH_TIMERS = call("execute_with_timers_v1", 31)
_CYCLE = call("cycle_stream_v1", 24)
_STATE = call("read_stream_state_v1", 6)
_CHANGE_TIMERS = call("change_timers_v1", 9)
_STREAM_EXISTS = "SELECT queen.stream_exists_v1($1) AS found"
_READ_PUSH_OPTIONS = call("read_push_options_v1", 0)
_RENEW = call("renew_lease_v1", 2)
_RELEASE = call("release_leases_v1", 1)
_RESOLVE = call("resolve_partitions_v1", 3)
_DESCRIBE = call("describe_partitions_v1", 1)
_SUBSCRIBE = call("subscribe_v1", 9)
_NOW = "SELECT queen.clock() AS now"
_FIND_QUEUES = call("find_queues_v1", 2)
_FIND_SERVER_MADE = call("find_server_made_v1", 2)
_PREFETCHED = "SELECT queen.prefetched_for_v1($1, $2, $3) AS seconds"
_CURSORS_PREFETCHED = "SELECT queen.cursors_prefetched_for_v1($1, $2) AS seconds"
_FIND_LOCKED = call("find_locked_v1", 5)

#: The arguments of a push for long polls, if there are none.
_NO_WAITERS = (None,) * 5
#: Maximum of groups whose low-water mark is cached; PostgreSQL searches those of others.
_MARKS = 10_000


def _columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    return [[row[column] for row in rows] for column in range(width)]


def _timer_arguments(timers: Sequence[TimerChange]) -> list[list[Any]]:
    """The columns of timers that a transaction sets; none if there are none."""
    columns = zip(
        *[(t.queue, t.key, t.partition, t.transaction_id, t.delay_s, t.at, t.message.decode()) for t in timers],
        strict=True,
    )
    return [list(column) for column in columns]


def _hashes(column: Sequence[bytes | None]) -> list[FastUUID | None]:
    return [FastUUID(value) if value is not None else None for value in column]


def push_arguments(batch: AppendBatch) -> tuple[object, ...]:
    """The arguments of ``push_messages_v1`` from the third to the third-last."""
    b = batch
    hashes = (b.hash_part, b.hash_pos, _hashes(b.hash)) if b.hash else (None, None, None)
    return b.part, b.n, b.data, b.ends, b.ids, *hashes


def _ack_arguments(columns: AckColumns) -> tuple[object, ...]:
    c = columns
    return c.part, c.grp, c.lease, c.kind, c.first, c.last, _hashes(c.hash), c.error


def _acked(columns: AckColumns) -> int:
    """How many messages an ack call names."""
    ranges = zip(columns.first, columns.last, strict=True)
    return sum([1 if first is None or last is None else last - first + 1 for first, last in ranges])


class Store:
    """The procedures of the hot path, over a pool; implements ``queen.engine.ports.Database``.

    Args:
        pool: the connections.
        pop_bytes: data that one pop may return.
        items_max: messages that calls which share a transaction store and acknowledge.
    """

    def __init__(self, pool: Pool, pop_bytes: int = POP_BYTES, items_max: int = ITEMS_MAX) -> None:
        self._pool = pool
        self._pop_bytes = pop_bytes, max(pop_bytes, POP_CALL_BYTES_MAX)
        self._group = GroupCommit(pool, items_max)
        #: The low-water mark of each group as PostgreSQL returned it, the latest one last.
        self._marks: dict[int, str] = {}

    async def push(self, batch: AppendBatch, *, again: bool) -> list[Appended]:
        """Appends segments, all or none; partitions ascending and distinct. No row: the options have changed."""
        arguments = (batch.flush, again, *push_arguments(batch), batch.version, batch.limited, *_NO_WAITERS)
        alone = again or sum(map(len, batch.data)) > GROUP_BYTES_MAX
        rows = await self._group.fetch(Member.PUSH, arguments, sum(batch.n), alone=alone)
        return [Appended(*row[:6]) for row in rows]

    async def push_to_waiters(self, batch: AppendBatch, waiting: WaitingColumns) -> tuple[list[Appended], list[Given]]:
        """The same, and leases some of the messages to waiting pops."""
        w = waiting
        arguments = (
            batch.flush, False, *push_arguments(batch), batch.version, batch.limited, w.grp, w.lease, w.batch, w.parts,
            w.seconds,
        )  # fmt: skip
        rows = await self._group.fetch(Member.PUSH, arguments, sum(batch.n))
        appended = [Appended(*row[:6]) for row in rows if row[6] is None]
        return appended, [Given(row[6], row[0], row[1], row[8], row[9], row[10]) for row in rows if row[6] is not None]

    async def read_push_options(self) -> PushOptions:
        """The current push options of queues."""
        rows = await self._pool.fetch(_READ_PUSH_OPTIONS)
        return PushOptions(
            rows[0]["version"],
            frozenset(row["queue"] for row in rows if row["encrypted"]),
            {row["queue"]: LimitedQueue(row["queue_id"], row["max_size"]) for row in rows if row["max_size"]},
            {row["queue"]: row["colocate_with"] for row in rows if row["colocate_with"]},
        )

    async def pop(self, columns: PopColumns) -> tuple[list[Delivered], list[Unserved]]:
        """Claims cursors for many pops; the procedure documents their order."""
        c = columns
        # One per slot that PostgreSQL has for marks (queen.name_of_mark).
        marked = list({grp % 1000: grp for grp, part in zip(c.grp, c.part, strict=True) if part is None}.values())
        marks = list(map(self._marks.get, marked))
        arguments = (c.batch, c.parts, c.lease, c.seconds, c.pop, c.grp, c.part, *self._pop_bytes, marked, marks)
        rows = await self._group.fetch(Member.POP, arguments)
        delivered, unserved = [], []
        for pop, grp, part, _first, upto, skip, seen, attempt, ready_in, off, at, ends, start, data, mark in rows:
            if mark is not None:
                self._remember(grp, mark)
            elif pop is None:
                unserved.append(Unserved(grp, part, ready_in, bool(attempt)))
            else:
                piece = Slice(off, at, ends, start, data)
                delivered.append(Delivered(pop, grp, part, upto, skip, seen, attempt, piece))
        return delivered, unserved

    def _remember(self, grp_id: int, mark: str) -> None:
        self._marks.pop(grp_id, None)
        self._marks[grp_id] = mark
        if len(self._marks) > _MARKS:
            del self._marks[next(iter(self._marks))]

    async def complete(self, columns: CompleteColumns) -> list[CompletedRow]:
        """Completes messages in the order of their delivery; one row per applied element."""
        c = columns
        arguments = (c.part, c.grp, c.lease, c.first, c.last, c.next_lease, c.next_batch, c.next_seconds)
        rows = await self._group.fetch(Member.COMPLETE, arguments, sum(c.last) - sum(c.first) + len(c.last))
        return [
            CompletedRow(
                row[0], row[1], row[2], row[3], row[4], row[5], row[6],
                Slice(row[7], row[8], row[9], row[10], row[11]) if row[4] is not None else None,
            )
            for row in rows
        ]  # fmt: skip

    async def ack(self, columns: AckColumns) -> list[AckRow]:
        """Applies acks; the answer has one row per element, in any order."""
        rows = await self._group.fetch(Member.ACK, _ack_arguments(columns), _acked(columns))
        return [AckRow(*row) for row in rows]

    async def prefetched_for(self, queue: str | None, group: str | None, part_id: int | None) -> float:
        """For how many seconds workers may still hold prefetched messages.

        Args:
            queue: of this queue, or that of
            part_id: this partition;
            group: of this group, or all.
        """
        [row] = await self._pool.fetch(_PREFETCHED, queue, group, part_id)
        return row["seconds"] or 0.0

    async def cursors_prefetched_for(self, cursors: Sequence[tuple[int, int]]) -> float:
        """The same for some cursors, by partition and group, also while a worker may be late to release a lease."""
        [row] = await self._pool.fetch(_CURSORS_PREFETCHED, *map(list, zip(*cursors, strict=True)))
        return row["seconds"] or 0.0

    async def renew_leases(self, leases: list[UUID], seconds: list[int]) -> list[tuple[int, datetime | None]]:
        """Renews leases: the number of cursors of each, and its earliest end."""
        rows = await self._pool.fetch(_RENEW, leases, seconds)
        return [(row["renewed"], row["expires_at"]) for row in rows]

    async def release_leases(self, leases: list[UUID]) -> None:
        """Ends leases as if their messages had never been delivered."""
        await self._pool.fetch(_RELEASE, leases)

    async def change_timers(self, changes: Sequence[TimerChange], version: int) -> list[TimerVerdict]:
        """Sets, cancels and fires timers. No verdict: the options have changed, or a queue was deleted."""
        columns = [
            (c.op, c.queue, c.key, c.partition, c.transaction_id, c.delay_s, c.at, c.message.decode()) for c in changes
        ]
        rows = await self._pool.fetch(_CHANGE_TIMERS, *_columns(columns, 8), version)
        rows.sort(key=lambda row: row["ord"])
        return [TimerVerdict(row["status"], row["transaction_id"], row["deliver_at"]) for row in rows]

    async def execute(
        self, push: AppendBatch, ack: AckColumns, required: Sequence[UUID] | None, timers: Sequence[TimerChange] = (),
        *, again: bool,
    ) -> TransactionRows:  # fmt: skip
        """Pushes, acks, and timers that are set, all or none."""
        new = [-number for number, _ in enumerate(push.new, 1)], *_columns(push.new, 2)
        rows = await self._pool.fetch(
            _EXECUTE_WITH_TIMERS if timers else _EXECUTE, push.flush, again, *push_arguments(push),
            *_ack_arguments(ack), required, *new, push.version, push.limited, *_timer_arguments(timers),
        )  # fmt: skip
        appended, acks, made, due, others = [], [], {}, {}, set()
        for kind, part_id, ord_, problem, first, at, dup_pos, dup_off, *ack_row in rows:
            if kind == "push":
                appended.append(Appended(part_id, first, at, dup_pos, dup_off, None if problem is None else 0))
            elif kind == "ack":
                done_upto, within, exists_upto, released, dead, ready = ack_row
                # A row that only tells that something is ready has nothing else.
                acks.append(
                    AckRow(
                        ord_, problem, first, done_upto, None, within, exists_upto, bool(released), bool(dead), ready
                    )
                )
            elif kind == "made":
                made[ord_] = part_id
            elif kind == "timer":
                due[ord_] = at
            else:
                others.add(kind)
        return TransactionRows("undone" in others, made, appended, acks, due, "stale" in others)

    async def cycle(
        self, stream: int, source: tuple[int, int | None], push: AppendBatch, state: StateColumns,
        ack: AckColumns | None, *, release: bool, again: bool,
    ) -> CycleRows:  # fmt: skip
        """A cycle of a stream, all or none; ``source`` is the cursor of its input, ``ack`` has one element."""
        acking: tuple[object, ...] = (None,) * 5
        if ack is not None:
            acking = (ack.kind[0], ack.lease[0], ack.last[0], _hashes(ack.hash)[0], ack.error[0])
        rows = await self._pool.fetch(
            _CYCLE, stream, *source, push.flush, again, *push_arguments(push), state.key, state.value,
            state.window_end, *acking, release, push.version, push.limited,
        )  # fmt: skip
        appended = [
            Appended(row["part_id"], row["first_off"], row["created_at"], row["dup_pos"], row["dup_off"])
            for row in rows
            if row["kind"] == "push"
        ]
        others = {row["kind"]: row for row in rows}
        if (undone := others.get("undone", others.get("noop"))) is not None:
            return CycleRows(True, undone["problem"], undone["kind"] == "noop", appended, 0, False, False, False)
        if (acked := others.get("ack")) is None:
            return CycleRows(False, None, False, appended, 0, False, False, False)
        return CycleRows(
            False, None, False, appended, acked["completed"], acked["released"], acked["dead"], acked["ready"]
        )

    async def stream_state(
        self, stream: int, part_id: int, keys: Sequence[str] | None, prefix: str | None, ripe: float | None
    ) -> StateRows | None:
        """Rows of a stream's state; ``None`` if there is no such stream."""
        rows = await self._pool.fetch(_STATE, stream, part_id, keys, prefix, ripe, self._pop_bytes[0])
        if not rows and not (await self._pool.fetch(_STREAM_EXISTS, stream))[0]["found"]:
            return None
        complete = not rows or rows[-1]["key"] is not None
        return StateRows([StateRow(*row) for row in (rows if complete else rows[:-1])], complete)

    async def resolve_partitions(
        self, names: Sequence[tuple[str, str]], *, create: bool
    ) -> list[tuple[int | None, int | None]]:
        """Numbers of queue and partition for each (queue, partition)."""
        rows = await self._pool.fetch(_RESOLVE, [queue for queue, _ in names], [name for _, name in names], create)
        return [(row["queue_id"], row["part_id"]) for row in rows]

    async def describe_partitions(self, part_ids: Sequence[int]) -> list[PartitionName]:
        """Names of the partitions that exist."""
        rows = await self._pool.fetch(_DESCRIBE, part_ids)
        return [PartitionName(*row) for row in rows]

    async def subscribe(
        self, queue: str, group: str, mode: str, since: datetime | None, *, create_queue: bool, create_group: bool,
        part: int | None = None, wanted: int | None = None,
    ) -> Subscription:  # fmt: skip
        """A group of a queue; creates it if requested, and a page of its missing cursors.

        Args:
            queue: its name.
            group: its name.
            mode: where it begins, if it is created.
            since: the time of mode ``timestamp``.
            create_queue: whether to create the queue.
            create_group: whether to create the group.
            part: the only relevant partition; no page is created if the group has its cursor.
            wanted: no page is created if this many partitions have been ready since the group began.
        """
        rows = await self._pool.fetch(
            _SUBSCRIBE, queue, group, mode, since, create_queue, create_group, CURSORS_STEP, part, wanted
        )
        return Subscription(*rows[0])

    async def find_queues(self, namespace: str | None, task: str | None) -> list[tuple[str, int]]:
        """Names and numbers of the queues of a namespace and task, higher priority first."""
        rows = await self._pool.fetch(_FIND_QUEUES, namespace, task)
        return [(row["queue"], row["queue_id"]) for row in rows]

    async def now(self) -> datetime:
        """The clock that decides leases and ``createdAt``."""
        [row] = await self._pool.fetch(_NOW)
        return row["now"]  # type: ignore[no-any-return]

    async def find_server_made(self, part_ids: Sequence[int], offsets: Sequence[int]) -> list[bool]:
        """Whether each message exists and has a transaction id that the server assigned."""
        rows = await self._pool.fetch(_FIND_SERVER_MADE, part_ids, offsets)
        return [row["found"] for row in rows]

    async def find_locked(self, locks: Collection[Lock]) -> frozenset[Lock]:
        """Which of these rows other transactions have locked now."""
        asked = list(locks)
        columns = [
            [lock.kind.value for lock in asked],
            *(list(column) for column in zip(*(lock[1:] for lock in asked), strict=True)),
        ]
        rows = await self._pool.fetch(_FIND_LOCKED, *columns)
        return frozenset([asked[row["ord"] - 1] for row in rows])
