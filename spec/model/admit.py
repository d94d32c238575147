"""Judge a server's answer: `admit` gives the next state, or raises the guarantee that the answer breaks."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

from .ack import INVALID_LEASE, NOT_DELIVERED
from .operations import (
    Acked,
    AckResult,
    Cleaned,
    Committed,
    CycleResult,
    Deleted,
    DeletedGroup,
    DeletedMessage,
    Delivery,
    Evicted,
    GivenUp,
    Operation,
    Outcome,
    Paused,
    Pop,
    Popped,
    Pushed,
    PushResult,
    QueueFull,
    Removed,
    Renewed,
    RolledBack,
    SeekResult,
    Transaction,
    UpdatedSubscription,
)
from .pop import Claimable, claimable, deliver, matches, subscribe, visible
from .step import attempt, refusal, step

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping

    from .state import Lane, State


T = TypeVar("T")

#: The guarantee that an answer of the right type but with other contents breaks.
_BROKEN: Mapping[type, str] = {
    Committed: "G-TXN-1",
    Renewed: "G-LEASE-4",
    Deleted: "G-RET-3",
    DeletedMessage: "G-RET-5",
    Evicted: "G-RET-6",
    Cleaned: "G-RET-7",
    GivenUp: "G-DLQ-6",
    SeekResult: "G-GRP-5",
    UpdatedSubscription: "G-GRP-6",
    DeletedGroup: "G-GRP-7",
    Paused: "G-PAUSE-1",
}


class Violation(AssertionError):  # noqa: N818 - the word of the specification
    """A server's answer that a guarantee forbids."""

    def __init__(self, guarantee: str, text: str) -> None:
        super().__init__(f"{guarantee}: {text}")
        self.guarantee = guarantee
        self.text = text


def admit(
    state: State,
    operation: Operation,
    observed: Outcome,
    now: float,
    *,
    alone: bool = True,
    home: Callable[[Lane], Hashable] | None = None,
) -> State:
    """The state after an operation with this answer of a server.

    A pop that is not `alone` runs concurrently with other requests: it may skip partitions that they have locked.
    `home` says in which of several databases a partition is: then a pop has messages of one database, which it chooses
    and fills its batch from as if there were no other.

    Raises:
        Violation: the answer is not one that the specification allows.
    """
    match operation, observed:
        case Pop(), Popped():
            return _admit_pop(state, operation, observed, now, alone=alone, home=home)
        case Transaction(), RolledBack():
            return _admit_rollback(state, operation, observed, now)
    after, expected = step(state, operation, now)
    if expected != observed:
        raise Violation(_broken(expected, observed), f"expected {expected}, observed {observed}")
    return after


def _admit_rollback(state: State, operation: Transaction, observed: RolledBack, now: float) -> State:
    """A server may name any of the operations that had to fail, in its own words."""
    _, results = attempt(state, operation, now)
    if observed.index not in {index for index, result in enumerate(results) if refusal(result)}:
        raise Violation("G-TXN-1", f"operation {observed.index} had no reason to fail: {observed.error}")
    return state


def _broken(expected: Outcome, observed: Outcome) -> str:  # noqa: PLR0911 - one for each kind of answer
    """The guarantee behind a difference; that each item has its own answer if nothing more special is."""
    match expected, observed:
        case Pushed(), Pushed():
            return next((_broken_push(*pair) for pair in _differing(expected.results, observed.results)), "G-ISO-2")
        case Acked(), Acked():
            return next((_broken_ack(*pair) for pair in _differing(expected.results, observed.results)), "G-ISO-2")
        case RolledBack(), Committed():
            return "G-TXN-3"
        case (QueueFull(), _) | (_, QueueFull()):
            return "G-RET-8"
        case Removed(), Removed():
            return _broken_removal(expected, observed)
    if isinstance(expected, CycleResult) and isinstance(observed, CycleResult):
        return "G-STR-2" if expected.error and not observed.error else "G-STR-1"
    return _BROKEN.get(type(expected), "G-ISO-2")


def _differing(left: Iterable[T], right: Iterable[T]) -> Iterable[tuple[T, T]]:
    return (pair for pair in zip(left, right, strict=False) if pair[0] != pair[1])


def _broken_push(expected: PushResult, observed: PushResult) -> str:
    statuses = {expected.status, observed.status}
    if "refused" in statuses:
        return "G-IDEM-4"
    if statuses == {"duplicate"}:
        return "G-IDEM-2"
    return "G-IDEM-1" if "duplicate" in statuses else "G-ORD-2"


def _broken_removal(expected: Removed, observed: Removed) -> str:
    early = any(oldest > expected.oldest.get(lane, oldest) for lane, oldest in observed.oldest.items())
    return "G-RET-1" if early else "G-RET-4"


def _broken_ack(expected: AckResult, observed: AckResult) -> str:
    if expected.error != observed.error:
        return {INVALID_LEASE: "G-LEASE-3", NOT_DELIVERED: "G-LEASE-6"}.get(expected.error or "", "G-ISO-2")
    return "G-ACK-4" if expected.noop != observed.noop else "G-DLQ-1"


