"""The stored procedures as methods: columns in, frozen values out. Nothing here knows why they are called."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from asyncpg.pgproto.pgproto import UUID as FastUUID  # noqa: N811 - made from 16 bytes at a fifth of uuid.UUID's cost

from queen.core.limits import CURSORS_STEP, GROUP_BYTES_MAX, POP_BYTES, POP_CALL_BYTES_MAX
from queen.core.operations import Slice, StateRow, StateRows
from queen.db.group_commit import GroupCommit, Member
from queen.db.pool import Pool
from queen.db.statement import call
from queen.engine.ports import (
    AckColumns,
    AckRow,
    Appended,
    CycleRows,
    Delivered,
    LimitedQueue,
    Lock,
    NewPartitions,
    PartitionName,
    PopColumns,
    PushColumns,
    PushOptions,
    StateColumns,
    Subscription,
    TransactionRows,
    Unserved,
)

_EXECUTE = call("execute_transaction_v1", 24)
_CYCLE = call("cycle_stream_v1", 24)
_STATE = call("read_stream_state_v1", 6)
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
_FIND_LOCKED = call("find_locked_v1", 5)

#: Groups whose low-water mark is remembered; that of any other is looked for anew.
_MARKS = 10_000


def _hashes(column: Sequence[bytes | None]) -> list[FastUUID | None]:
    return [FastUUID(value) if value is not None else None for value in column]


def push_arguments(columns: PushColumns) -> tuple[object, ...]:
    """The arguments of ``push_messages_v1`` behind its first two."""
    c = columns
    if not c.hash:
        return c.part, c.n, c.data, c.ends, c.ids, None, None, None
    return c.part, c.n, c.data, c.ends, c.ids, c.hash_part, c.hash_pos, _hashes(c.hash)


def _ack_row(row: Any) -> AckRow:  # noqa: ANN401 - an asyncpg.Record
    return AckRow(
        row["ord"], row["problem"], row["first_off"], row["done_upto"], row.get("also_done"), row["within"],
        row["exists_upto"], row["released"], row["dead"], row["ready"],
    )  # fmt: skip


class Store:
    """The procedures of the hot path, over a pool; implements ``queen.engine.ports.Database``.

    Args:
        pool: the connections.
        pop_bytes: data that one pop may return.
    """

    def __init__(self, pool: Pool, pop_bytes: int = POP_BYTES) -> None:
        self._pool = pool
        self._pop_bytes = pop_bytes, max(pop_bytes, POP_CALL_BYTES_MAX)
        self._group = GroupCommit(pool)
        #: The low-water mark of each group as PostgreSQL has told it, what was told last at the end.
        self._marks: dict[int, str] = {}

    async def push(self, columns: PushColumns, *, again: bool) -> list[Appended]:
        """Appends segments, all or none; partitions ascending and distinct. No row: the options have changed."""
        arguments = (columns.flush, again, *push_arguments(columns), columns.version, columns.limited)
        alone = again or sum(map(len, columns.data)) > GROUP_BYTES_MAX
        rows, _ = await self._group.fetch(Member.PUSH, arguments, alone=alone)
        return [Appended(*row) for row in rows]

    async def read_push_options(self) -> PushOptions:
        """What a push has to know of queues, now."""
        rows = await self._pool.fetch(_READ_PUSH_OPTIONS)
        return PushOptions(
            rows[0]["version"],
            frozenset(row["queue"] for row in rows if row["encrypted"]),
            {row["queue"]: LimitedQueue(row["queue_id"], row["max_size"]) for row in rows if row["max_size"]},
        )

    async def pop(self, columns: PopColumns) -> tuple[list[Delivered], list[Unserved], bool]:
        """Claims cursors for many pops, and whether that was behind a push; see the procedure for their order."""
        c = columns
        # One for each place that PostgreSQL has for marks (queen.name_of_mark).
        marked = list({grp % 1000: grp for grp, part in zip(c.grp, c.part, strict=True) if part is None}.values())
        marks = list(map(self._marks.get, marked))
        arguments = (c.batch, c.parts, c.lease, c.seconds, c.pop, c.grp, c.part, *self._pop_bytes, marked, marks)
        rows, others = await self._group.fetch(Member.POP, arguments)
        delivered, unserved = [], []
        for pop, grp, part, _first, upto, skip, seen, attempt, ready_in, off, at, ends, start, data, mark in rows:
            if mark is not None:
                self._remember(grp, mark)
            elif pop is None:
                unserved.append(Unserved(grp, part, ready_in))
            else:
                piece = Slice(off, at, ends, start, data)
                delivered.append(Delivered(pop, grp, part, upto, skip, seen, attempt, piece))
        return delivered, unserved, Member.PUSH in others

    def _remember(self, grp_id: int, mark: str) -> None:
        self._marks.pop(grp_id, None)
        self._marks[grp_id] = mark
        if len(self._marks) > _MARKS:
            del self._marks[next(iter(self._marks))]

    async def ack(self, columns: AckColumns) -> list[AckRow]:
        """Applies acks; the answer has a row for each element, in any order."""
        c = columns
        arguments = (c.part, c.grp, c.lease, c.kind, c.first, c.last, _hashes(c.hash), c.error)
        rows, _ = await self._group.fetch(Member.ACK, arguments)
        return [AckRow(*row) for row in rows]

    async def renew_leases(self, leases: list[UUID], seconds: list[int]) -> list[tuple[int, datetime | None]]:
        """How many cursors each lease holds after its renewal, and its earliest end."""
        rows = await self._pool.fetch(_RENEW, leases, seconds)
        return [(row["renewed"], row["expires_at"]) for row in rows]

    async def release_leases(self, leases: list[UUID]) -> None:
        """Takes leases back as if they had never been given."""
        await self._pool.fetch(_RELEASE, leases)

    async def execute(
        self, push: PushColumns, ack: AckColumns, required: list[UUID] | None, new: NewPartitions, *, again: bool
    ) -> TransactionRows:
        """Pushes and acks, all or none."""
        rows = await self._pool.fetch(
            _EXECUTE, push.flush, again, *push_arguments(push), ack.part, ack.grp, ack.lease, ack.kind, ack.first,
            ack.last, _hashes(ack.hash), ack.error, required, new.part, new.queue, new.name, push.version, push.limited,
        )  # fmt: skip
        appended = [
            Appended(
                row["part_id"],
                row["first_off"],
                row["created_at"],
                row["dup_pos"],
                row["dup_off"],
                None if row["problem"] is None else 0,
            )
            for row in rows
            if row["kind"] == "push"
        ]
        acks = [_ack_row(row) for row in rows if row["kind"] == "ack"]
        made = {row["ord"]: row["part_id"] for row in rows if row["kind"] == "made"}
        return TransactionRows(any(row["kind"] == "undone" for row in rows), made, appended, acks)

    async def cycle(
        self, stream: int, source: tuple[int, int | None], push: PushColumns, state: StateColumns,
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
        undone = next((row for row in rows if row["kind"] == "undone"), None)
        if undone is not None:
            return CycleRows(True, undone["problem"], appended, 0, False, False, False)
        acked = next((row for row in rows if row["kind"] == "ack"), None)
        if acked is None:
            return CycleRows(False, None, appended, 0, False, False, False)
        return CycleRows(False, None, appended, acked["completed"], acked["released"], acked["dead"], acked["ready"])

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
        """Names of those partitions that exist."""
        rows = await self._pool.fetch(_DESCRIBE, part_ids)
        return [PartitionName(*row) for row in rows]

    async def subscribe(
        self, queue: str, group: str, mode: str, since: datetime | None, *, create_queue: bool, create_group: bool,
        part: int | None = None, wanted: int | None = None,
    ) -> Subscription:  # fmt: skip
        """A group on a queue, made if asked and missing; an unfinished one gets a page of cursors.

        Args:
            queue: its name.
            group: its name.
            mode: where it begins, if it is made.
            since: the time of mode ``timestamp``.
            create_queue: whether to make the queue.
            create_group: whether to make the group.
            part: the only partition that matters; no page is made if the group has its cursor.
            wanted: as many partitions that have been ready since the group began are enough: no page is made then.
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
        """Whether each message exists and has a transaction id that the server made."""
        rows = await self._pool.fetch(_FIND_SERVER_MADE, part_ids, offsets)
        return [row["found"] for row in rows]

    async def find_locked(self, locks: Collection[Lock]) -> frozenset[Lock]:
        """Which of these others have locked now."""
        asked = list(locks)
        columns = [
            [lock.kind.value for lock in asked],
            *(list(column) for column in zip(*(lock[1:] for lock in asked), strict=True)),
        ]
        rows = await self._pool.fetch(_FIND_LOCKED, *columns)
        return frozenset([asked[row["ord"] - 1] for row in rows])
