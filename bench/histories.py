"""Valid histories of any length, in which every checker finds something to judge."""

from collections.abc import Iterator

from spec.history import (
    Ack,
    AckItem,
    Configured,
    Delivery,
    Drained,
    History,
    Outcome,
    Pop,
    Push,
    PushItem,
    Record,
    Renewal,
    Transaction,
)

_MS, _SECOND = 1_000_000, 1_000_000_000
_LANES = 50
_RETRY_LIMIT = 1
_CREATED_AT = "2030-01-01T00:00:00Z"


def history(calls: int) -> History:
    """At least this many calls with few messages: pushes, pops, acks, renewals and transactions."""
    configured = Configured(queue="q", retry_limit=_RETRY_LIMIT)
    return History((configured, *_Story().records(calls)))


class _Story:
    """The calls for one message after the other; its number decides which."""

    def __init__(self) -> None:
        self._now = _SECOND
        self._leases = 0
        self._offsets = [0] * _LANES
        self._calls = 0

    def records(self, calls: int) -> Iterator[Record]:
        """One message after the other, until there were this many calls; then all messages are done."""
        number = 0
        while self._calls < calls:
            yield from self._life(number)
            number += 1
        yield Drained(at=self._now + 1, queue="q")

    def _life(self, number: int) -> Iterator[Record]:
        lane, first, id_ = f"p{number % _LANES}", number % 13 == 0, f"t{number}"
        if first:
            yield self._push(lane, id_, "unknown")
        yield self._push(lane, id_, "ok", duplicate=first, companions=2 if number % 23 == 0 else 0)
        offset = self._offsets[number % _LANES]
        count = 3 if number % 23 == 0 else 1
        self._offsets[number % _LANES] += count
        ids = [id_, *(f"{id_}+{each}" for each in range(1, count))]
        if number % 19 == 0:
            yield self._pop(lane, ids, offset, 1, auto_ack=True)
            return
        pop = self._pop(lane, ids, offset, 1)
        yield pop
        if number % 10 == 0:  # its consumer crashes
            self._now += _SECOND
            late, pop = pop, self._pop(lane, ids, offset, 2)
            yield pop
            yield self._renew(late, "fail")
            yield self._ack(lane, ids, late, outcome="fail")
        if number % 17 == 0:
            yield self._renew(pop, "ok")
        if number % 11 == 0:
            for attempt in range(2, _RETRY_LIMIT + 2):
                yield self._ack(lane, ids, pop, "failed")
                pop = self._pop(lane, ids, offset, attempt + (number % 10 == 0))
                yield pop
            yield self._ack(lane, ids, pop, "failed", dead=True)
        elif number % 7 == 0:
            yield self._transact(lane, ids, pop, f"x{number}", "ok")
            yield self._transact(lane, ids, pop, f"y{number}", "fail")
        else:
            yield self._ack(lane, ids, pop)
            yield self._ack(lane, ids, pop, noop=True)

    def _times(self, outcome: Outcome = "ok") -> tuple[int, int | None]:
        self._calls += 1
        began, self._now = self._now, self._now + 2 * _MS
        return began, None if outcome == "unknown" else began + _MS

    def _push(self, lane: str, id_: str, outcome: Outcome, *, duplicate: bool = False, companions: int = 0) -> Push:
        invoked, completed = self._times(outcome)
        first = PushItem("q", lane, id_, {"id": id_}, outcome, duplicate, f"m-{id_}" if outcome == "ok" else None)
        others = (f"{id_}+{number}" for number in range(1, companions + 1))
        items = (first, *(PushItem("q", lane, each, {"id": each}, "ok", False, f"m-{each}") for each in others))
        return Push(invoked=invoked, completed=completed, outcome=outcome, items=items)

    def _pop(self, lane: str, ids: list[str], offset: int, attempt: int, *, auto_ack: bool = False) -> Pop:
        invoked, completed = self._times()
        self._leases += 1
        lease = "" if auto_ack else f"l{self._leases}"
        deliveries = tuple(
            Delivery("q", lane, lane, f"m-{id_}", id_, {"id": id_}, lease, offset + place, attempt, _CREATED_AT)
            for place, id_ in enumerate(ids)
        )
        return Pop(
            invoked=invoked, completed=completed, queue="q", lease=lease, lease_seconds=1, batch=5, auto_ack=auto_ack,
            deliveries=deliveries,
        )  # fmt: skip

    def _items(self, lane: str, ids: list[str], pop: Pop, outcome: Outcome, **how: object) -> tuple[AckItem, ...]:
        status, dead = str(how.get("status", "completed")), bool(how.get("dead"))
        return tuple(
            AckItem(
                "q", lane, id_, lease=pop.lease, status=status, outcome=outcome, dead=dead, noop=bool(how.get("noop"))
            )
            for id_ in ids
        )

    def _ack(
        self, lane: str, ids: list[str], pop: Pop, status: str = "completed", outcome: Outcome = "ok",
        *, dead: bool = False, noop: bool = False,
    ) -> Ack:  # fmt: skip
        invoked, completed = self._times()
        items = self._items(lane, ids, pop, outcome, status=status, dead=dead, noop=noop)
        return Ack(invoked=invoked, completed=completed, items=items)

    def _renew(self, pop: Pop, outcome: Outcome) -> Renewal:
        invoked, completed = self._times()
        return Renewal(invoked=invoked, completed=completed, outcome=outcome, lease=pop.lease, seconds=1)

    def _transact(self, lane: str, ids: list[str], pop: Pop, output: str, outcome: Outcome) -> Transaction:
        invoked, completed = self._times()
        pushes = (PushItem("out", lane, output, None, outcome),)
        acks = self._items(lane, ids, pop, outcome)
        return Transaction(invoked=invoked, completed=completed, outcome=outcome, pushes=pushes, acks=acks)
