"""Administration: actions on single messages and on groups, as far as consumers observe them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .ack import bury, message_named, release
from .operations import (
    DeletedGroup,
    DeletedMessage,
    DeleteGroup,
    DeleteMessage,
    GivenUp,
    GiveUp,
    Pause,
    Paused,
    Pop,
    Seek,
    SeekResult,
    UpdatedSubscription,
    UpdateSubscription,
)
from .pop import subscribe
from .state import Cursor, MessageId, Partition, put_cursor, put_partition, put_queue

if TYPE_CHECKING:
    from .state import Lane, State


def delete_message(state: State, operation: DeleteMessage, now: float) -> tuple[State, DeletedMessage]:
    """Remove a message; its offset stays taken (G-ORD-2), and it is done for every group (G-RET-5)."""
    partition = state.partition(operation.lane)
    message = message_named(partition, operation.lane, operation.transaction_id) if partition else None
    if partition is None or message is None or not partition.has(message):
        return state, DeletedMessage(False)
    own = MessageId(*operation.lane, message.offset)
    kept = own if message.transaction_id == own else None  # its producer's id may be used again
    gone = replace(message, transaction_id=kept, payload=None, deleted=True)
    messages = (*partition.messages[: message.offset], gone, *partition.messages[message.offset + 1 :])
    state = put_partition(state, operation.lane, replace(partition, messages=messages))
    queue = state.queues[operation.queue]
    letters = tuple(letter for letter in queue.dead_letters if letter.message != own)
    state = put_queue(state, operation.queue, replace(queue, dead_letters=letters))
    for group in partition.cursors:
        state = _finish(state, operation.lane, group, message.offset, now)
    return state, DeletedMessage(True)


def give_up(state: State, operation: GiveUp, now: float) -> tuple[State, GivenUp]:
    """Move a message to the dead letters of one group, or of all that have not done it (G-DLQ-6)."""
    if state.partition(operation.lane) and not state.queues[operation.queue].groups:
        state = subscribe(state, Pop(operation.queue), now)  # the queue was never popped: then queue mode gives it up
    partition = state.partition(operation.lane)
    message = message_named(partition, operation.lane, operation.transaction_id) if partition else None
    if partition is None or message is None or not partition.has(message):
        return state, GivenUp(known=False)
    groups = [
        group
        for group, cursor in partition.cursors.items()
        if operation.group in {None, group} and not cursor.is_done(message.offset)
    ]
    for group in groups:
        queue = bury(state.queues[operation.queue], operation.lane, group, {message.offset: operation.error})
        state = _finish(put_queue(state, operation.queue, queue), operation.lane, group, message.offset, now)
    return state, GivenUp(known=True, groups=frozenset(groups))


def _finish(state: State, lane: Lane, group: str, offset: int, now: float) -> State:
    """Count a message as completed by a group; its lease ends when nothing is left under it (G-ACK-5)."""
    queue = state.queues[lane.queue]
    cursor = queue.partitions[lane.partition].cursors[group]
    if cursor.is_done(offset):
        return state
    return put_cursor(state, lane, group, release(cursor.complete([offset]), queue, set(), set(), now))


def seek(state: State, operation: Seek, now: float) -> tuple[State, SeekResult]:
    """Move cursors of a group; its delivery attempts there are reset (G-GRP-5)."""
    queue = state.queues.get(operation.queue)
    if queue is None or operation.group not in queue.groups:
        return state, SeekResult(0)
    # A group that waits for its start begins now.
    groups = {**queue.groups, operation.group: replace(queue.groups[operation.group], after=None)}
    partitions = dict(queue.partitions)
    places = [name for name in partitions if operation.partition in {None, name}]
    for name in places:
        acked = partitions[name].head - 1 if operation.to_end else partitions[name].last_until(operation.since)
        partitions[name] = _put(partitions[name], operation.group, acked, now)
    return put_queue(state, operation.queue, replace(queue, groups=groups, partitions=partitions)), SeekResult(
        len(places)
    )


def _put(partition: Partition, group: str, acked: int, now: float) -> Partition:
    return replace(partition, cursors={**partition.cursors, group: partition.cursor_after(acked, now)})


def update_subscription(state: State, operation: UpdateSubscription, now: float) -> tuple[State, UpdatedSubscription]:
    """Change where a group began; cursors stay (G-GRP-6). Only a start that lies ahead is still to come."""
    queue = state.queues.get(operation.queue)
    group = queue.groups.get(operation.group) if queue else None
    if queue is None or group is None:
        return state, UpdatedSubscription(False)
    waits = group.after is not None and group.after >= now and operation.since >= now
    changed = replace(group, after=operation.since if waits else None, start=operation.since)
    groups = {**queue.groups, operation.group: changed}
    return put_queue(state, operation.queue, replace(queue, groups=groups)), UpdatedSubscription(True)


def delete_group(state: State, operation: DeleteGroup, now: float) -> tuple[State, DeletedGroup]:
    """Delete a group, so that its next pop creates it again; or only reset it to its start (G-GRP-7)."""
    queue = state.queues.get(operation.queue)
    if queue is None or operation.group not in queue.groups:
        return state, DeletedGroup(None)
    group, partitions = queue.groups[operation.group], queue.partitions
    if operation.subscription:
        groups = {name: each for name, each in queue.groups.items() if name != operation.group}
        changed = {name: _without(partition, operation.group) for name, partition in partitions.items()}
    else:
        groups = dict(queue.groups)
        changed = {
            name: _put(partition, operation.group, partition.last_until(group.start), now)
            for name, partition in partitions.items()
        }
    after = put_queue(state, operation.queue, replace(queue, groups=groups, partitions=changed))
    return after, DeletedGroup(len(partitions))


def pause(state: State, operation: Pause, _now: float) -> tuple[State, Paused]:
    """Pause or resume a queue, or one of its groups (G-PAUSE-1)."""
    queue = state.queues.get(operation.queue)
    if queue is None or operation.group not in {None, *queue.groups}:
        return state, Paused(False)
    if operation.group is None:
        queue = replace(queue, paused=operation.paused)
    else:
        group = replace(queue.groups[operation.group], paused=operation.paused)
        queue = replace(queue, groups={**queue.groups, operation.group: group})
    return put_queue(state, operation.queue, queue), Paused(True)


def _without(partition: Partition, group: str) -> Partition:
    cursors: dict[str, Cursor] = {name: cursor for name, cursor in partition.cursors.items() if name != group}
    return replace(partition, cursors=cursors)
