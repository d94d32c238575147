"""Queues of SQS as a function: `step(state, operation, now)` answers the next state and the outcome.

Messages are named by their bodies, which are all different; a handle is a body and a receive count. Time is in seconds.
The ids beside the rules are those of `guarantees.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MINUTES_5 = 300.0
PURGE_PAUSE = 60.0


@dataclass(frozen=True, slots=True)
class Message:
    """A message. `place` is its order among all that were sent or moved; `taken`: received, and not visible since.

    `stored_at` begins its retention.
    """

    body: str
    place: int
    sent_at: float
    visible_at: float
    group: str | None = None
    deduplication: str | None = None
    receives: int = 0
    earlier: int = 0
    first_received: float | None = None
    source: str | None = None
    taken: bool = False
    stored_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue. `remembered` has first sendings by scope and deduplication id, `attempts` what receives returned.

    `id` tells it from others that had its name before.
    """

    fifo: bool
    id: str = ""
    visibility: float = 30
    delay: float = 0
    retention: float = 345_600
    dlq: str | None = None
    max_receives: int | None = None
    per_group: bool = False
    messages: Mapping[str, Message] = field(default_factory=dict)
    remembered: Mapping[tuple[str, str], tuple[str, float]] = field(default_factory=dict)
    attempts: Mapping[str, tuple[float, float, tuple[tuple[str, int], ...]]] = field(default_factory=dict)
    purged_at: float | None = None

    def in_order(self) -> list[Message]:
        """The messages, oldest first."""
        return sorted(self.messages.values(), key=lambda message: message.place)

    def over(self, now: float) -> list[Message]:
        """The messages whose visibility timeout has ended."""
        return [message for message in self.messages.values() if message.taken and message.visible_at <= now]

    def gives_up(self, message: Message) -> bool:
        """Whether a message has had all its receives."""
        return self.max_receives is not None and message.receives - message.earlier >= self.max_receives

    def visible(self, now: float) -> list[Message]:
        """What a receive may take, oldest first: in a FIFO queue nothing of a group that has messages in flight."""
        free = [m for m in self.in_order() if not m.taken and m.visible_at <= now]
        if not self.fifo:
            return free
        busy = {m.group for m in self.messages.values() if m.taken}
        first = {m.group: m.place for m in reversed(free)}
        return sorted((m for m in free if m.group not in busy), key=lambda m: (first[m.group], m.place))


@dataclass(frozen=True, slots=True)
class Move:
    """A message move task; `destination` is the id of a queue."""

    source: str
    destination: str | None
    before: int
    status: str = "RUNNING"
    moved: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """All queues by name, the last move task, and the next place."""

    queues: Mapping[str, Queue] = field(default_factory=dict)
    move: Move | None = None
    place: int = 0

    def named(self, id_: str | None) -> str | None:
        """The name of the queue with this id, if it is there."""
        return next((name for name, queue in self.queues.items() if queue.id == id_), None)

    def put(self, name: str, queue: Queue) -> State:
        """With this queue in place of the one of the name."""
        return replace(self, queues={**self.queues, name: queue})


# ---------------------------------------------------------------- operations and outcomes


@dataclass(frozen=True, slots=True)
class Create:
    """Create a queue."""

    queue: str
    settings: Queue


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class Purge:
    """Remove all messages of a queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class Send:
    """Messages to store: (body, group, deduplication id, delay) each."""

    queue: str
    messages: tuple[tuple[str, str | None, str | None, int | None], ...]


@dataclass(frozen=True, slots=True)
class Replay:
    """Store messages that were sent earlier, while PostgreSQL was unavailable."""

    queue: str
    messages: tuple[tuple[str, str | None, str | None, int | None], ...]
    sent_at: float


@dataclass(frozen=True, slots=True)
class Receive:
    """Take messages."""

    queue: str
    limit: int
    visibility: int | None
    attempt: str | None
    in_flight_max: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete messages by their handles: (body, receive count) each."""

    queue: str
    handles: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Change the visibility of messages by their handles."""

    queue: str
    handles: tuple[tuple[str, int], ...]
    seconds: int


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Undo receives whose consumer has gone."""

    queue: str
    handles: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """Count the messages of a queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class StartMove:
    """Start a message move task."""

    queue: str
    destination: str | None


@dataclass(frozen=True, slots=True)
class MoveOn:
    """What the background job does for move tasks."""


@dataclass(frozen=True, slots=True)
class CancelMove:
    """Cancel the last task."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What the background jobs do for dead letters."""


