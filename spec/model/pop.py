"""Pop: which cursors may be claimed, and what is delivered from them.

A server may choose among claimable cursors that are ready equally long: `choose` makes one lawful choice, `deliver`
carries out any.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .operations import Delivery, Pop, Popped
from .state import (
    QUEUE_MODE,
    Cursor,
    Group,
    Lane,
    Lease,
    Message,
    MessageId,
    Options,
    Partition,
    Queue,
    State,
    put_cursor,
    put_queue,
    with_queue,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Claimable:
    """A cursor that a pop may claim now, and the offsets that it would deliver, first ones first.

    It became claimable between `ready` (the cursor was free) and `since` (a message was visible, too).
    """

    lane: Lane
    priority: int
    ready: float
    since: float
    offsets: tuple[int, ...]


def pop(state: State, operation: Pop, now: float) -> tuple[State, Popped]:
    """Subscribe, claim the cursors that are ready longest, deliver as much as the budget allows."""
    state = subscribe(state, operation, now)
    return deliver(state, operation, choose(claimable(state, operation, now), operation), now)


def subscribe(state: State, operation: Pop, now: float) -> State:
    """The group comes into being at its first pop on a queue; where it starts is fixed from then on (G-GRP-2)."""
    group = operation.group_name
    if operation.queue is not None and group != QUEUE_MODE:  # an unnamed group leaves no trace: G-GRP-4
        state = with_queue(state, operation.queue, now)
    for name in _queues(state, operation):
        if group not in state.queues[name].groups:
            state = put_queue(state, name, _with_group(state.queues[name], operation, now))
    return state


def _queues(state: State, operation: Pop) -> list[str]:
    """The queues that a pop is about: the one it names, or all of a namespace and a task."""
    if operation.queue is not None:
        return [operation.queue] if operation.queue in state.queues else []
    wanted = (operation.namespace, operation.task)
    return [
        name
        for name, queue in state.queues.items()
        if all(want is None or want == has for want, has in zip(wanted, (queue.namespace, queue.task), strict=True))
    ]


def _with_group(queue: Queue, operation: Pop, now: float) -> Queue:
    group, begin = operation.group_name, operation.subscription_from
    start = _start_time(operation, now)
    partitions = {
        name: replace(
            partition,
            cursors={
                **partition.cursors,
                group: partition.cursor_after(_start(queue, partition, operation, start, now), now),
            },
        )
        for name, partition in queue.partitions.items()
    }
    after = begin if group != QUEUE_MODE and not isinstance(begin, str) else None
    return replace(queue, groups={**queue.groups, group: Group(after, start)}, partitions=partitions)


def _start_time(operation: Pop, now: float) -> float:
    """What is not younger than this was pushed before a new group began."""
    begin = operation.subscription_from
    if operation.group_name == QUEUE_MODE:
        return float("-inf")
    if begin == "now" or (begin is None and operation.subscription_mode in {"new", "new-only"}):
        return now
    return float("-inf") if begin is None else float(begin)


def _start(queue: Queue, partition: Partition, operation: Pop, start: float, now: float) -> int:
    """The last offset that a new group does not get; what has waited too long is not for a named one (G-RET-6)."""
    before = partition.last_until(start)
    if operation.group_name == QUEUE_MODE:
        return before
    return max([before, *[message.offset for message in partition.messages if is_overdue(queue.options, message, now)]])


def is_overdue(options: Options, message: Message, now: float) -> bool:
    """Whether a message has waited longer than its queue allows."""
    return 0 < options.max_wait_time_seconds < now - message.created_at


def claimable(state: State, operation: Pop, now: float) -> list[Claimable]:
    """Every cursor that the pop may claim: ready, and with a visible message that is not done."""
    found = []
    for lane, group, cursor in state.cursors():
        queue = state.queues[lane.queue]
        partition = queue.partitions[lane.partition]
        offsets = undone(partition, cursor, visible(queue, partition, now))
        free = cursor.ready <= now and not queue.pauses(group)  # never while a lease lives: G-LEASE-1
        if group == operation.group_name and matches(state, operation, lane) and free and offsets:
            since = max(cursor.ready, _visible_since(queue, partition, offsets[0]))
            found.append(Claimable(lane, queue.options.priority, cursor.ready, since, offsets))
    return found


def matches(state: State, operation: Pop, lane: Lane) -> bool:
    """Whether the pop asks for this partition."""
    return lane.queue in _queues(state, operation) and operation.partition in {None, "", lane.partition}


def visible(queue: Queue, partition: Partition, now: float) -> int:
    """How many messages of a partition may be delivered: old enough each (G-WAIT-2), and none too young (G-WAIT-3)."""
    if queue.options.window_buffer and partition.youngest + queue.options.window_buffer > now:
        return 0
    return sum(message.created_at + queue.options.delayed_processing <= now for message in partition.messages)


def undone(partition: Partition, cursor: Cursor, limit: int) -> tuple[int, ...]:
    """The offsets below a limit that the group has still to get, in order (G-ORD-1)."""
    return tuple(
        message.offset
        for message in partition.messages
        if message.offset < limit and not cursor.is_done(message.offset)
    )


def _visible_since(queue: Queue, partition: Partition, offset: int) -> float:
    """When a visible message became visible, under the options that hold now."""
    window, delay = queue.options.window_buffer, queue.options.delayed_processing
    settled = [partition.youngest + window] if window else []
    return max(queue.configured_at, partition.messages[offset].created_at + delay, *settled)


def choose(candidates: Iterable[Claimable], operation: Pop) -> dict[Lane, int]:
    """Highest priority first (G-POP-4), then longest ready (G-POP-2), within the budget (G-POP-1)."""
    choice: dict[Lane, int] = {}
    budget = operation.batch
    for candidate in sorted(candidates, key=lambda c: (-c.priority, c.since, c.lane)):
        take = min(budget, len(candidate.offsets))
        if take and len(choice) < operation.partitions_max:
            choice[candidate.lane] = take
            budget -= take
    return choice


def deliver(state: State, operation: Pop, choice: Mapping[Lane, int], now: float) -> tuple[State, Popped]:
    """Deliver this many messages from these claimable cursors, all under one lease."""
    deliveries: list[Delivery] = []
    for lane, count in choice.items():
        queue, group = state.queues[lane.queue], operation.group_name
        partition = queue.partitions[lane.partition]
        cursor = partition.cursors[group]
        offsets = undone(partition, cursor, visible(queue, partition, now))[:count]
        tries = cursor.tries + 1 if cursor.delivered else 1
        for offset in offsets:
            attempt = tries if offset in cursor.delivered else 1  # more each time: G-LEASE-5
            deliveries.append(_delivery(lane, partition.messages[offset], attempt))
        cursor = replace(cursor, tries=tries, delivered=cursor.delivered.union(offsets))
        state = put_cursor(state, lane, group, _take(cursor, offsets, queue, operation, now))
    return state, Popped(operation.lease if deliveries and not operation.auto_ack else None, tuple(deliveries))


def _delivery(lane: Lane, message: Message, attempt: int) -> Delivery:
    name = MessageId(*lane, message.offset)
    return Delivery(name, message.transaction_id or name, message.payload, message.created_at, attempt)


def _take(cursor: Cursor, offsets: tuple[int, ...], queue: Queue, operation: Pop, now: float) -> Cursor:
    if operation.auto_ack:  # done at once: G-POP-5
        return replace(cursor.complete(offsets), lease=None, ready=now)
    seconds = operation.lease_seconds or queue.options.lease_time
    return replace(cursor, lease=Lease(operation.lease, offsets[-1]), ready=now + seconds)
