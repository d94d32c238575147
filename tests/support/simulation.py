"""Clients of the reference model, side by side: what they see is valid by construction."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random

from spec import history, model
from spec.linearizability import Call
from spec.model import QUEUE_MODE, Lane, MessageId

SECOND_NS = 1_000_000_000
OPTIONS = model.Options(lease_time=30, retry_limit=1)
GROUPS = (None, "g")
_NAMES = "abcdefghij"


class Simulation:
    """Every call takes effect at one moment between its invocation and its answer; one in ten is never answered.

    Attributes:
        beginning: the state before the first call.
        calls: what was asked and answered so far.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._time, self._now = 1, 0.0
        self._delivered: list[tuple[model.Delivery, str | None, str | None]] = []
        self.calls: list[Call] = []
        self.beginning, _ = model.step(model.State(), model.Configure("q", OPTIONS), 0.0)
        self._state = self.beginning

    def run(self, rounds: int) -> list[Call]:
        """So many rounds of calls that meet; between two rounds a lease may run out."""
        for _ in range(rounds):
            self._now += self._random.choice((0, 0, 0, 31))
            together = self._random.randint(1, 4)
            moments = self._random.sample(range(self._time, self._time + 3 * together), 3 * together)
            spans = [sorted(moments[3 * number : 3 * number + 3]) for number in range(together)]
            for begin, _, end in sorted(spans, key=lambda span: span[1]):
                self._call(self._operation(), begin, end, lost=self._random.random() < 0.1)
            self._time += 3 * together
        return self.calls

    def drain(self) -> list[Call]:
        """Everybody becomes reliable: takes and acks what is left."""
        for group in GROUPS:
            delivered: tuple[model.Delivery, ...] | None = None
            while delivered != ():
                self._now += 41
                pop = model.Pop("q", group=group, batch=1000, partitions=10, lease=f"drain {self._time}")
                popped = self._alone(pop)
                assert isinstance(popped, model.Popped)
                delivered = popped.deliveries
                items = (self._ack_item(each, group, popped.lease, "completed") for each in delivered)
                self._alone(model.Ack(tuple(items)))
        return self.calls

    def _alone(self, operation: model.Operation) -> model.Outcome | None:
        self._call(operation, self._time, self._time + 1, lost=False)
        self._time += 2
        return self.calls[-1].outcome

    def _call(self, operation: model.Operation, begin: int, end: int, *, lost: bool) -> None:
        outcome: model.Outcome | None = None
        if not lost or self._random.random() < 0.5:
            self._state, outcome = model.step(self._state, operation, self._now)
        if lost:
            self.calls.append(Call(operation, begin, now=self._now))
            return
        self.calls.append(Call(operation, begin, end, outcome, self._now))
        if isinstance(operation, model.Pop) and isinstance(outcome, model.Popped):
            self._delivered += [(each, operation.group, outcome.lease) for each in outcome.deliveries]

    def _operation(self) -> model.Operation:
        kind = self._random.choice((self._push, self._push, self._pop, self._pop, self._ack, self._ack, self._other))
        return kind()

    def _push(self) -> model.Operation:
        return model.Push(tuple(self._item() for _ in range(self._random.randint(1, 3))))

    def _item(self) -> model.PushItem:
        name, lane = self._random.choice(_NAMES), self._random.choice("pr")
        return model.PushItem("q", {"id": name}, lane, name)

    def _pop(self) -> model.Operation:
        group, automatic = self._random.choice(GROUPS), self._random.random() < 0.2
        batch, partitions = self._random.randint(1, 4), self._random.randint(1, 2)
        lease = f"l{len(self.calls)}"
        return model.Pop("q", group=group, batch=batch, partitions=partitions, auto_ack=automatic, lease=lease)

    def _ack(self) -> model.Operation:
        if not self._delivered:
            return self._push()
        status = self._random.choice(("completed", "completed", "failed", "retry", "dlq"))
        return model.Ack((self._ack_item(*self._random.choice(self._delivered), status),))

    def _other(self) -> model.Operation:
        if not self._delivered:
            return self._push()
        delivered = self._random.choice(self._delivered)
        if self._random.random() < 0.3 and delivered[2]:
            return model.RenewLease(delivered[2], 40)
        output = model.PushItem("out", None, "p", f"x{len(self.calls)}")
        return model.Transaction((self._ack_item(*delivered, "completed"), output))

    def _ack_item(self, of: model.Delivery, group: str | None, lease: str | None, status: str) -> model.AckItem:
        return model.AckItem(*of.message.lane, of.transaction_id, status, group, lease)


