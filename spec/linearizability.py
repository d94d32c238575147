"""Linearizability: is there an order of the calls in which the model would give these answers?

A concurrent history is explained when its calls can be put in an order in which each takes effect between its
invocation and its answer, and in which the model admits every answer. Linearizability is local (Herlihy and Wing,
1990): a history has such an order exactly if each of its objects has one. The objects are the partitions as each group
sees them, so every call is cut into its parts, one for each `View`, and each view is searched alone.

The search is that of Wing and Gong (1993) with the memory of Lowe (2017): depth first through the calls that may come
next, and never again from the same set of calls and the same state.

One thing is not as if calls came one by one: acks that meet may be taken together, as if they were one request
(docs/semantics.md, section Ack). So what comes next is one call, or several acks.

Not checked here: that the parts of one call take effect at the same moment. Only a transaction promises that
(`G-TXN-1`), and `checkers/transaction.py` watches it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, product, starmap
from typing import NamedTuple

from .history import NEVER
from .model import (
    Ack,
    Acked,
    AckItem,
    Committed,
    Configure,
    DeleteGroup,
    DeleteMessage,
    DeleteQueue,
    EvictOverdue,
    GiveUp,
    Lane,
    Operation,
    Outcome,
    Pop,
    Popped,
    Push,
    Pushed,
    PushItem,
    RemoveExpired,
    RemoveIdle,
    Renewed,
    RenewLease,
    RolledBack,
    Seek,
    State,
    Transaction,
    UpdateSubscription,
    Violation,
    admit,
    step,
)
from .model.pop import claimable, deliver, subscribe

__all__ = ["Call", "UnexplainedError", "View", "explain"]


@dataclass(frozen=True, slots=True)
class Call:
    """An operation and its answer.

    Attributes:
        invoked: when it was sent, on a clock that only has to order calls.
        completed: when its answer was there; one without an answer may take effect at any time, or never.
        outcome: the answer, or None if there was none.
        now: the model's time in seconds, which stands still while calls run side by side.
    """

    operation: Operation
    invoked: int
    completed: int = NEVER
    outcome: Outcome | None = None
    now: float = 0.0


class View(NamedTuple):
    """A partition as one group sees it."""

    lane: Lane
    group: str


class UnexplainedError(AssertionError):
    """No order explains the observed answers.

    Attributes:
        view: where.
        explained: the longest explained prefix, in its order.
        problems: the calls that could have come next, and why the model refuses each.
    """

    def __init__(self, view: View, explained: Sequence[Call], problems: Sequence[tuple[Call, str]]) -> None:
        lines = [f"no order explains {view.lane} for group {view.group}", "explained as far as:"]
        lines += [f"  {call.operation} -> {call.outcome}" for call in explained]
        lines += ["and then none of these can follow:"]
        lines += [f"  {call.operation} -> {call.outcome}: {problem}" for call, problem in problems]
        super().__init__("\n".join(lines))
        self.view = view
        self.explained = tuple(explained)
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class _Part:
    """What a call did in one view: `effects` gives the states in which it may leave the view, or raises `Violation`.

    `acked` are its items and their results, if it is an ack that was answered.
    """

    call: Call
    effects: Callable[[State], list[State]]
    acked: tuple[Ack, Acked] | None = None

    @property
    def is_known(self) -> bool:
        return self.call.outcome is not None


def explain(calls: Iterable[Call], state: State | None = None) -> None:
    """Find an order for every view, starting from a state.

    Raises:
        UnexplainedError: there is none for some view.
    """
    calls = sorted(calls, key=lambda call: (call.invoked, call.completed))
    beginning = state or State()
    for view in sorted(_views(calls, beginning)):
        parts = [part for call in calls if (part := _part(call, calls, view))]
        _search(view, parts, beginning)


def _views(calls: Iterable[Call], beginning: State) -> set[View]:
    lanes = {Lane(name, partition) for name, queue in beginning.queues.items() for partition in queue.partitions}
    groups: set[str] = set()
    for call in calls:
        items = _items(call.operation)
        lanes |= {item.lane for item in items}
        groups |= {item.group_name for item in items if not isinstance(item, PushItem)}
        if isinstance(call.operation, Pop):
            groups.add(call.operation.group_name)
        if isinstance(call.outcome, Popped):
            lanes |= {delivery.message.lane for delivery in call.outcome.deliveries}
    return set(starmap(View, product(lanes, groups or {""})))


def _items(operation: Operation) -> Sequence[PushItem | AckItem]:
    """What a request pushes and acks."""
    match operation:
        case Push(items) | Ack(items) | Transaction(items):
            return items
    return ()


# The parts of calls


def _part(call: Call, calls: Sequence[Call], view: View) -> _Part | None:  # noqa: PLR0911 - one a kind
    match call.operation:
        case Push() as push:
            return _part_of_push(call, push, view)
        case Ack() as ack:
            return _part_of_ack(call, ack, view)
        case Transaction() as transaction:
            return _part_of_transaction(call, transaction, view)
        case Pop() as pop:
            return _part_of_pop(call, pop, _meets_none(call, calls), view)
        case RenewLease():
            return _part_of_renewal(call, calls, view)
        case Configure(queue) | DeleteQueue(queue) | RemoveExpired(queue) | EvictOverdue(queue) | RemoveIdle(queue):
            return _unjudged(call) if queue == view.lane.queue else None
        case DeleteMessage(queue) | GiveUp(queue) | Seek(queue) | UpdateSubscription(queue) | DeleteGroup(queue):
            return _unjudged(call) if queue == view.lane.queue else None
        case other:
            raise TypeError(f"{type(other).__name__} is not among the operations that can be explained")


def _concerns(item: object, view: View) -> bool:
    """Whether an item of a request is about this partition and, if it is an ack, this group."""
    lane, group = getattr(item, "lane", None), getattr(item, "group_name", view.group)
    return lane == view.lane and group == view.group


def _meets_none(call: Call, calls: Sequence[Call]) -> bool:
    return all(other is call or other.completed < call.invoked or call.completed < other.invoked for other in calls)


def _judged(call: Call, operation: Operation, outcome: Outcome | None) -> _Part:
    if outcome is None:
        return _Part(call, lambda state: [step(state, operation, call.now)[0]])
    acked = (operation, outcome) if isinstance(operation, Ack) and isinstance(outcome, Acked) else None
    return _Part(call, lambda state: [admit(state, operation, outcome, call.now)], acked)


def _unjudged(call: Call) -> _Part:
    """It happens, and its answer says nothing of this view."""
    return _Part(call, lambda state: [step(state, call.operation, call.now)[0]])


def _part_of_push(call: Call, push: Push, view: View) -> _Part | None:
    """The items of this partition."""
    wanted = [number for number, item in enumerate(push.items) if item.lane == view.lane]
    chosen = Push(tuple(push.items[number] for number in wanted))
    told = call.outcome.results if isinstance(call.outcome, Pushed) else None
    outcome = Pushed(tuple(told[number] for number in wanted)) if told is not None else None
    return _judged(call, chosen, outcome) if wanted else None


def _part_of_ack(call: Call, ack: Ack, view: View) -> _Part | None:
    """The items of this partition and group."""
    wanted = [number for number, item in enumerate(ack.items) if _concerns(item, view)]
    chosen = Ack(tuple(ack.items[number] for number in wanted))
    told = call.outcome.results if isinstance(call.outcome, Acked) else None
    outcome = Acked(tuple(told[number] for number in wanted)) if told is not None else None
    return _judged(call, chosen, outcome) if wanted else None


def _part_of_transaction(call: Call, transaction: Transaction, view: View) -> _Part | None:
    """Of one that was undone only the operation that is blamed has to have had a reason."""
    wanted = [number for number, item in enumerate(transaction.operations) if _concerns(item, view)]
    if not wanted:
        return None
    chosen = replace(transaction, operations=tuple(transaction.operations[number] for number in wanted))
    match call.outcome:
        case Committed(results):
            return _judged(call, chosen, Committed(tuple(results[number] for number in wanted)))
        case RolledBack(index, error):
            return _judged(call, chosen, RolledBack(wanted.index(index), error)) if index in wanted else None
    return _judged(call, chosen, None)


def _part_of_pop(call: Call, pop: Pop, meets_none: bool, view: View) -> _Part | None:
    """A pop that met no other call has left nothing here that it had room for; any other may have been in the way."""
    if (pop.queue, pop.group_name) != (view.lane.queue, view.group) or pop.partition not in {
        None, "", view.lane.partition,
    }:  # fmt: skip
        return None
    here = replace(pop, partition=view.lane.partition, partitions=1)
    if not isinstance(call.outcome, Popped):
        return _Part(call, lambda state: _any_delivery(state, here, call.now))
    deliveries = call.outcome.deliveries
    taken = tuple(delivery for delivery in deliveries if delivery.message.lane == view.lane)
    lanes = {delivery.message.lane for delivery in deliveries}
    room = max(pop.batch, 1) - len(deliveries)
    had_room = room > 0 and (view.lane in lanes or len(lanes) < max(pop.partitions, 1))
    here = replace(here, batch=len(taken) + max(room, 0))
    outcome = replace(call.outcome, lease=call.outcome.lease if taken else None, deliveries=taken)
    alone = meets_none and had_room
    return _Part(call, lambda state: [admit(state, here, outcome, call.now, alone=alone)])


def _any_delivery(state: State, pop: Pop, now: float) -> list[State]:
    """What an unanswered pop may have done: nothing, or taken any number of messages that it had room for."""
    state = subscribe(state, pop, now)
    found = [state]
    for candidate in claimable(state, pop, now):
        most = min(max(pop.batch, 1), len(candidate.offsets))
        found += [deliver(state, pop, {candidate.lane: count}, now)[0] for count in range(1, most + 1)]
    return found


def _part_of_renewal(call: Call, calls: Sequence[Call], view: View) -> _Part | None:
    """Where the lease is on several partitions and lives on some of them only, the answer does not say on which."""
    lease = getattr(call.operation, "lease", "")
    held = {
        View(delivery.message.lane, other.operation.group_name)
        for other in calls
        if isinstance(other.operation, Pop) and isinstance(other.outcome, Popped) and other.outcome.lease == lease
        for delivery in other.outcome.deliveries
    }
    told = call.outcome.cursors if isinstance(call.outcome, Renewed) else None

    def effects(state: State) -> list[State]:
        after, expected = step(state, call.operation, call.now)
        if told == 0 or told == len(held):
            wanted = min(told, 1)
            if getattr(expected, "cursors", None) != wanted:
                raise Violation("G-LEASE-4", f"expected {expected}, observed {call.outcome}")
        return [after]

    return _Part(call, effects) if view in held else None


# The search


@dataclass(slots=True)
class _Frame:
    """A point of the search: what has happened, in which state, what came last, and what may come next."""

    happened: int
    state: State
    last: tuple[int, ...]
    choices: Iterator[tuple[tuple[int, ...], State]]


def _search(view: View, parts: Sequence[_Part], state: State) -> None:
    """Wing and Gong's search; `happened` is a set of calls as the bits of a number."""
    goal = sum(1 << number for number, part in enumerate(parts) if part.is_known)
    seen: set[tuple[int, Hashable]] = set()
    frames = [_Frame(0, state, (), _choices(parts, 0, state))]
    best: list[_Frame] = frames[:]
    while frames[-1].happened & goal != goal:
        frame = frames[-1]
        for last, after in frame.choices:
            happened = frame.happened | sum(1 << number for number in last)
            place = (happened, _fingerprint(after, view))
            if place not in seen:
                seen.add(place)
                frames.append(_Frame(happened, after, last, _choices(parts, happened, after)))
                break
        else:
            best = max(best, frames[:], key=len)
            frames.pop()
            if not frames:
                raise _unexplained(view, parts, best)


