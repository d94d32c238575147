"""Push: store messages at the end of their partitions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from .operations import Push, Pushed, PushItem, PushResult, QueueFull
from .state import Cursor, Group, Message, MessageId, Partition, State, put_partition, with_partition

if TYPE_CHECKING:
    from collections.abc import Iterable


def push(state: State, operation: Push, now: float) -> tuple[State, Pushed | QueueFull]:
    """Store the items of a request, if the queues have room for all of them (G-RET-8)."""
    if is_full(state, operation.items):
        return make_partitions(state, operation, now), QueueFull()
    return store(state, operation.items, now)


def make_partitions(state: State, operation: Push, now: float) -> State:
    """A refused request leaves the partitions that it names."""
    for item in operation.items:
        state = with_partition(state, item.lane, now)
    return state


def store(state: State, items: Iterable[PushItem], now: float) -> tuple[State, Pushed]:
    """Store the items in the order of the request (G-ORD-4)."""
    before, results = state, []
    for item in items:
        state = with_partition(state, item.lane, now)
        result = _clash(item, state.queues[item.queue].partitions[item.partition], before.partition(item.lane))
        if result is None:
            state, result = _store(state, item, now)
        results.append(result)
    return state, Pushed(tuple(results))


def is_full(state: State, items: Iterable[PushItem]) -> bool:
    """Whether a queue would become too large. A transaction id counts once, also when it is stored already."""
    distinct = {(item.lane, item.transaction_id or number) for number, item in enumerate(items) if not _is_own(item)}
    wanted = Counter(lane.queue for lane, _ in distinct)
    return any(_is_too_small(state, name, count) for name, count in wanted.items())


def _is_too_small(state: State, name: str, count: int) -> bool:
    queue = state.queue(name)
    if queue is None or not queue.options.max_size:
        return False
    return sum(partition.backlog for partition in queue.partitions.values()) + count > queue.options.max_size


def _is_own(item: PushItem) -> bool:
    """Whether the transaction id has the form of a message id of the very partition."""
    return isinstance(item.transaction_id, MessageId) and item.transaction_id.lane == item.lane


def _clash(item: PushItem, partition: Partition, before: Partition | None) -> PushResult | None:
    """A partition stores a transaction id at most once (G-IDEM-1), and a message's own id is reserved (G-IDEM-4)."""
    if not item.transaction_id:
        return None
    own = _is_own(item)
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