def records(calls: list[Call]) -> Iterator[history.Record]:
    """The same as a history, with all that is drained at its end."""
    yield history.Configured(queue="q", retry_limit=OPTIONS.retry_limit)
    end = 0
    for call in calls:
        # The model's time and the order of calls in one clock.
        began = int(call.now * SECOND_NS) + call.invoked
        known = call.outcome is not None
        end = max(end, began)
        times = {"invoked": began, "completed": began - call.invoked + call.completed if known else None}
        yield _record(call, times)
    for group in GROUPS:
        yield history.Drained(at=end + SECOND_NS, queue="q", group=group or QUEUE_MODE)


def _record(call: Call, times: dict[str, int | None]) -> history.Record:
    outcome = "ok" if call.outcome is not None else "unknown"
    match call.operation, call.outcome:
        case model.Push(items), told:
            results = told.results if isinstance(told, model.Pushed) else (None,) * len(items)
            pushed = tuple(_pushed(*pair) for pair in zip(items, results, strict=True))
            return history.Push(**times, outcome=outcome, items=pushed)
        case model.Ack(items), told:
            judged = told.results if isinstance(told, model.Acked) else (None,) * len(items)
            acked = tuple(_acked(*pair) for pair in zip(items, judged, strict=True))
            return history.Ack(**times, outcome=outcome, items=acked)
        case model.Pop() as pop, told:
            return _popped(pop, told if isinstance(told, model.Popped) else model.Popped(), times, outcome)
        case model.RenewLease(lease, seconds), told:
            granted = "fail" if isinstance(told, model.Renewed) and not told.cursors else outcome
            return history.Renewal(**times, outcome=granted, lease=lease, seconds=seconds)
        case model.Transaction(operations), told:
            whole = "fail" if isinstance(told, model.RolledBack) else outcome
            acks = tuple(_input(each, whole) for each in operations if isinstance(each, model.AckItem))
            pushes = tuple(_output(each, whole) for each in operations if isinstance(each, model.PushItem))
            return history.Transaction(**times, outcome=whole, pushes=pushes, acks=acks)
    raise AssertionError(call)


def _pushed(item: model.PushItem, result: model.PushResult | None) -> history.PushItem:
    name = _text(result.message) if result and result.message else None
    duplicate = result is not None and result.status == "duplicate"
    outcome = "ok" if result else "unknown"
    return history.PushItem(*item.lane, str(item.transaction_id), item.payload, outcome, duplicate, name)


def _input(item: model.AckItem, outcome: history.Outcome) -> history.AckItem:
    name = str(item.transaction_id)
    return history.AckItem(*item.lane, name, item.group_name, lease=item.lease, outcome=outcome)


def _output(item: model.PushItem, outcome: history.Outcome) -> history.PushItem:
    return history.PushItem(*item.lane, str(item.transaction_id), item.payload, outcome)


def _acked(item: model.AckItem, result: model.AckResult | None) -> history.AckItem:
    outcome = "unknown" if result is None else "fail" if result.error else "ok"
    flags = (result.dead_lettered, result.noop) if result else (False, False)
    return history.AckItem(
        *item.lane, str(item.transaction_id), item.group_name, item.status, item.lease, outcome, *flags
    )


def _popped(pop: model.Pop, told: model.Popped, times: dict[str, int | None], outcome: str) -> history.Pop:
    deliveries = tuple(
        history.Delivery(
            *each.message.lane, str(each.message.lane), _text(each.message), str(each.transaction_id), each.payload,
            told.lease or "", each.message.offset, each.attempt, _moment(each.created_at),
        )
        for each in told.deliveries
    )  # fmt: skip
    asked = {"queue": str(pop.queue), "group": pop.group_name, "batch": pop.batch, "partitions": pop.partitions}
    return history.Pop(
        **times, **asked, outcome=outcome, auto_ack=pop.auto_ack, lease_seconds=OPTIONS.lease_time,
        lease=told.lease or "", deliveries=deliveries,
    )  # fmt: skip


def _text(message: MessageId) -> str:
    return f"{Lane(*message.lane)}/{message.offset}"


def _moment(now: float) -> str:
    return (datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=now)).isoformat()
