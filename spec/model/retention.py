"""Retention, eviction and clean-up: the background jobs of the broker, as operations with a time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .ack import bury, end_finished_lease
from .operations import Cleaned, Evicted, Pop, Removed
from .pop import is_overdue, subscribe
from .state import Lane, put_cursor, put_partition, put_queue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .operations import EvictOverdue, RemoveExpired, RemoveIdle
    from .state import Cursor, Options, Partition, Queue, State

EXCEEDED = "Maximum wait time exceeded"
DEFAULT = "Default"


def remove_expired(state: State, operation: RemoveExpired, now: float) -> tuple[State, Removed]:
    """Remove what the options let go."""
    queue = state.queue(operation.queue)
    partitions = queue.partitions if queue else {}
    oldest = {lane: _keep_from(queue, partition, now) for lane, partition in partitions.items() if queue}
    return _remove(state, operation.queue, oldest, now), Removed(oldest)


def _keep_from(queue: Queue, partition: Partition, now: float) -> int:
    """The oldest offset that a partition keeps (G-RET-1, for what is completed G-RET-2, G-RET-4).

    `created_at` rises, so what goes is a prefix.
    """
    done = min((cursor.acked for cursor in partition.cursors.values()), default=-1)
    for message in partition.kept:
        age = now - message.created_at
        completed = message.offset <= done and 0 < queue.options.completed_retention_seconds < age
        if not completed and not _is_too_old(queue.options, age):
            return message.offset
    return partition.head


def _is_too_old(options: Options, age: float) -> bool:
    return 0 < options.ttl < age or (options.retention_enabled and 0 < options.retention_seconds < age)


def _remove(state: State, name: str, oldest: Mapping[str, int], now: float) -> State:
    """Remove the messages below these offsets; they are done for every group."""
    for partition_name, first in oldest.items():
        lane = Lane(name, partition_name)
        partition = state.queues[name].partitions[partition_name]
        gone = range(first)
        cursors = {group: _pass_over(cursor, gone, now) for group, cursor in partition.cursors.items()}
        state = put_partition(state, lane, replace(partition, removed=first, cursors=cursors))
    return state


def _pass_over(cursor: Cursor, gone: range, now: float) -> Cursor:
    """The cursor after the removed messages; a lease without remaining messages ends."""
    if all(cursor.is_done(offset) for offset in gone):
        return cursor
    return end_finished_lease(cursor.complete(gone), now)


def evict_overdue(state: State, operation: EvictOverdue, now: float) -> tuple[State, Evicted]:
    """Each group gives up messages that have waited too long and are not under a live lease (G-RET-6)."""
    name, count = operation.queue, 0
    queue = state.queue(name)
    if queue is None:
        return state, Evicted(0)
    late = {partition: _overdue(queue.options, each, now) for partition, each in queue.partitions.items()}
    if any(late.values()) and not queue.groups:  # the queue was never popped: then queue mode gives up
        state = subscribe(state, Pop(name), now)
    for lane, group, cursor in state.cursors():
        if lane.queue == name:
            lease = cursor.live_lease(now)
            leased = range(lease.upto + 1 if lease else 0)
            given_up = [each for each in late[lane.partition] if each not in leased and not cursor.is_done(each)]
            if given_up:
                state = _give_up(state, lane, group, given_up, now)
                count += len(given_up)
    return state, Evicted(count)


def _overdue(options: Options, partition: Partition, now: float) -> list[int]:
    return [message.offset for message in partition.kept if is_overdue(options, message, now)]


def _give_up(state: State, lane: Lane, group: str, offsets: list[int], now: float) -> State:
    queue = state.queues[lane.queue]
    if queue.options.keeps_dead_letters:
        state = put_queue(state, lane.queue, bury(queue, lane, group, dict.fromkeys(offsets, EXCEEDED)))
    cursor = queue.partitions[lane.partition].cursors[group].complete(offsets)
    return put_cursor(state, lane, group, end_finished_lease(cursor, now))


def remove_idle(state: State, operation: RemoveIdle, now: float) -> tuple[State, Cleaned]:
    """Remove partitions that are empty and idle; `Default` stays, and what dead letters or streams are about."""
    queue = state.queue(operation.queue)
    if queue is None:
        return state, Cleaned(frozenset())
    before = now - operation.seconds
    buried = {letter.message.partition for letter in queue.dead_letters}
    partitions = {
        name: partition
        for name, partition in queue.partitions.items()
        if name == DEFAULT or name in buried or _is_in_use(partition, before)
    }
    return put_queue(state, operation.queue, replace(queue, partitions=partitions)), Cleaned(frozenset(partitions))


def _is_in_use(partition: Partition, before: float) -> bool:
    return bool(partition.kept or partition.remembered) or max(partition.made_at, partition.youngest) >= before
