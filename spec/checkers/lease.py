"""Leases: which consumer holds a partition, and until when.

The server's clock is not seen. What is certain: a lease begins between the invocation of its pop and the answer. So
it lives at least until the invocation plus its length, if nothing ends it before, and at most until the answer plus
its length, if nothing renews it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nsmallest
from operator import attrgetter

from ..guarantees import Level, checks
from ..history import NEVER, AckItem, Call, History, Pop, Reading, Track
from .spans import Span, greatest_before
from .verdict import NotObservableError, Violation

SECOND_NS = 1_000_000_000


@dataclass(slots=True)
class Holding:
    """The lease of one pop on one lane; between `begun` and `surely_until` it is certainly alive.

    After `at_most_until` it is certainly over; `unrenewed_until` is the same if nothing renewed it.
    """

    lease: str
    invoked: int
    begun: int
    surely_until: int
    at_most_until: int
    unrenewed_until: int


@checks("G-LEASE-1", level=Level.LIVE)
def a_lease_excludes_all_others(history: History) -> Iterator[Violation | None]:
    """No two leases are live at once, and nothing is delivered outside a live one."""
    for track, holdings in history.view(_holdings).items():
        yield from _at_once(track, holdings)
        spans = ((each.invoked, each.begun, each.surely_until, each.lease) for each in holdings)
        for (_, begun, until, lease), before in greatest_before(spans):
            # Overlapping leases have already been reported.
            if before is not None and until <= begun < before[2]:
                yield Violation(lease, f"delivered to group {track.group} while the lease {before[3]} was alive")
            else:
                yield None


def _at_once(track: Track, holdings: list[Holding]) -> Iterator[Violation | None]:
    until, holder = 0, ""
    for each in sorted(holdings, key=attrgetter("begun")):
        if each.surely_until > each.begun:
            if each.begun < until:
                text = f"lives in {track.lane} for group {track.group} beside the lease {holder}"
                yield Violation(each.lease, text)
            else:
                yield None
        if each.surely_until > until:
            until, holder = each.surely_until, each.lease


def _holdings(history: History) -> dict[Track, list[Holding]]:
    """The holdings of each lane and group."""
    granted: dict[str, int] = {}
    possible: dict[str, int] = {}
    for renewal in history.renewals:
        lease, length = renewal.lease, int(renewal.seconds * SECOND_NS)
        if renewal.outcome == "ok":
            granted[lease] = max(granted.get(lease, 0), renewal.invoked + length)
        if renewal.outcome != "fail":
            possible[lease] = max(possible.get(lease, 0), renewal.end + length)
    acked = _FirstAcks(history)
    found = {}
    for track in history.tracks:
        found[track] = [_holding(pop, readings, granted, possible, acked) for pop, readings in track.claims]
        _supersede(found[track])
    return found


def _holding(
    pop: Pop, readings: list[Reading], granted: dict[str, int], possible: dict[str, int], acked: _FirstAcks
) -> Holding:
    """The holding of a pop; an autoAck pop has none."""
    lease, end = pop.lease, pop.end
    if pop.auto_ack:
        return Holding(lease, pop.invoked, end, 0, end, end)
    if pop.lease_seconds is None:
        return Holding(lease, pop.invoked, end, 0, NEVER, NEVER)
    length = int(pop.lease_seconds * SECOND_NS)
    surely = min(max(pop.invoked + length, granted.get(lease, 0)), acked.end_of(lease, readings))
    return Holding(lease, pop.invoked, end, surely, max(end + length, possible.get(lease, 0)), end + length)


class _FirstAcks:
    """When a message was first acked under a lease, or under none, and when it was first sent back."""

    def __init__(self, history: History) -> None:
        self._any: dict[tuple[str | None, Reading], int] = {}
        self._nack: dict[tuple[str | None, Reading], int] = {}
        for reading in history.readings:
            for call, item in reading.acks:
                if item.outcome != "fail":
                    place, time = (item.lease or None, reading), call.invoked
                    if time < self._any.get(place, NEVER):
                        self._any[place] = time
                    again = item.status == "retry" or (item.status == "failed" and not item.dead)
                    if again and time < self._nack.get(place, NEVER):
                        self._nack[place] = time

    def end_of(self, lease: str, readings: list[Reading]) -> int:
        """The earliest time at which acks may have ended a lease: a nack, or the ack of the last message."""
        last, nack = 0, NEVER
        for reading in readings:
            named, bare = (lease, reading), (None, reading)
            last = max(last, min(self._any.get(named, NEVER), self._any.get(bare, NEVER)))
            if self._nack:
                nack = min(nack, self._nack.get(named, NEVER), self._nack.get(bare, NEVER))
        return min(last, nack)


def _supersede(holdings: list[Holding]) -> None:
    """A lease is over when a later pop of the same lane and group is answered with messages."""
    later = sorted(holdings, key=attrgetter("invoked"), reverse=True)
    number, over = 0, NEVER
    for each in sorted(holdings, key=attrgetter("begun"), reverse=True):
        while later[number].invoked >= each.begun:
            over = min(over, later[number].begun)
            number += 1
        if over < each.at_most_until:
            each.at_most_until = over
            each.unrenewed_until = min(each.unrenewed_until, over)


@checks("G-LEASE-3", level=Level.LIVE)
def an_ended_lease_acks_nothing(history: History) -> Iterator[Violation | None]:
    """An ack under an expired lease is refused, unless it repeats an earlier ack."""
    over = {
        (track, each.lease): each.at_most_until
        for track, holdings in history.view(_holdings).items()
        for each in holdings
    }
    for reading in history.readings:
        late = _late_acks(reading, over)
        finishing = _first_two_that_finish(reading) if late else []
        for call, item in late:
            if item.outcome != "ok" or item.noop or _may_be_done(reading, call, finishing):
                yield None
            else:
                yield Violation(item.transaction_id, f"was acked under the lease {item.lease}, which was over")


def _late_acks(reading: Reading, over: dict[tuple[Track, str], int]) -> list[tuple[Call, AckItem]]:
    """Answered acks under a lease that was over."""
    return [
        (call, item)
        for call, item in reading.acks
        if item.lease and call.outcome == "ok" and call.invoked > over.get((reading.track, item.lease), NEVER)
    ]


def _first_two_that_finish(reading: Reading) -> list[Call]:
    """The first two calls that may have finished the message: at least one of them is not the compared call."""
    calls = {id(call): call for call, item in reading.acks if item.may_finish}
    return nsmallest(2, calls.values(), key=attrgetter("invoked"))


def _may_be_done(reading: Reading, call: Call, finishing: list[Call]) -> bool:
    """Whether another call may have finished the message before the end of this one."""
    if reading.done_at < call.invoked or reading.maybe_done_at < call.invoked:
        return True
    return any(each is not call and each.invoked <= call.end for each in finishing)


@checks("G-LEASE-4", level=Level.LIVE)
def a_renewal_revives_nothing(history: History) -> Iterator[Violation | None]:
    """A renewal is granted only while its lease lives on some lane."""
    until: dict[str, int] = {}
    for holdings in history.view(_holdings).values() if history.renewals else ():
        for each in holdings:
            until[each.lease] = max(each.unrenewed_until, until.get(each.lease, 0))
    for renewal in history.renewals:
        if renewal.lease not in until:
            continue
        end = until[renewal.lease]
        if renewal.outcome != "unknown":
            text = "was renewed after it was over"
            yield Violation(renewal.lease, text) if renewal.outcome == "ok" and renewal.invoked > end else None
        if renewal.outcome != "fail":
            until[renewal.lease] = max(end, renewal.end + int(renewal.seconds * SECOND_NS))


@checks("G-LEASE-5", level=Level.LIVE)
def attempts_rise(history: History) -> Iterator[Violation | None]:
    """`deliveryAttempt` is 1 at a certain first delivery, and greater than at every earlier delivery."""
    told = False
    for reading in history.readings:
        spans = _attempts(reading)
        if spans:
            told = True
            yield _first_attempt(history, reading, spans)
        if len(spans) > 1:
            for (_, _, attempt, id_), before in greatest_before(spans):
                late = before is not None and before[2] >= attempt
                text = f"has attempt {attempt} after attempt {before[2] if before else 0}"
                yield Violation(id_, text) if late else None
    if not told and any(pop.deliveries for pop in history.pops):
        raise NotObservableError("deliveries carry no deliveryAttempt")


def _attempts(reading: Reading) -> list[Span]:
    """The deliveries with the attempts that they told."""
    return [
        (pop.invoked, pop.end, delivery.attempt, delivery.transaction_id)
        for pop, delivery in reading.deliveries
        if delivery.attempt is not None
    ]


def _first_attempt(history: History, reading: Reading, spans: list[Span]) -> Violation | None:
    """The first delivery has attempt 1, if it is known which one was the first."""
    _, completed, attempt, id_ = min(spans)
    if attempt == 1:
        return None
    alone = sum(pop.invoked <= completed for pop, _ in reading.deliveries) == 1
    place = (reading.track.lane.queue, reading.track.group)
    if not alone or history.unanswered_pops.get(place, NEVER) <= completed:
        return None
    return Violation(id_, f"has attempt {attempt} at its first delivery to group {place[1]}")
