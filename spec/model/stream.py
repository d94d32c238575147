"""Streams: registered chains of operators, and the cycles of their workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .ack import ALREADY_COMPLETED, ack
from .operations import Ack, AckItem, Cycle, CycleResult, Register, Registered
from .push import is_full, store
from .state import MessageId, Remembered, State, put_cursor, put_partition, put_queue

if TYPE_CHECKING:
    from .state import Cursor, Partition

UNKNOWN_STREAM = "Unknown query_id: register the query first"
PARTITION_NOT_FOUND = "Partition not found"
RESERVED_ID = "A transactionId has the form of a message id. Only the server creates those: choose another one"
FULL = "The queue of the outputs is full (maxSize). Try again when its consumers have caught up"
LEASED = "The partition is leased, and its consumer may have read this state already. Try again later"
FLUSHED = "State not found: the window has been closed already"
UNSETTLED = "The state changed a moment ago. Read it again before you close the window"

SETTLED_AFTER = 1.0
"""Seconds after which a change counts as known to all workers."""


def register(state: State, operation: Register, _now: float) -> tuple[State, Registered]:
    """Find the stream by its name; another chain needs a reset, which deletes the state."""
    known = state.streams.get(operation.stream)
    if known is not None and known != operation.chain and not operation.reset:
        return state, Registered(False, True)
    if operation.reset:
        state = _forget(state, operation.stream)
    state = replace(state, streams={**state.streams, operation.stream: operation.chain})
    return state, Registered(known is None, False)


def _forget(state: State, stream: str) -> State:
    for name, queue in state.queues.items():
        partitions = {
            lane: replace(p, remembered={key: row for key, row in p.remembered.items() if key[0] != stream})
            for lane, p in queue.partitions.items()
        }
        state = put_queue(state, name, replace(queue, partitions=partitions))
    return state


def cycle(state: State, operation: Cycle, now: float) -> tuple[State, CycleResult]:
    """All or nothing (G-STR-1): first the ack, then the state, then the outputs."""
    partition = state.partition(operation.lane)
    if operation.stream not in state.streams or partition is None:
        return state, CycleResult(PARTITION_NOT_FOUND if partition is None else UNKNOWN_STREAM)
    if operation.is_flush and (error := _flush_error(operation, partition, now)):
        return state, CycleResult(error, noop=True)
    after, outcome = _acknowledge(state, operation, operation.ack, now) if operation.ack else (state, CycleResult())
    if outcome.error:
        return state, outcome
    written = _remember(after, operation, now)
    after, pushed = store(written, operation.pushes, now)
    if any(result.status == "refused" for result in pushed.results):
        return state, CycleResult(RESERVED_ID)
    if is_full(written, operation.pushes):
        return state, CycleResult(FULL)
    return after, replace(outcome, results=pushed.results)


def _flush_error(operation: Cycle, partition: Partition, now: float) -> str | None:
    """A window close has no lease: the state that it has read must be unchanged (G-STR-2)."""
    cursor = partition.cursors.get(operation.group_name)
    if cursor and cursor.live_lease(now):
        return LEASED
    deleted = [(operation.stream, change.key) for change in operation.changes if change.value is None]
    if any(key not in partition.remembered for key in deleted):
        return FLUSHED
    return UNSETTLED if any(_is_unsettled(partition.remembered[key], now) for key in deleted) else None


def _is_unsettled(row: Remembered, now: float) -> bool:
    """A window is read when it is over: what last changed before that is what was read."""
    return row.changed_at > now - SETTLED_AFTER and (row.window_end is None or row.changed_at >= row.window_end)


def _acknowledge(state: State, operation: Cycle, said: AckItem, now: float) -> tuple[State, CycleResult]:
    """The ack is fenced by its lease, and one that repeats is refused (G-STR-2)."""
    item = said if said.status == "completed" else replace(said, status="dlq")
    after, acked = ack(state, Ack((item,)), now)
    [result] = acked.results
    if result.noop or result.error:
        return state, CycleResult(ALREADY_COMPLETED if result.noop else result.error)
    before = state.queues[operation.queue].partitions[operation.partition]
    cursor = before.cursors[operation.group_name]
    earlier = _undone_before(before, cursor, item) if item.status == "completed" else []
    names = (
        AckItem(*operation.lane, MessageId(*operation.lane, o), group=item.group, lease=item.lease) for o in earlier
    )
    after, _ = ack(state, Ack((*names, item)), now)
    after = _release(after, operation, now) if operation.release else after
    ended = _cursor(after, operation).live_lease(now) is None
    completed = len(earlier) + 1 if item.status == "completed" else 0
    return after, CycleResult(completed=completed, released=ended, dead_lettered=result.dead_lettered)


def _cursor(state: State, operation: Cycle) -> Cursor:
    return state.queues[operation.queue].partitions[operation.partition].cursors[operation.group_name]


def _undone_before(partition: Partition, cursor: Cursor, item: AckItem) -> list[int]:
    name = item.transaction_id
    own = isinstance(name, MessageId) and name.lane == item.lane
    message = None if own else partition.find(name)
    upto = name.offset if isinstance(name, MessageId) and own else message.offset if message else 0
    return [offset for offset in range(upto) if not cursor.is_done(offset)]


def _release(state: State, operation: Cycle, now: float) -> State:
    """What is not done under the lease comes again at once, and counts no failure."""
    cursor = _cursor(state, operation)
    if cursor.live_lease(now) is None:
        return state
    return put_cursor(state, operation.lane, operation.group_name, replace(cursor, lease=None, ready=now))


def _remember(state: State, operation: Cycle, now: float) -> State:
    partition = state.queues[operation.queue].partitions[operation.partition]
    rows = dict(partition.remembered)
    for change in operation.changes:
        rows.pop((operation.stream, change.key), None)
        if change.value is not None:
            rows[operation.stream, change.key] = Remembered(change.value, change.window_end, now)
    return put_partition(state, operation.lane, replace(partition, remembered=rows))
