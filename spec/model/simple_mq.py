"""simple-mq as a function: `step(state, operation, now)` answers the next state and the outcome.

This is `docs/simple-mq.md` as a program. The ids of messages are the server's choice, so an `Enqueue` brings them
along; everything else follows. Time is in seconds. The ids beside the rules are those of `guarantees.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import md5
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Message:
    """A message in a queue.

    `taken` says that it was delivered, and not requeued or dead-lettered since; `behind` that another message of its
    group comes first; `stuck` that it had all its deliveries, and its dead-letter queue no room.
    """

    id: str
    data: str
    created_at: float
    visible_at: float
    group: str | None = None
    deliveries: int = 0
    taken: bool = False
    behind: bool = False
    stuck: bool = False

    @property
    def order(self) -> tuple[float, str]:
        """Oldest first."""
        return self.created_at, self.id


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue with its settings; `parent` is the queue whose dead letters it holds, also when that one is gone."""

    size: int
    visibility_timeout: float
    max_deliveries: int
    dlq: str | None = None
    parent: str | None = None
    messages: Mapping[str, Message] = field(default_factory=dict)

    def in_order(self) -> list[Message]:
        """The messages, oldest first."""
        return sorted(self.messages.values(), key=lambda message: message.order)

    def exhausted(self, message: Message, now: float) -> bool:
        """Whether a message is visible again after its last delivery (G-SMQ-2)."""
        last = self.parent is None and message.taken and message.deliveries >= self.max_deliveries
        return message.stuck or (last and message.visible_at <= now)


@dataclass(frozen=True, slots=True)
class State:
    """All queues by id."""

    queues: Mapping[str, Queue] = field(default_factory=dict)

    def put(self, id_: str, queue: Queue) -> State:
        """With this queue in place of the one that has the id."""
        return State({**self.queues, id_: queue})


# ---------------------------------------------------------------- operations and outcomes


@dataclass(frozen=True, slots=True)
class CreateQueue:
    """Create a queue with a new id."""

    queue: str
    size: int
    visibility_timeout: float
    max_deliveries: int


@dataclass(frozen=True, slots=True)
class DeleteQueue:
    """Remove a queue with its messages."""

    queue: str


@dataclass(frozen=True, slots=True)
class Describe:
    """FetchResult at a queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Messages to store, all or none: (data, group) each. `ids` are those that the server gave them."""

    queue: str
    messages: tuple[tuple[str, str | None], ...]
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Poll:
    """Take messages."""

    queue: str
    limit: int = 1


@dataclass(frozen=True, slots=True)
class Peek:
    """List messages after a cursor, oldest first."""

    queue: str
    after: tuple[float, str] | None
    limit: int


@dataclass(frozen=True, slots=True)
class Ack:
    """Remove messages."""

    queue: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Extend:
    """Hide a message in flight until this many seconds from now."""

    queue: str
    id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Requeue:
    """Give a message a second chance."""

    queue: str
    id: str


@dataclass(frozen=True, slots=True)
class RequeueAll:
    """Requeue everything in a dead-letter queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """Move exhausted messages of all queues."""


Operation: TypeAlias = (
    CreateQueue | DeleteQueue | Describe | Enqueue | Poll | Peek | Ack | Extend | Requeue | RequeueAll | Sweep
)


@dataclass(frozen=True, slots=True)
class Done:
    """An answer in one word: `ok`, or why not."""

    outcome: str


@dataclass(frozen=True, slots=True)
class Described:
    """The description of a queue; `count` is the number of its messages (G-SMQ-4)."""

    count: int
    dlq: str | None


@dataclass(frozen=True, slots=True)
class Seen:
    """Messages of a poll or peek: id, data, deliveries, visible at, created at."""

    messages: tuple[tuple[str, str, int, float, float], ...]


@dataclass(frozen=True, slots=True)
class Each:
    """One word for each message."""

    outcomes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """Where messages went, and how many."""

    destination: str
    count: int


Outcome: TypeAlias = Done | Described | Seen | Each | Moved
UNKNOWN = Done("unknown")


def dlq_id(queue: str) -> str:
    """The id of a queue's dead-letter queue: UUID version 3 of `<id>-dlq`, without a namespace."""
    return str(UUID(bytes=md5(f"{queue}-dlq".encode(), usedforsecurity=False).digest(), version=3))


