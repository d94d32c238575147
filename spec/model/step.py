"""The broker as a function: `step(state, operation, now)` answers the next state and the outcome.

This is `docs/semantics.md` as a program. Read `state.py`, `push.py`, `pop.py`, `ack.py`, then this; the ids beside the
rules are those of `guarantees.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .ack import ALREADY_COMPLETED, ack
from .administration import delete_group, delete_message, give_up, pause, seek, update_subscription
from .operations import (
    Ack,
    AckItem,
    AckResult,
    Committed,
    Configure,
    Configured,
    Cycle,
    Deleted,
    DeleteGroup,
    DeleteMessage,
    DeleteQueue,
    EvictOverdue,
    GiveUp,
    Operation,
    Outcome,
    Pause,
    Pop,
    Push,
    PushItem,
    PushResult,
    Register,
    RemoveExpired,
    RemoveIdle,
    Renewed,
    RenewLease,
    RolledBack,
    Seek,
    Transaction,
    UpdateSubscription,
)
from .pop import pop
from .push import is_full, push, store
from .retention import evict_overdue, remove_expired, remove_idle
from .state import Lane, put_cursor, put_queue, with_partition
from .stream import cycle, register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .state import State

DUPLICATE = "Duplicate transaction id"
FULL = "Queue is full"
RESERVED_ID = "Transaction id reserved for another message"


def step(state: State, operation: Operation, now: float) -> tuple[State, Outcome]:
    """Carry out one operation at one moment."""
    return STEPS[type(operation)](state, operation, now)


def renew_lease(state: State, operation: RenewLease, now: float) -> tuple[State, Renewed]:
    """Give a live lease more time, on every cursor that it holds; never less, and never revive it (G-LEASE-4)."""
    ends = []
    for lane, group, cursor in state.cursors():
        lease = cursor.live_lease(now)
        if lease and lease.id == operation.lease:
            ends.append(max(cursor.ready, now + operation.seconds))
            state = put_cursor(state, lane, group, replace(cursor, ready=ends[-1]))
    return state, Renewed(len(ends), min(ends, default=None))


def transaction(state: State, operation: Transaction, now: float) -> tuple[State, Committed | RolledBack]:
    """All or nothing (G-TXN-1)."""
    after, results = attempt(state, operation, now)
    for index, result in enumerate(results):
        if error := refusal(result):
            return state, RolledBack(index, error)
    return after, Committed(tuple(results))


def attempt(state: State, operation: Transaction, now: float) -> tuple[State, list[PushResult | AckResult]]:
    """What a transaction would do: its acks as one request, then its pushes as one request.

    Whether there is room for the pushes is judged before the acks.
    """
    pushes = [item for item in operation.operations if isinstance(item, PushItem)]
    full = is_full(state, pushes)
    acks = (item for item in operation.operations if isinstance(item, AckItem))
    state, acked = ack(state, Ack(tuple(_fenced(state, item, operation.required_leases, now) for item in acks)), now)
    state, pushed = store(state, pushes, now)
    judged: Iterator[PushResult | AckResult] = iter(acked.results)
    stored: Iterator[PushResult | AckResult] = (PushResult("full") if full else result for result in pushed.results)
    return state, [next(stored if isinstance(item, PushItem) else judged) for item in operation.operations]


def refusal(result: PushResult | AckResult) -> str | None:
    """Why an item undoes its transaction: also when it has happened before, or a repeat would push twice (G-TXN-3)."""
    if isinstance(result, PushResult):
        return {"queued": None, "duplicate": DUPLICATE, "refused": RESERVED_ID, "full": FULL}[result.status]
    return ALREADY_COMPLETED if result.noop else result.error


def _fenced(state: State, item: AckItem, required: tuple[str, ...], now: float) -> AckItem:
    """An ack of a transaction: a failure is final, a retry is no status, and a lease may be one that it requires."""
    status = {"failed": "dlq", "retry": "retry in a transaction"}.get(item.status, item.status)
    if item.lease or not required:
        return replace(item, status=status)
    partition = state.partition(item.lane)
    cursor = partition.cursors.get(item.group_name) if partition else None
    lease = cursor.live_lease(now) if cursor else None
    return replace(item, status=status, lease=lease.id if lease and lease.id in required else required[0])


def configure(state: State, operation: Configure, now: float) -> tuple[State, Configured]:
    """Make the queue and its partition Default, or replace its options; messages, groups and leases stay."""
    state = with_partition(state, Lane(operation.queue, "Default"), now)
    queue = replace(
        state.queues[operation.queue],
        options=operation.options,
        namespace=operation.namespace,
        task=operation.task,
        configured_at=now,
    )
    return put_queue(state, operation.queue, queue), Configured()


def delete_queue(state: State, operation: DeleteQueue, _now: float) -> tuple[State, Deleted]:
    """Remove all that belongs to the queue; its name is free for a new one (G-RET-3)."""
    queues = {name: queue for name, queue in state.queues.items() if name != operation.queue}
    return replace(state, queues=queues), Deleted(operation.queue in state.queues)


STEPS: Mapping[type, Callable[[State, Any, float], tuple[State, Outcome]]] = {
    Push: push,
    Pop: pop,
    Ack: ack,
    RenewLease: renew_lease,
    Transaction: transaction,
    Configure: configure,
    DeleteQueue: delete_queue,
    # What only streams ask for:
    Register: register,
    Cycle: cycle,
    # What only an operator asks for:
    DeleteMessage: delete_message,
    GiveUp: give_up,
    Seek: seek,
    UpdateSubscription: update_subscription,
    DeleteGroup: delete_group,
    Pause: pause,
    # Without a request of a client:
    RemoveExpired: remove_expired,
    EvictOverdue: evict_overdue,
    RemoveIdle: remove_idle,
}
"""What carries out each operation."""
