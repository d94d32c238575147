"""The procedures that move the outbox into the log."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from queen.engine.ports import Given, HeldRead, Moved, OutboxPartition, OutboxRead, WaitingColumns
from queen.log.append import AppendBatch, Appended
from queen.postgres.pool import Pool
from queen.postgres.statement import call
from queen.postgres.store import push_arguments

_RESTART = call("restart_outbox_v1", 0)
_READ = call("await_outbox_v1", 4)
_MOVE = call("move_outbox_v1", 24)
_READ_HELD = call("read_held_outbox_v1", 2)
_MOVE_HELD = call("move_held_outbox_v1", 14)
_POSTPONE_HELD = call("postpone_held_outbox_v1", 3)
_LET_GO = call("let_go_outbox_v1", 0)


class _Given(Struct, frozen=True, array_like=True):
    """What ``append_accepted`` says of the messages that a waiting pop gets."""

    pop: int
    part_id: int
    first: int
    upto: int
    seen: int
    attempt: int
    created_at: datetime


_given = msgspec.json.Decoder(list[_Given])


def by_partition(rows: Iterable[Mapping[str, Any]]) -> list[OutboxPartition]:
    """The messages of rows of ``read_outbox_v1``, in order, by partition."""
    found: dict[tuple[int, str], OutboxPartition] = {}
    for row in rows:
        payloads, count, held = row["payloads"].encode().split(b"\n"), row["n"], row["held"] or ()
        ids, fields = row["transaction_ids"] or [None] * count, row["fields"] or [None]
        fields = fields * count if len(fields) == 1 else fields
        names = row["partitions"]
        for name in dict.fromkeys(names):
            place = row["queue_id"], name
            if place not in found:
                found[place] = OutboxPartition(row["queue_id"], row["queue"], name, [], [], [], name in held)
        if len(names) == 1:
            into = found[row["queue_id"], names[0]]
            into.transaction_ids.extend(ids)
            into.fields.extend(fields)
            into.payloads.extend(payloads)
            continue
        for name, transaction_id, field, payload in zip(names, ids, fields, payloads, strict=True):
            into = found[row["queue_id"], name]
            into.transaction_ids.append(transaction_id)
            into.fields.append(field)
            into.payloads.append(payload)
    return list(found.values())


class OutboxStore:
    """Implements ``queen.engine.ports.OutboxDatabase`` over a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def restart(self) -> None:
        """Makes the next read look at all rows."""
        await self._pool.fetch(_RESTART)

    async def read(self, messages: int, size: int, pause_ms: int = 0, looks: int = 1) -> OutboxRead | None:
        """The next messages: at most so many, and so many bytes of payloads, but one at least; ``None``: none wait.

        While none wait, it looks so often, with pauses between.
        """
        rows = await self._pool.fetch(_READ, messages, size, pause_ms, looks)
        if not rows:
            return None
        first, last = rows[0], rows[-1]
        return OutboxRead(
            first["moves"], first["target"], last["done"], last["xid"], last["seq"], len(rows), by_partition(rows)
        )

    async def move(
        self,
        read: OutboxRead,
        batch: AppendBatch,
        waiting: WaitingColumns | None,
        hold: Collection[tuple[int, str]],
        reason: str,
    ) -> Moved:
        """Moves the messages of a read, laid out in a batch, and leases some of them to waiting pops.

        Those of some partitions are held back.
        """
        queues, partitions = [queue for queue, _ in hold], [partition for _, partition in hold]
        w = waiting
        waiters = (w.grp, w.lease, w.batch, w.parts, w.seconds) if w is not None else (None,) * 5
        [row] = await self._pool.fetch(
            _MOVE, read.moves, read.target, read.done, read.last_xid, read.last_seq, read.rows,
            queues, partitions, reason, batch.flush, *push_arguments(batch), batch.version, *waiters,
        )  # fmt: skip
        given = _given.decode(row["given"] or "[]")
        appended = [Appended(each.part_id, each.first, each.created_at.astimezone(UTC), None, None) for each in given]
        return Moved(
            row["moved"], row["unknown"] or (), row["stale"], appended,
            [Given(each.pop, each.part_id, each.first, each.upto, each.seen, each.attempt) for each in given],
        )  # fmt: skip

    async def read_held(self, messages: int, size: int) -> HeldRead | None:
        """The next messages of a partition that is held back; ``None``: none is due for a try."""
        rows = await self._pool.fetch(_READ_HELD, messages, size)
        if not rows:
            return None
        last = rows[-1]
        found = [row for row in rows if row["seq"] is not None]
        ids, fields = ([row[name] for row in found] for name in ("transaction_id", "fields"))
        payloads = [row["payload"].encode() for row in found]
        held = OutboxPartition(last["queue_id"], last["queue"], last["partition"], ids, fields, payloads)
        return HeldRead(held, last["tries"], last["moved_seq"], last["seq"] or last["moved_seq"], last["done"])

    async def move_held(self, read: HeldRead, batch: AppendBatch, limit_s: float | None) -> Moved:
        """Moves messages that were held back, laid out in a batch."""
        [row] = await self._pool.fetch(
            _MOVE_HELD, read.messages.queue_id, read.messages.partition, read.moved_seq, read.last_seq, batch.flush,
            *push_arguments(batch), batch.version, limit_s=limit_s,
        )  # fmt: skip
        return Moved(row["moved"], row["unknown"] or (), row["stale"])

    async def postpone_held(self, read: HeldRead, reason: str) -> None:
        """Tries the partition again after a pause that grows."""
        await self._pool.fetch(_POSTPONE_HELD, read.messages.queue_id, read.messages.partition, reason)

    async def let_go(self) -> int:
        """Ends holding back the partitions of which nothing waits; returns their number."""
        [row] = await self._pool.fetch(_LET_GO)
        return int(row[0])