def step(state: State, operation: Operation, now: float) -> tuple[State, Outcome]:
    """Carry out one operation at one moment."""
    if not isinstance(operation, CreateQueue | Requeue | Sweep) and operation.queue not in state.queues:
        return state, UNKNOWN
    return _STEPS[type(operation)](state, operation, now)


def create(state: State, operation: CreateQueue, _now: float) -> tuple[State, Outcome]:
    """Every queue that is created is a new one."""
    new = Queue(operation.size, operation.visibility_timeout, operation.max_deliveries)
    return state.put(operation.queue, new), Done("ok")


def delete(state: State, operation: DeleteQueue, _now: float) -> tuple[State, Outcome]:
    """The dead-letter queue stays, and has to be deleted after its parent."""
    if any(queue.dlq == operation.queue for queue in state.queues.values()):
        return state, Done("conflict")
    return State({id_: queue for id_, queue in state.queues.items() if id_ != operation.queue}), Done("ok")


def describe(state: State, operation: Describe, _now: float) -> tuple[State, Outcome]:
    """Nothing changes, and nothing is routed before."""
    queue = state.queues[operation.queue]
    return state, Described(len(queue.messages), queue.dlq)


def enqueue(state: State, operation: Enqueue, now: float) -> tuple[State, Outcome]:
    """All or none (G-SMQ-15), as long as there is room (G-SMQ-5)."""
    queue = state.queues[operation.queue]
    if len(queue.messages) + len(operation.messages) > queue.size:
        return state, Done("full")
    new = (
        Message(id_, data, now, now, group, behind=group is not None and queue.parent is None)
        for id_, (data, group) in zip(operation.ids, operation.messages, strict=True)
    )
    return state.put(operation.queue, promote(_with(queue, new))), Done("ok")


def poll(state: State, operation: Poll, now: float) -> tuple[State, Outcome]:
    """The oldest visible messages, hidden from now on (G-SMQ-1) with one delivery more (G-SMQ-2)."""
    state = route(state, operation.queue, now)
    queue = state.queues[operation.queue]
    free = [m for m in queue.in_order() if m.visible_at <= now and not m.behind and not queue.exhausted(m, now)]
    until = now + queue.visibility_timeout
    taken = [replace(m, deliveries=m.deliveries + 1, visible_at=until, taken=True) for m in free[: operation.limit]]
    return state.put(operation.queue, _with(queue, taken)), _seen(taken)


def peek(state: State, operation: Peek, _now: float) -> tuple[State, Outcome]:
    """Nothing changes (G-SMQ-11)."""
    messages = state.queues[operation.queue].in_order()
    found = [message for message in messages if operation.after is None or message.order > operation.after]
    return state, _seen(found[: operation.limit])


def ack(state: State, operation: Ack, _now: float) -> tuple[State, Outcome]:
    """An ack is a delete, regardless of its sender (G-SMQ-8)."""
    outcomes = []
    for id_ in operation.ids:
        queue = state.queues[operation.queue]
        outcomes.append("deleted" if id_ in queue.messages else "missing")
        state = state.put(operation.queue, promote(_without(queue, [id_])))
    return state, Each(tuple(outcomes))


def extend(state: State, operation: Extend, now: float) -> tuple[State, Outcome]:
    """Only messages in flight (G-SMQ-14)."""
    queue = state.queues[operation.queue]
    message = queue.messages.get(operation.id)
    if message is None:
        return state, Done("missing")
    if not message.taken or message.visible_at <= now:
        return state, Done("waiting")
    message = replace(message, visible_at=now + operation.seconds)
    return state.put(operation.queue, _with(queue, [message])), Done("extended")


# ---------------------------------------------------------------- dead letters


def route(state: State, id_: str, now: float) -> State:
    """Exhausted messages to the dead-letter queue, oldest first, as many as it has room for (G-SMQ-3, G-SMQ-9)."""
    queue = state.queues[id_]
    exhausted = [message for message in queue.in_order() if queue.exhausted(message, now)]
    if not exhausted:
        return state
    # A message that has had all its deliveries blocks no other, even if the dead-letter queue has no room for it.
    queue = _with(queue, [replace(message, stuck=True) for message in exhausted])
    dead_id = dlq_id(id_)
    empty = Queue(queue.size, queue.visibility_timeout, queue.max_deliveries, parent=id_)
    dead = state.queues.get(dead_id, empty)
    moved = exhausted[: max(dead.size - len(dead.messages), 0)]
    queue = replace(_without(queue, [message.id for message in moved]), dlq=dead_id)
    dead = _with(dead, [replace(message, visible_at=now, taken=False, stuck=False) for message in moved])
    return state.put(id_, promote(queue)).put(dead_id, dead)


