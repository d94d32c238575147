"""Load tests on the reference model: the journal of an agent, and what the database held at the end."""

from dataclasses import dataclass, field
from typing import Any

from queen.log import ids
from spark_validation.inputs import (
    Cursor,
    DeadLetter,
    Deleted,
    Flaw,
    Group,
    Head,
    IdSum,
    LogRow,
    Offsets,
    Queue,
    Waiting,
)
from spark_validation.journal.history import payload_hash
from spark_validation.journal.schema import QUEUE_MODE, AckItem, Call, Delivery, PushItem
from spec import model

EPOCH_S = 1_900_000_000
LEASE_S = 60
MS = 1_000


@dataclass
class Tables:
    """Rows of journals and of a database, of any number of runs."""

    calls: list[Call] = field(default_factory=list)
    log: list[LogRow] = field(default_factory=list)
    heads: list[Head] = field(default_factory=list)
    cursors: list[Cursor] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    deleted: list[Deleted] = field(default_factory=list)
    retired: list[Group] = field(default_factory=list)
    id_sums: list[IdSum] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)

    def add(self, other: "Tables") -> None:
        """Takes in the rows of another run."""
        for name, rows in vars(self).items():
            rows.extend(getattr(other, name))


class Run:
    """One agent against the model; each call takes 2 ms, and happens in their middle."""

    def __init__(self, name: str, part_ids: int, retry_limit: int = 2) -> None:
        self.name, self.queue, self.out = name, f"{name}.in", f"{name}.out"
        self.state, self.now, self.calls = model.State(), 0, []
        self._part_ids, self._parts, self._leases = part_ids, {}, 0
        for queue in (self.queue, self.out):
            options = model.Options(lease_time=LEASE_S, retry_limit=retry_limit)
            self.state, _ = model.step(self.state, model.Configure(queue, options), 0)
            self._write("configured", self._time(), None, queue=queue, retry_limit=retry_limit)

    def _time(self) -> int:
        return EPOCH_S * 1_000_000 + self.now

    def _write(self, kind: str, sent: int, answered: int | None, **fields: Any) -> Call:
        self.calls.append(
            Call(run="r", agent=self.name, number=len(self.calls), kind=kind, sent=sent, answered=answered, **fields)
        )
        return self.calls[-1]

    def _call(self, operation: model.Operation, answered: bool, happens: bool = True) -> tuple[Any, dict[str, Any]]:
        """The outcome, and the times as the client sees them."""
        sent, self.now = self._time(), self.now + MS
        outcome: Any = None
        if happens:
            self.state, outcome = model.step(self.state, operation, self.now / 1e6)
        self.now += MS
        times = {"sent": sent, "answered": self._time() if answered else None}
        self.now += MS
        return (outcome if answered else None), times | {"outcome": "ok" if answered else "unknown"}

    def wait(self, seconds: float) -> None:
        self.now += int(seconds * 1_000_000)

    def message_id(self, message: model.MessageId) -> str:
        return ids.message_id(self.part_id(message.queue, message.partition), message.offset)

    def part_id(self, queue: str, partition: str) -> int:
        return self._parts.setdefault((queue, partition), self._part_ids + len(self._parts))

    def _name(self, transaction_id: model.TransactionId) -> str:
        return self.message_id(transaction_id) if isinstance(transaction_id, model.MessageId) else transaction_id

    # ------------------------------------------------------------ calls

    def push(self, *items: tuple[str, str | None], answered: bool = True, happens: bool = True) -> None:
        """Items of (partition, transaction id)."""
        wanted = tuple(model.PushItem(self.queue, f"{p}/{i}", p, i) for p, i in items)
        outcome, times = self._call(model.Push(wanted), answered, happens)
        results = outcome.results if outcome else [None] * len(wanted)
        pushes = tuple(self._push_item(*each) for each in zip(wanted, results, strict=True))
        self._write("push", times.pop("sent"), times.pop("answered"), **times, pushes=pushes)

    def push_in_sql(self, *names: tuple[str, str], outcome: str = "ok", happens: bool = True) -> None:
        """A transaction of SQL with pushes of (partition, transaction id); ``unknown`` is one without an answer."""
        wanted = tuple(model.PushItem(self.queue, f"{p}/{i}", p, i) for p, i in names)
        _, times = self._call(model.Push(wanted), outcome != "unknown", happens)
        items = tuple(PushItem(self.queue, p, i, outcome, payload_hash=payload_hash(f"{p}/{i}")) for p, i in names)
        self._write("sql", times["sent"], times["answered"], outcome=outcome, pushes=items)

    def _push_item(self, item: model.PushItem, result: model.PushResult | None, outcome: str = "unknown") -> PushItem:
        id_ = item.transaction_id
        if result is not None and result.message is not None:
            id_, outcome = id_ or self.message_id(result.message), "ok"
        return PushItem(
            item.queue,
            item.partition,
            id_ or None,
            outcome,
            bool(result and result.status == "duplicate"),
            message_id=self.message_id(result.message) if result and result.message else None,
            payload_hash=payload_hash(item.payload),
        )

    def pop(
        self,
        group: str | None = None,
        batch: int = 2,
        auto_ack: bool = False,
        answered: bool = True,
        queue: str = "",
        partition: str | None = None,
    ) -> Call:
        self._leases += 1
        name = f"{self.name} lease {self._leases}"
        operation = model.Pop(
            queue or self.queue,
            partition,
            group=group,
            batch=batch,
            partitions=1 if partition else 2,
            auto_ack=auto_ack,
            lease=name,
        )
        outcome, times = self._call(operation, answered)
        return self._write(
            "pop",
            times.pop("sent"),
            times.pop("answered"),
            **times,
            queue=queue or self.queue,
            partition=partition,
            group=group or QUEUE_MODE,
            batch=batch,
            partitions=operation.partitions,
            auto_ack=auto_ack,
            lease_seconds=float(LEASE_S),
            lease=(outcome.lease if outcome else None) or "",
            deliveries=tuple(self._delivery(each) for each in (outcome.deliveries if outcome else ())),
        )

    def _delivery(self, each: model.Delivery) -> Delivery:
        message = each.message
        return Delivery(
            message.queue,
            message.partition,
            self._name(each.transaction_id),
            message.offset,
            each.attempt,
            EPOCH_S * 1_000_000 + round(each.created_at * 1e6),
            self.message_id(message),
            payload_hash(each.payload),
        )

    def _acks(self, pop: Call, statuses: list[str]) -> list[model.AckItem]:
        group = None if pop.group == QUEUE_MODE else pop.group
        found = []
        for delivery, status in zip(pop.deliveries, statuses, strict=False):
            id_: model.TransactionId = delivery.transaction_id
            if delivery.transaction_id == delivery.message_id:
                id_ = model.MessageId(delivery.queue, delivery.partition, delivery.offset or 0)
            found.append(model.AckItem(delivery.queue, delivery.partition, id_, status, group, pop.lease or None))
        return found

    def ack(self, pop: Call, *statuses: str, answered: bool = True, happens: bool = True) -> None:
        items = self._acks(pop, list(statuses) or ["completed"] * len(pop.deliveries))
        if items:
            outcome, times = self._call(model.Ack(tuple(items)), answered, happens)
            acks = tuple(
                self._ack_item(*each)
                for each in zip(items, outcome.results if outcome else [None] * len(items), strict=True)
            )
            self._write("ack", times.pop("sent"), times.pop("answered"), **times, acks=acks)

    def _ack_item(self, item: model.AckItem, result: Any, outcome: str = "unknown") -> AckItem:
        if result is not None:
            outcome = "fail" if result.error else "ok"
        return AckItem(
            item.queue,
            item.partition,
            self._name(item.transaction_id),
            item.group_name,
            item.status,
            item.lease,
            outcome,
            bool(result and result.dead_lettered),
            bool(result and result.noop),
            result and result.error,
        )

    def transact(self, pop: Call, outputs: list[str], answered: bool = True, happens: bool = True) -> None:
        """Completes what the pop delivered, and pushes the outputs."""
        acks = self._acks(pop, ["completed"] * len(pop.deliveries))
        pushes = [model.PushItem(self.out, id_, id_, id_) for id_ in outputs]
        outcome, times = self._call(model.Transaction((*acks, *pushes)), answered, happens)
        results: list[Any] = (
            list(outcome.results) if isinstance(outcome, model.Committed) else [None] * (len(acks) + len(pushes))
        )
        if answered and not isinstance(outcome, model.Committed):
            times["outcome"] = "fail"
        self._write(
            "transaction",
            times.pop("sent"),
            times.pop("answered"),
            **times,
            acks=tuple(
                self._ack_item(item, result, times["outcome"]) for item, result in zip(acks, results, strict=False)
            ),
            pushes=tuple(
                self._push_item(item, result, times["outcome"])
                for item, result in zip(pushes, results[len(acks) :], strict=True)
            ),
        )

    def drain(self, group: str | None, queue: str = "") -> None:
        """Takes and completes all that is left, and notes that the queue is empty."""
        self.wait(2 * LEASE_S)
        while (popped := self.pop(group, 50, queue=queue)).deliveries:
            self.ack(popped)
        self._write("drained", self._time(), None, queue=queue or self.queue, group=group or QUEUE_MODE)
        self.now += MS

    def end(self) -> None:
        """The last row of an agent that was not killed."""
        self._write("end", self._time(), None)

    # ------------------------------------------------------------ database

    def tables(self) -> Tables:
        """All rows of the run."""
        found = Tables(list(self.calls))
        for name, queue in self.state.queues.items():
            found.queues.append(Queue(name, int(queue.options.retry_limit)))
            found.groups += [Group(name, group, True) for group in queue.groups]
            for lane, partition in queue.partitions.items():
                part_id = self.part_id(name, lane)
                found.heads.append(Head(part_id, name, lane, partition.head, 0))
                found.log += [_row(part_id, message) for message in partition.messages]
            found.dead_letters += [
                DeadLetter(name, letter.message.partition, letter.group, letter.message.offset, letter.failures)
                for letter in queue.dead_letters
            ]
        for lane, group, cursor in self.state.cursors():
            ahead = tuple(Offsets(offset, offset) for offset in sorted(cursor.ahead))
            found.cursors.append(Cursor(lane.queue, lane.partition, group, cursor.acked, ahead))
        return found


def _row(part_id: int, message: model.Message) -> LogRow:
    chosen = None
    if isinstance(message.transaction_id, str):
        chosen = int.from_bytes(ids.transaction_hash(message.transaction_id)[:8], "big") >> 4
    created_at = EPOCH_S * 1_000_000 + round(message.created_at * 1e6)
    return LogRow(part_id, message.offset, created_at, chosen, payload_hash=payload_hash(message.payload))