def _admit_pop(
    state: State,
    operation: Pop,
    observed: Popped,
    now: float,
    *,
    alone: bool,
    home: Callable[[Lane], Hashable] | None,
) -> State:
    state = subscribe(state, operation, now)
    candidates = {candidate.lane: candidate for candidate in claimable(state, operation, now)}
    taken = _by_lane(observed)
    for lane, deliveries in taken.items():
        offsets = tuple(delivery.message.offset for delivery in deliveries)
        if lane not in candidates or offsets != candidates[lane].offsets[: len(offsets)]:
            raise _not_the_next(state, operation, lane, offsets, now)
    choice = {lane: len(deliveries) for lane, deliveries in taken.items()}
    _check_budget(choice, operation)
    if alone:
        _check_choice(_beside(candidates.values(), choice, home), choice, operation)
    state, expected = deliver(state, operation, choice, now)
    _check_content(operation, expected, observed)
    return state


def _beside(
    candidates: Collection[Claimable], choice: Mapping[Lane, int], home: Callable[[Lane], Hashable] | None
) -> Collection[Claimable]:
    """The partitions that a pop has chosen among: those of one database, or all if it found nothing."""
    if home is None or not choice:
        return candidates
    homes = {home(lane) for lane in choice}
    if len(homes) > 1:
        raise Violation("G-POP-1", f"messages of several databases: {choice}")
    return [candidate for candidate in candidates if home(candidate.lane) in homes]


def _by_lane(outcome: Popped) -> dict[Lane, list[Delivery]]:
    lanes: dict[Lane, list[Delivery]] = defaultdict(list)
    for delivery in outcome.deliveries:
        lanes[delivery.message.lane].append(delivery)
    return lanes


def _not_the_next(state: State, operation: Pop, lane: Lane, offsets: tuple[int, ...], now: float) -> Violation:
    """Which guarantee forbids these messages of a partition."""
    text = f"{operation} was answered with {lane} {offsets} at {now}"
    partition = state.partition(lane)
    if not matches(state, operation, lane):
        return Violation("G-POP-1", text)
    if partition is None or max(offsets) >= partition.head:
        return Violation("G-DUR-3", text)
    cursor = partition.cursors[operation.group_name]
    reasons = {
        "G-PAUSE-1": state.queues[lane.queue].pauses(operation.group_name),
        "G-LEASE-1": cursor.live_lease(now) is not None,
        "G-ACK-6": cursor.ready > now,
        "G-ACK-2": any(cursor.is_done(offset) for offset in offsets),
        "G-WAIT-2": max(offsets) >= visible(state.queues[lane.queue], partition, now),
        "G-ORD-1": list(offsets) != sorted(set(offsets)),
    }
    return Violation(next((guarantee for guarantee, broken in reasons.items() if broken), "G-ORD-2"), text)


def _check_budget(choice: Mapping[Lane, int], operation: Pop) -> None:
    if sum(choice.values()) > operation.batch or len(choice) > operation.partitions_max:
        raise Violation("G-POP-1", f"{operation} took {choice}")


def _check_choice(candidates: Collection[Claimable], choice: Mapping[Lane, int], operation: Pop) -> None:
    """The batch is filled, and no partition is skipped."""
    room = operation.batch - sum(choice.values())
    more = operation.partitions_max - len(choice)
    left = [candidate for candidate in candidates if choice.get(candidate.lane, 0) < len(candidate.offsets)]
    begun = [candidate.lane for candidate in left if candidate.lane in choice]
    reachable = left if more else begun
    if len(begun) > 1 or (room and reachable):
        raise Violation("G-POP-3", f"{operation} took {choice} and left {left}")
    for passed in left:
        _check_turn(passed, (candidate for candidate in candidates if candidate.lane in choice))


def _check_turn(passed: Claimable, taken: Iterable[Claimable]) -> None:
    for other in taken:
        if other.priority < passed.priority:
            raise Violation("G-POP-4", f"{other} was taken before {passed}")
        if other.priority == passed.priority and passed.since < other.ready:
            raise Violation("G-POP-2", f"{other} was taken before {passed}")


def _check_content(operation: Pop, expected: Popped, observed: Popped) -> None:
    if expected.lease != observed.lease:
        raise Violation("G-POP-5" if operation.auto_ack else "G-POP-1", f"lease {observed.lease}")
    answered = {delivery.message: delivery for delivery in observed.deliveries}
    for want in expected.deliveries:
        seen = answered[want.message]
        if (want.transaction_id, want.payload) != (seen.transaction_id, seen.payload):
            raise Violation("G-DUR-3", f"expected {want}, observed {seen}")
        if want.created_at != seen.created_at:
            raise Violation("G-ORD-5", f"expected {want}, observed {seen}")
        if seen.attempt not in {None, want.attempt}:
            raise Violation("G-LEASE-5", f"expected {want}, observed {seen}")
