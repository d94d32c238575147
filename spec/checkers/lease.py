"""Leases: who holds a partition, and until when.

The server's clock is not seen. What is certain: a lease begins between the invocation of its pop and the answer. So
it lives at least until the invocation plus its length, if nothing ends it before, and at most until the answer plus
its length, if nothing renews it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..guarantees import Level, checks
from ..history import NEVER, AckItem, Call, Delivery, History, Lane, Pop, Renewal
from .spans import Span, greatest_before
from .verdict import NotObservableError, Violation

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Holding:
    """The lease of one pop on one lane; between `pop.end` and `surely_until` it is certainly alive."""

    pop: Pop
    lane: Lane
    surely_until: int
    at_most_until: int


@checks("G-LEASE-1", level=Level.LIVE)
def a_lease_excludes_all_others(history: History) -> Iterator[Violation | None]:
    """No two leases live at once, and nothing is delivered beside a live one."""
    for (_, group), holdings in _holdings(history).items():
        yield from _at_once(holdings, group)
        spans = [Span(each.pop.invoked, each.pop.end, each.surely_until, each.pop.lease) for each in holdings]
        for span, before in greatest_before(spans):
            beside = before is not None and span.completed < before.value
            # Two leases that live at once have been reported.
            text = f"delivered to group {group} while the lease {before.subject if before else ''} was alive"
            yield Violation(span.subject, text) if beside and span.value <= span.completed else None


def _at_once(holdings: list[Holding], group: str) -> Iterator[Violation | None]:
    until, holder = 0, ""
    for each in sorted(holdings, key=lambda holding: holding.pop.end):
        if each.surely_until > each.pop.end:
            text = f"lives in {each.lane} for group {group} beside the lease {holder}"
            yield Violation(each.pop.lease, text) if each.pop.end < until else None
        if each.surely_until > until:
            until, holder = each.surely_until, each.pop.lease


def _holdings(history: History) -> dict[tuple[Lane, str], list[Holding]]:
    """What pops took of each lane and group. An autoAck pop takes it for no time at all."""
    endings = defaultdict(list)
    for call, item in history.acked:
        endings[item.lane, item.group, item.lease].append((call, item))
    renewals = defaultdict(list)
    for renewal in history.renewals:
        renewals[renewal.lease].append(renewal)
    found = defaultdict(list)
    for (lane, group), deliveries in history.deliveries_to.items():
        for pop, messages in _by_pop(deliveries).values():
            acks = [*endings[lane, group, pop.lease], *endings[lane, group, None]]
            surely = 0 if pop.auto_ack else _surely_until(pop, messages, acks, renewals[pop.lease])
            at_most = pop.end if pop.auto_ack else _at_most_until(pop, renewals[pop.lease])
            found[lane, group].append(Holding(pop, lane, surely, at_most))
    return {place: _superseded(holdings) for place, holdings in found.items()}


def _by_pop(deliveries: list[tuple[Pop, Delivery]]) -> dict[int, tuple[Pop, set[str]]]:
    found: dict[int, tuple[Pop, set[str]]] = {}
    for pop, delivery in deliveries:
        found.setdefault(id(pop), (pop, set()))[1].add(delivery.transaction_id)
    return found


def _surely_until(pop: Pop, messages: set[str], acks: Sequence[tuple[Call, AckItem]], renewals: list[Renewal]) -> int:
    """The earliest possible end: by time, by a nack, or by the ack of the last message."""
    if pop.lease_seconds is None:
        return 0
    end = pop.invoked + int(pop.lease_seconds * SECOND_NS)
    granted = [each.invoked + int(each.seconds * SECOND_NS) for each in renewals if each.outcome == "ok"]
    end = max([end, *granted])
    left = set(messages)
    for call, item in sorted(acks, key=lambda ack: ack[0].invoked):
        if item.outcome == "fail":
            continue
        left.discard(item.transaction_id)
        if not left or item.status == "retry" or (item.status == "failed" and not item.dead):
            return min(end, call.invoked)
    return end


def _at_most_until(pop: Pop, renewals: list[Renewal]) -> int:
    if pop.lease_seconds is None:
        return NEVER
    possible = [each.end + int(each.seconds * SECOND_NS) for each in renewals if each.outcome != "fail"]
    return max([pop.end + int(pop.lease_seconds * SECOND_NS), *possible])


def _superseded(holdings: list[Holding]) -> list[Holding]:
    """A lease is over when a later pop of the same lane and group is answered with messages."""
    later = sorted(holdings, key=lambda each: each.pop.invoked)
    starts = [each.pop.invoked for each in later]
    ends = [NEVER] * (len(later) + 1)
    for number in range(len(later) - 1, -1, -1):
        ends[number] = min(ends[number + 1], later[number].pop.end)
    return [
        Holding(
            each.pop, each.lane, each.surely_until, min(each.at_most_until, ends[bisect_left(starts, each.pop.end)])
        )
        for each in holdings
    ]


@checks("G-LEASE-3", level=Level.LIVE)
def an_ended_lease_acks_nothing(history: History) -> Iterator[Violation | None]:
    """An ack under a lease that is over is refused, unless it repeats what is done."""
    over = {
        (each.lane, group, each.pop.lease): each.at_most_until
        for (_, group), holdings in _holdings(history).items()
        for each in holdings
    }
    for call, item in history.acked:
        end = over.get((item.lane, item.group, item.lease or ""), NEVER)
        if call.invoked > end and call.outcome == "ok":
            repeats = item.noop or _may_be_done(history, call, item)
            text = f"was acked under the lease {item.lease}, which was over"
            yield Violation(item.transaction_id, text) if item.outcome == "ok" and not repeats else None


def _may_be_done(history: History, call: Call, item: AckItem) -> bool:
    others = history.acks_of[item.lane, item.group, item.transaction_id]
    taken = history.done_at.get((item.lane, item.group, item.transaction_id), NEVER) < call.invoked
    return taken or any(other.may_finish and each.invoked <= call.end for each, other in others if other is not item)


@checks("G-LEASE-4", level=Level.LIVE)
def a_renewal_revives_nothing(history: History) -> Iterator[Violation | None]:
    """A renewal is granted only while its lease lives on some lane."""
    pops: dict[str, list[Holding]] = defaultdict(list)
    for holdings in _holdings(History(tuple(r for r in history.records if not isinstance(r, Renewal)))).values():
        for each in holdings:
            pops[each.pop.lease].append(each)
    until: dict[str, int] = {}
    for renewal in sorted(history.renewals, key=lambda each: each.invoked):
        if renewal.lease not in pops:
            continue
        end = until.setdefault(renewal.lease, max(each.at_most_until for each in pops[renewal.lease]))
        if renewal.outcome != "unknown":
            text = "was renewed after it was over"
            yield Violation(renewal.lease, text) if renewal.outcome == "ok" and renewal.invoked > end else None
        if renewal.outcome != "fail":
            until[renewal.lease] = max(end, renewal.end + int(renewal.seconds * SECOND_NS))


@checks("G-LEASE-5", level=Level.LIVE)
def attempts_rise(history: History) -> Iterator[Violation | None]:
    """`deliveryAttempt` is 1 if nobody can have had the message before, and more than at every earlier delivery."""
    if history.delivered and all(delivery.attempt is None for _, delivery in history.delivered):
        raise NotObservableError("deliveries carry no deliveryAttempt")
    hidden: dict[tuple[str, str], int] = {}
    for pop in history.pops:
        if pop.outcome == "unknown":
            hidden[pop.queue, pop.group] = min(pop.invoked, hidden.get((pop.queue, pop.group), NEVER))
    for (lane, group), deliveries in history.deliveries_to.items():
        by_message = defaultdict(list)
        for pop, delivery in deliveries:
            span = Span(pop.invoked, pop.end, delivery.attempt or 0, delivery.transaction_id)
            by_message[delivery.transaction_id].append(span)
        for spans in by_message.values():
            first = min(spans, key=lambda span: span.invoked)
            alone = sum(span.invoked <= first.completed for span in spans) == 1
            if alone and hidden.get((lane.queue, group), NEVER) > first.completed:
                text = f"has attempt {first.value} at its first delivery to group {group}"
                yield None if first.value == 1 else Violation(first.subject, text)
            for span, before in greatest_before(spans):
                text = f"has attempt {span.value} after attempt {before.value if before else 0}"
                yield Violation(span.subject, text) if before and before.value >= span.value else None