def sweep(state: State, _operation: Sweep, now: float) -> tuple[State, Outcome]:
    """Exhausted messages of all queues."""
    for id_ in sorted(state.queues):
        state = route(state, id_, now)
    return state, Done("ok")


def requeue(state: State, operation: Requeue, now: float) -> tuple[State, Outcome]:
    """Back to the parent of a dead-letter queue, else to the queue that is named (G-SMQ-10)."""
    source = _find(state, operation)
    if source is None:
        return state, Done("missing")
    parents = [id_ for id_, queue in state.queues.items() if queue.dlq == operation.queue]
    if source in parents:
        return state, Done("repeated")
    destination = parents[0] if parents and source == operation.queue else operation.queue
    if destination not in state.queues:
        return state, UNKNOWN
    queue = state.queues[destination]
    if source != destination and len(queue.messages) >= queue.size:
        return state, Done("full")
    message = state.queues[source].messages[operation.id]
    state = state.put(source, promote(_without(state.queues[source], [operation.id])))
    state = state.put(destination, _arrive(state.queues[destination], message, now))
    return state, Moved(destination, 1)


def requeue_all(state: State, operation: RequeueAll, now: float) -> tuple[State, Outcome]:
    """What is visible in the dead-letter queue, oldest first, while there is room."""
    parents = [id_ for id_, queue in state.queues.items() if queue.dlq == operation.queue]
    if not parents:
        return state, Done("plain")
    count = 0
    for message in state.queues[operation.queue].in_order():
        if message.visible_at <= now:
            state, outcome = requeue(state, Requeue(operation.queue, message.id), now)
            if not isinstance(outcome, Moved):
                break
            count += 1
    return state, Moved(parents[0], count)


def _find(state: State, operation: Requeue) -> str | None:
    """Where a message is, the queue of the request first."""
    places = [operation.queue, *state.queues]
    return next((id_ for id_ in places if id_ in state.queues and operation.id in state.queues[id_].messages), None)


def _arrive(queue: Queue, message: Message, now: float) -> Queue:
    """A requeued message in its new place: before the others of its group, unless one of them is in flight."""
    ordered = message.group is not None and queue.parent is None
    queue = _with(queue, [replace(message, deliveries=0, visible_at=now, taken=False, behind=ordered, stuck=False)])
    if not ordered:
        return queue
    waiting = [
        replace(other, behind=True, taken=False)
        for other in queue.messages.values()
        if other.group == message.group
        and not other.behind
        and other.visible_at <= now
        and not queue.exhausted(other, now)
    ]
    return promote(_with(queue, waiting))


# ---------------------------------------------------------------- groups


def promote(queue: Queue) -> Queue:
    """Let the oldest of each group lead that has no leader (G-SMQ-12)."""
    led = {message.group for message in queue.messages.values() if not message.behind and not message.stuck}
    for message in queue.in_order():
        if message.behind and message.group not in led:
            queue = _with(queue, [replace(message, behind=False)])
            led.add(message.group)
    return queue


def _with(queue: Queue, messages: Iterable[Message]) -> Queue:
    return replace(queue, messages={**queue.messages, **{message.id: message for message in messages}})


def _without(queue: Queue, ids: Iterable[str]) -> Queue:
    gone = set(ids)
    return replace(queue, messages={id_: m for id_, m in queue.messages.items() if id_ not in gone})


def _seen(messages: Iterable[Message]) -> Seen:
    return Seen(tuple((m.id, m.data, m.deliveries, m.visible_at, m.created_at) for m in messages))


_STEPS: Mapping[type, Callable[[State, Any, float], tuple[State, Outcome]]] = {
    CreateQueue: create,
    DeleteQueue: delete,
    Describe: describe,
    Enqueue: enqueue,
    Poll: poll,
    Peek: peek,
    Ack: ack,
    Extend: extend,
    Requeue: requeue,
    RequeueAll: requeue_all,
    Sweep: sweep,
}
