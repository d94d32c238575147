"""Ack: what became of delivered messages."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from .operations import Ack, Acked, AckItem, AckResult
from .state import Cursor, DeadLetter, Lane, Message, MessageId, Partition, Queue, State, put_cursor, put_queue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MESSAGE_NOT_FOUND = "Message not found"
GROUP_NOT_FOUND = "Consumer group not found"
ALREADY_COMPLETED = "Message already completed"
INVALID_LEASE = "Invalid or expired lease"
NOT_DELIVERED = "Message not delivered under this lease"
UNKNOWN_STATUS = "Unknown status: "
RETRIES_EXHAUSTED = "Retries exhausted"

STATUSES = frozenset({"completed", "failed", "retry", "dlq"})


def ack(state: State, operation: Ack, now: float) -> tuple[State, Acked]:
    """Judge each item alone (G-ISO-2); take the accepted ones of one cursor together."""
    results = tuple(_judge(state, item, now) for item in operation.items)
    together: dict[tuple[Lane, str], list[AckItem]] = defaultdict(list)
    for item, result in zip(operation.items, results, strict=True):
        if result.error is None and not result.noop:
            together[item.lane, item.group_name].append(item)
    for (lane, group), items in together.items():
        state = _settle(state, lane, group, items, now)
    return state, Acked(results)


def _judge(state: State, item: AckItem, now: float) -> AckResult:
    partition = state.partition(item.lane)
    if partition is None or item.status not in STATUSES:
        return AckResult(UNKNOWN_STATUS + item.status if partition else MESSAGE_NOT_FOUND)
    cursor, message = partition.cursors.get(item.group_name), _message(partition, item)
    if cursor is None or message is None:
        return AckResult(MESSAGE_NOT_FOUND if cursor else GROUP_NOT_FOUND)
    if cursor.is_done(message.offset):  # a repeated ack is harmless: G-ACK-4
        return AckResult(noop=True) if item.status == "completed" else AckResult(ALREADY_COMPLETED)
    if error := _refusal(cursor, message.offset, item, now):
        return AckResult(error)
    queue = state.queues[item.queue]
    return AckResult(dead_lettered=_keeps_dead_letters(queue) and _gives_up(queue, cursor, message.offset, item))


def _message(partition: Partition, item: AckItem) -> Message | None:
    """The message of an ack, by its transaction id or by the id that the server gave it."""
    name = item.transaction_id
    if isinstance(name, MessageId) and name.lane == item.lane and name.offset < partition.head:
        return partition.messages[name.offset]
    return partition.find(name)


def _refusal(cursor: Cursor, offset: int, item: AckItem, now: float) -> str | None:
    """A stale or foreign lease changes nothing (G-LEASE-3), and a lease covers its own messages only (G-LEASE-6)."""
    lease = cursor.live_lease(now)
    if item.lease and (lease is None or lease.id != item.lease):
        return INVALID_LEASE
    if item.lease and lease and offset > lease.upto:
        return NOT_DELIVERED
    if not item.lease and item.status != "completed" and lease:
        return INVALID_LEASE
    return None


def _gives_up(queue: Queue, cursor: Cursor, offset: int, item: AckItem) -> bool:
    """At its failure number `retryLimit` + 1 a message is given up (G-DLQ-1), whatever its neighbours do (G-DLQ-2)."""
    exhausted = cursor.failures.get(offset, 0) >= queue.options.retry_limit
    return item.status == "dlq" or (item.status == "failed" and exhausted)


def _keeps_dead_letters(queue: Queue) -> bool:
    return queue.options.dead_letter_queue or queue.options.dlq_after_max_retries


def _settle(state: State, lane: Lane, group: str, items: list[AckItem], now: float) -> State:
    """Apply the accepted items of one cursor."""
    queue = state.queues[lane.queue]
    partition = queue.partitions[lane.partition]
    cursor = partition.cursors[group]
    placed = [(message.offset, item) for item in items if (message := _message(partition, item))]
    given_up = {offset: item for offset, item in reversed(placed) if _gives_up(queue, cursor, offset, item)}
    done = {*given_up, *(offset for offset, item in placed if item.status == "completed")}
    failed = {offset for offset, item in placed if item.status == "failed"} - done
    retried = {offset for offset, item in placed if item.status == "retry"} - done
    if _keeps_dead_letters(queue):
        state = put_queue(state, lane.queue, _bury(queue, lane, group, given_up))
    cursor = replace(cursor.complete(done), failures=_count_failures(cursor.complete(done), failed))
    return put_cursor(state, lane, group, _release(cursor, queue, failed, retried, now))


def _count_failures(cursor: Cursor, failed: Iterable[int]) -> dict[int, int]:
    """One failure for each message, however often the request says so."""
    return {**cursor.failures, **{offset: cursor.failures.get(offset, 0) + 1 for offset in failed}}


def _bury(queue: Queue, lane: Lane, group: str, given_up: Mapping[int, AckItem]) -> Queue:
    """Keep what a group gave up, with payload and error (G-DLQ-1)."""
    partition = queue.partitions[lane.partition]
    cursor = partition.cursors[group]
    letters = tuple(
        DeadLetter(
            MessageId(*lane, offset),
            group,
            partition.messages[offset].transaction_id,
            partition.messages[offset].payload,
            item.error or RETRIES_EXHAUSTED,
            cursor.failures.get(offset, 0),
        )
        for offset, item in sorted(given_up.items())
    )
    return replace(queue, dead_letters=queue.dead_letters + letters)


def _release(cursor: Cursor, queue: Queue, failed: set[int], retried: set[int], now: float) -> Cursor:
    """The lease ends when a message is to come again, or when nothing is left under it (G-ACK-5)."""
    lease = cursor.live_lease(now)
    if failed or retried:
        again = now + (queue.options.retry_delay / 1000 if failed else 0)
        return replace(cursor, lease=None, ready=again if lease else max(cursor.ready, again))  # G-ACK-6
    finished = lease is not None and all(cursor.is_done(offset) for offset in range(lease.upto + 1))
    return replace(cursor, lease=None, ready=now) if finished else cursor
