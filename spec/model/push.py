"""Push: store messages at the end of their partitions."""

from __future__ import annotations

from dataclasses import replace

from .operations import Push, Pushed, PushItem, PushResult
from .state import Cursor, Group, Message, MessageId, Partition, State, put_partition, with_partition


def push(state: State, operation: Push, now: float) -> tuple[State, Pushed]:
    """Store the items in the order of the request (G-ORD-4)."""
    before, results = state, []
    for item in operation.items:
        state = with_partition(state, item.lane, now)
        result = _clash(item, state.queues[item.queue].partitions[item.partition], before.partition(item.lane))
        if result is None:
            state, result = _store(state, item, now)
        results.append(result)
    return state, Pushed(tuple(results))


def _clash(item: PushItem, partition: Partition, before: Partition | None) -> PushResult | None:
    """A transaction id is stored at most once a partition (G-IDEM-1), and a message's own id is reserved (G-IDEM-4)."""
    if not item.transaction_id:
        return None
    own = isinstance(item.transaction_id, MessageId) and item.transaction_id.lane == item.lane
    known = before if own else partition
    if known and (stored := known.find(item.transaction_id)):
        return PushResult("duplicate", MessageId(*item.lane, stored.offset))
    return PushResult("refused") if own else None


def _store(state: State, item: PushItem, now: float) -> tuple[State, PushResult]:
    queue = state.queues[item.queue]
    partition = queue.partitions[item.partition]
    name = MessageId(*item.lane, partition.head)  # the next offset, without a gap: G-ORD-2
    created_at = max(now, partition.youngest)  # never younger than what comes after it: G-ORD-5
    message = Message(partition.head, item.transaction_id or name, item.payload, created_at)
    cursors = {group: _pass_early(cursor, queue.groups[group], message) for group, cursor in partition.cursors.items()}
    partition = replace(partition, messages=(*partition.messages, message), cursors=cursors)
    return put_partition(state, item.lane, partition), PushResult("queued", name)


def _pass_early(cursor: Cursor, group: Group, message: Message) -> Cursor:
    """A group never gets what is not younger than its `subscriptionFrom`, even if that is to come (G-GRP-2)."""
    early = group.after is not None and message.created_at <= group.after
    return cursor.complete([message.offset]) if early else cursor