def _next(parts: Sequence[_Part], happened: int) -> Iterator[int]:
    """The calls that may come next: those that no other one, which has still to come, was answered before."""
    first = (~happened & (happened + 1)).bit_length() - 1
    waiting: list[int] = []
    limit = NEVER
    for number in range(first, len(parts)):
        if not happened >> number & 1:
            if parts[number].call.invoked > limit:
                break
            waiting.append(number)
            limit = min(limit, parts[number].call.completed)
    return (number for number in waiting if parts[number].call.invoked <= limit)


def _choices(parts: Sequence[_Part], happened: int, state: State) -> Iterator[tuple[tuple[int, ...], State]]:
    """One call that the model admits, or several acks that it admits together."""
    following = sorted(_next(parts, happened), key=lambda number: parts[number].call.completed)
    acks = [number for number in following if parts[number].acked]
    together = (chosen for count in range(2, len(acks) + 1) for chosen in combinations(acks, count))
    for numbers in chain(((number,) for number in following), together):
        try:
            after = _merged([parts[number] for number in numbers]).effects(state)
        except Violation:
            continue
        yield from ((numbers, each) for each in after)


def _merged(parts: Sequence[_Part]) -> _Part:
    """Acks as one request."""
    if len(parts) == 1:
        return parts[0]
    acked = [part.acked for part in parts if part.acked]
    items = tuple(item for ack, _ in acked for item in ack.items)
    results = tuple(result for _, answer in acked for result in answer.results)
    return _judged(parts[0].call, Ack(items), Acked(results))


def _fingerprint(state: State, view: View) -> Hashable:
    """All of a state that a call in this view can tell apart."""
    queue = state.queue(view.lane.queue)
    if queue is None:
        return None
    partition = queue.partitions.get(view.lane.partition)
    log = repr(partition.messages) if partition else ""
    cursor = repr(partition.cursors.get(view.group)) if partition else ""
    return (repr(queue.options), repr(queue.groups.get(view.group)), log, cursor, len(queue.dead_letters))


def _unexplained(view: View, parts: Sequence[_Part], frames: Sequence[_Frame]) -> UnexplainedError:
    last = frames[-1]
    problems = []
    for number in _next(parts, last.happened):
        try:
            parts[number].effects(last.state)
        except Violation as problem:
            problems.append((parts[number].call, str(problem)))
    return UnexplainedError(view, [parts[number].call for frame in frames for number in frame.last], problems)
