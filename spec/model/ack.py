"""Ack: the outcomes of delivered messages."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from .operations import Ack, Acked, AckItem, AckResult
from .state import (
    Cursor,
    DeadLetter,
    Lane,
    Message,
    MessageId,
    Partition,
    Queue,
    State,
    TransactionId,
    put_cursor,
    put_queue,
)

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
    cursor = partition.cursors.get(item.group_name)
    message = message_named(partition, item.lane, item.transaction_id)
    if cursor is None or message is None:
        return AckResult(MESSAGE_NOT_FOUND if cursor else GROUP_NOT_FOUND)
    if cursor.is_done(message.offset):  # a repeated ack is harmless: G-ACK-4
        return AckResult(noop=True) if item.status == "completed" else AckResult(ALREADY_COMPLETED)
    if error := _refusal(cursor, message.offset, item, now):
        return AckResult(error)
    queue = state.queues[item.queue]
    return AckResult(dead_lettered=queue.options.keeps_dead_letters and _gives_up(queue, cursor, message.offset, item))


def message_named(partition: Partition, lane: Lane, name: TransactionId) -> Message | None:
    """A message by its transaction id or by the id that the server gave it."""
    if isinstance(name, MessageId) and name.lane == lane and name.offset < partition.head:
        return partition.messages[name.offset]
    return partition.find(name)


def _refusal(cursor: Cursor, offset: int, item: AckItem, now: float) -> str | None:
    """A stale or foreign lease changes nothing (G-LEASE-3), and a lease covers its own messages only (G-LEASE-6).

    Without a lease no consumer finishes what another one may hold.
    """
    lease = cursor.live_lease(now)
    if item.lease and (lease is None or lease.id != item.lease):
        return INVALID_LEASE
    if item.lease and lease and offset > lease.upto:
        return NOT_DELIVERED
    if not item.lease and lease and (item.status != "completed" or offset <= lease.upto):
        return INVALID_LEASE
    return None


def _gives_up(queue: Queue, cursor: Cursor, offset: int, item: AckItem) -> bool:
    """At its failure number `retryLimit` + 1 a message is given up (G-DLQ-1), whatever its neighbours do (G-DLQ-2)."""
    exhausted = cursor.failures.get(offset, 0) >= queue.options.retry_limit
    return item.status == "dlq" or (item.status == "failed" and exhausted)


def _settle(state: State, lane: Lane, group: str, items: list[AckItem], now: float) -> State:
    """Apply the accepted items of one cursor."""
    queue = state.queues[lane.queue]
    partition = queue.partitions[lane.partition]
    cursor = partition.cursors[group]
    named = [(message_named(partition, lane, item.transaction_id), item) for item in items]
    placed = [(message.offset, item) for message, item in named if message]
    given_up = {offset: item for offset, item in reversed(placed) if _gives_up(queue, cursor, offset, item)}
    told: dict[str, set[int]] = defaultdict(set)
    for offset, item in placed:
        told[item.status].add(offset)
    done = told["completed"].union(given_up)
    failed, retried = told["failed"] - done, told["retry"] - done
    if queue.options.keeps_dead_letters:
        errors = {offset: item.error or RETRIES_EXHAUSTED for offset, item in given_up.items()}
        state = put_queue(state, lane.queue, bury(queue, lane, group, errors))
    cursor = replace(cursor.complete(done), failures=_count_failures(cursor.complete(done), failed))
    return put_cursor(state, lane, group, release(cursor, queue, failed, retried, now))


def _count_failures(cursor: Cursor, failed: Iterable[int]) -> dict[int, int]:
    """One failure for each message, however often the request says so."""
    return {**cursor.failures, **{offset: cursor.failures.get(offset, 0) + 1 for offset in failed}}


def bury(queue: Queue, lane: Lane, group: str, errors: Mapping[int, str]) -> Queue:
    """Keep what a group gave up, with payload and error (G-DLQ-1); once, also if it is given up again after a seek."""
    partition = queue.partitions[lane.partition]
    cursor = partition.cursors[group]
    letters = tuple(
        DeadLetter(
            MessageId(*lane, offset),
            group,
            partition.messages[offset].transaction_id or MessageId(*lane, offset),
            partition.messages[offset].payload,
            error,
            cursor.failures.get(offset, 0),
        )
        for offset, error in sorted(errors.items())
    )
    again = {(letter.message, letter.group) for letter in letters}
    kept = tuple(letter for letter in queue.dead_letters if (letter.message, letter.group) not in again)
    return replace(queue, dead_letters=kept + letters)


def release(cursor: Cursor, queue: Queue, failed: set[int], retried: set[int], now: float) -> Cursor:
    """The lease ends when a message is to come again, or when nothing is left under it (G-ACK-5)."""
    lease = cursor.live_lease(now)
    if failed or retried:
        again = now + (queue.options.retry_delay / 1000 if failed else 0)
        return replace(cursor, lease=None, ready=again if lease else max(cursor.ready, again))  # G-ACK-6
    return end_finished_lease(cursor, now)


def end_finished_lease(cursor: Cursor, now: float) -> Cursor:
    """A live lease ends when nothing undone is left under it."""
    lease = cursor.live_lease(now)
    finished = lease is not None and all(cursor.is_done(offset) for offset in range(lease.upto + 1))
    return replace(cursor, lease=None, ready=now) if finished else cursor