@dataclass(frozen=True, slots=True)
class Expire:
    """What the background jobs do for retention."""


Operation: TypeAlias = (
    Create | Delete | Purge | Send | Replay | Receive | Remove | Change | GiveBack | Figures | StartMove | MoveOn
    | CancelMove | Sweep | Expire
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Done:
    """An answer in one word."""

    outcome: str


@dataclass(frozen=True, slots=True)
class Each:
    """One word for each message: of a send the body that it is answered with."""

    outcomes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Received:
    """Messages: body, receive count, sent, first received, group, source."""

    messages: tuple[tuple[str, int, float, float, str | None, str | None], ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """Figures of a queue."""

    visible: int
    in_flight: int
    delayed: int


@dataclass(frozen=True, slots=True)
class Progress:
    """A move task: status, and how many messages it has moved."""

    status: str
    moved: int


Outcome: TypeAlias = Done | Each | Received | Counts | Progress
UNKNOWN, OK = Done("unknown"), Done("ok")


def step(state: State, operation: Operation, now: float) -> tuple[State, Outcome]:
    """Carry out one operation at one moment."""
    name = getattr(operation, "queue", None)
    if name is not None and not isinstance(operation, Create) and name not in state.queues:
        return state, UNKNOWN
    return _STEPS[type(operation)](state, operation, now)


def create(state: State, operation: Create, _now: float) -> tuple[State, Outcome]:
    """The name is free, also right after a deletion."""
    return state.put(operation.queue, operation.settings), OK


def delete(state: State, operation: Delete, _now: float) -> tuple[State, Outcome]:
    """With all messages, and with the tasks that move from it."""
    queues = {name: queue for name, queue in state.queues.items() if name != operation.queue}
    move = None if state.move is not None and state.move.source == operation.queue else state.move
    return replace(state, queues=queues, move=move), OK


def purge(state: State, operation: Purge, now: float) -> tuple[State, Outcome]:
    """All messages, and what was remembered of sends and receives."""
    queue = state.queues[operation.queue]
    if queue.purged_at is not None and queue.purged_at > now - PURGE_PAUSE:
        return state, Done("too_soon")
    return state.put(operation.queue, replace(queue, messages={}, remembered={}, attempts={}, purged_at=now)), OK


def send(state: State, operation: Send, now: float) -> tuple[State, Outcome]:
    """A duplicate is answered with the first message (G-SQS-4); a delayed one is hidden at first (G-SQS-8)."""
    return _stored(state, operation, now, now)


def replay(state: State, operation: Replay, now: float) -> tuple[State, Outcome]:
    """In the order of the calls, but deduplicated and delayed as of the time of the send (G-SQS-14)."""
    return _stored(state, operation, operation.sent_at, now)[0], OK


def _stored(state: State, operation: Send | Replay, sent_at: float, now: float) -> tuple[State, Each]:
    answers = []
    for body, group, deduplication, delay in operation.messages:
        queue = state.queues[operation.queue]
        key = (group or "" if queue.per_group else "", deduplication or "")
        first = queue.remembered.get(key)
        if deduplication is not None and first is not None and abs(first[1] - sent_at) < MINUTES_5:
            answers.append(first[0])
            continue
        visible_at = _due(queue, sent_at, delay)
        message = Message(body, state.place, sent_at, visible_at, group, deduplication, stored_at=now)
        remembered = queue.remembered if deduplication is None else {**queue.remembered, key: (body, sent_at)}
        queue = _with(replace(queue, remembered=remembered), [message])
        state = replace(state.put(operation.queue, queue), place=state.place + 1)
        answers.append(body)
    return state, Each(tuple(answers))


def _due(queue: Queue, sent_at: float, delay: int | None) -> float:
    """When a new message is visible; in a FIFO queue not before those that came before."""
    if not queue.fifo:
        return sent_at + (queue.delay if delay is None else delay)
    return max([sent_at + queue.delay, *(m.visible_at for m in queue.messages.values() if not m.taken)])


def receive(state: State, operation: Receive, now: float) -> tuple[State, Outcome]:
    """The oldest visible messages, hidden from now on (G-SQS-2), in order within their groups (G-SQS-3)."""
    state = route(state, operation.queue, now)
    queue = state.queues[operation.queue]
    until = now + (queue.visibility if operation.visibility is None else operation.visibility)
    attempt = operation.attempt if queue.fifo else None
    if attempt is not None and (again := repeated(queue, attempt, now)):
        hidden = [replace(message, visible_at=until) for message in again]
        since = queue.attempts[attempt][0]
        return state.put(operation.queue, _remember(_with(queue, hidden), attempt, since, until, hidden)), _seen(hidden)
    room = operation.in_flight_max - sum(message.taken for message in queue.messages.values())
    taken = [
        replace(
            message,
            receives=message.receives + 1,
            taken=True,
            visible_at=until,
            first_received=now if message.first_received is None else message.first_received,
        )
        for message in queue.visible(now)[: max(0, min(operation.limit, room))]
    ]
    queue = _with(queue, taken)
    if attempt is not None and taken:
        queue = _remember(queue, attempt, now, until, taken)
    return state.put(operation.queue, queue), Done("over_limit") if room <= 0 else _seen(taken)


def repeated(queue: Queue, attempt: str, now: float) -> list[Message]:
    """What a receive with this attempt id returned, if it is all still as it was (G-SQS-5)."""
    since, until, handles = queue.attempts.get(attempt, (0.0, 0.0, ()))
    found = [
        message
        for body, count in handles
        if (message := queue.messages.get(body))
        and message.taken
        and message.receives == count
        and message.visible_at == until
    ]
    return found if len(found) == len(handles) and since > now - MINUTES_5 and until > now else []


def _remember(queue: Queue, attempt: str, since: float, until: float, messages: list[Message]) -> Queue:
    handles = tuple((message.body, message.receives) for message in messages)
    return replace(queue, attempts={**queue.attempts, attempt: (since, until, handles)})


def remove(state: State, operation: Remove, now: float) -> tuple[State, Outcome]:
    """Only by the handle of the last receive (G-SQS-6), and in a FIFO queue only in its visibility timeout."""
    outcomes = []
    queue = state.queues[operation.queue]
    before = queue
    for body, count in operation.handles:
        outcome = "missing" if body not in queue.messages else judge(before, body, count, now, "expired") or "deleted"
        if outcome == "deleted":
            queue = replace(queue, messages={name: m for name, m in queue.messages.items() if name != body})
        outcomes.append(outcome)
    return state.put(operation.queue, queue), Each(tuple(outcomes))


def judge(queue: Queue, body: str, count: int, now: float, late: str) -> str | None:
    """Why a handle has no effect."""
    message = queue.messages.get(body)
    if message is None:
        return "missing"
    if message.receives != count:
        return "stale"
    return late if queue.fifo and not (message.taken and message.visible_at > now) else None


def change(state: State, operation: Change, now: float) -> tuple[State, Outcome]:
    """Only by the handle of the last receive; in a standard queue also when the timeout is over, as AWS does."""
    queue = state.queues[operation.queue]
    outcomes = [judge(queue, body, count, now, "not_in_flight") for body, count in operation.handles]
    until = now + operation.seconds
    changed = [
        replace(queue.messages[body], visible_at=until, taken=True)
        for (body, _), outcome in zip(operation.handles, outcomes, strict=True)
        if outcome is None
    ]
    answer = Each(tuple(outcome or "changed" for outcome in outcomes))
    return state.put(operation.queue, _with(queue, changed)), answer


def give_back(state: State, operation: GiveBack, _now: float) -> tuple[State, Outcome]:
    """As if the messages had not been received."""
    queue = state.queues[operation.queue]
    for body, count in operation.handles:
        message = queue.messages.get(body)
        if message is not None and message.taken and message.receives == count:
            first = message.first_received if count > 1 else None
            queue = _with(queue, [replace(message, taken=False, receives=count - 1, first_received=first)])
            queue = _with(queue, [replace(queue.messages[body], visible_at=message.sent_at)])
    return state.put(operation.queue, queue), OK


def figures(state: State, operation: Figures, now: float) -> tuple[State, Outcome]:
    """What is visible, in flight and delayed."""
    messages = state.queues[operation.queue].messages.values()
    hidden = [message.taken for message in messages if message.visible_at > now]
    return state, Counts(len(messages) - len(hidden), sum(hidden), len(hidden) - sum(hidden))


# ---------------------------------------------------------------- dead letters, moves, retention


def route(state: State, name: str, now: float) -> State:
    """Ends what is over: after the last receive a message goes to the dead-letter queue (G-SQS-7)."""
    queue = state.queues[name]
    over = queue.over(now)
    queue = _with(queue, [replace(message, taken=False) for message in over])
    state = state.put(name, queue)
    if queue.dlq is None or queue.dlq not in state.queues or queue.dlq == name:
        return state
    dead = {message.body: message for message in over if queue.gives_up(message)}
    kept = {body: message for body, message in queue.messages.items() if body not in dead}
    letters = [replace(m, taken=False, source=queue.id, earlier=m.receives) for m in dead.values()]
    return state.put(name, replace(queue, messages=kept)).put(queue.dlq, _with(state.queues[queue.dlq], letters))


def sweep(state: State, _operation: Sweep, now: float) -> tuple[State, Outcome]:
    """All queues that have something to end, as they are now."""
    for name in sorted(state.queues):
        state = route(state, name, now)
    return state, OK


def start_move(state: State, operation: StartMove, _now: float) -> tuple[State, Outcome]:
    """One task at a time has a source."""
    destination = state.queues.get(operation.destination or operation.queue)
    if destination is None or destination.fifo != state.queues[operation.queue].fifo:
        return state, UNKNOWN
    if state.move is not None and state.move.status == "RUNNING":
        return state, Done("running")
    to = None if operation.destination is None else destination.id
    return replace(state, move=Move(operation.queue, to, state.place)), Done("started")


def move_on(state: State, _operation: MoveOn, now: float) -> tuple[State, Outcome]:
    """All that was visible at the start and is now, each message once (G-SQS-10), as new messages."""
    move = state.move
    if move is None or move.status != "RUNNING":
        return state, OK
    state = route(state, move.source, now)
    source, failed, moved = state.queues[move.source], False, 0
    places = [m for m in source.visible(now) if m.place < move.before]
    for message in sorted(places, key=lambda m: m.place):
        destination = state.named(move.destination or message.source)
        if destination is None:
            failed = True
            continue
        source = state.queues[move.source]
        rest = {body: m for body, m in source.messages.items() if body != message.body}
        state = state.put(move.source, replace(source, messages=rest))
        queue = state.queues[destination]
        new = Message(
            message.body, state.place, now, now + queue.delay, message.group, message.deduplication, stored_at=now
        )
        state = replace(state.put(destination, _with(queue, [new])), place=state.place + 1)
        moved += 1
    status = "FAILED" if failed else "COMPLETED"
    return replace(state, move=replace(move, status=status, moved=move.moved + moved)), OK


def cancel(state: State, _operation: CancelMove, _now: float) -> tuple[State, Outcome]:
    """What has moved stays where it is."""
    move = state.move
    if move is None:
        return state, UNKNOWN
    if move.status == "RUNNING":
        move = replace(move, status="CANCELLED")
    return replace(state, move=move), Progress(move.status, move.moved)


def expire(state: State, _operation: Expire, now: float) -> tuple[State, Outcome]:
    """Messages older than the retention of their queue (G-SQS-9), and first sendings of more than five minutes ago."""
    for name, queue in state.queues.items():
        kept = {body: m for body, m in queue.messages.items() if m.stored_at >= now - queue.retention}
        remembered = {key: first for key, first in queue.remembered.items() if first[1] >= now - MINUTES_5}
        state = state.put(name, replace(queue, messages=kept, remembered=remembered))
    return state, OK


def _with(queue: Queue, messages: Iterable[Message]) -> Queue:
    return replace(queue, messages={**queue.messages, **{message.body: message for message in messages}})


def _seen(messages: Iterable[Message]) -> Received:
    return Received(
        tuple((m.body, m.receives, m.sent_at, m.first_received or 0.0, m.group, m.source) for m in messages)
    )


_STEPS: Mapping[type, Callable[[State, Any, float], tuple[State, Outcome]]] = {
    Create: create,
    Delete: delete,
    Purge: purge,
    Send: send,
    Replay: replay,
    Receive: receive,
    Remove: remove,
    Change: change,
    GiveBack: give_back,
    Figures: figures,
    StartMove: start_move,
    MoveOn: move_on,
    CancelMove: cancel,
    Sweep: sweep,
    Expire: expire,
}
