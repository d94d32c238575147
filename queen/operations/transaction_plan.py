"""The request of a transaction: its body, and what the engine executes."""

from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from queen.core.errors import BadRequestError
from queen.http.acks import AckBody, to_ack_item
from queen.http.parsing import HEADERS_TEXT, PushItem, check_group, decode, to_push, to_timer
from queen.http.room import Room
from queen.log.requests import QUEUE_MODE, AckItem, TimerChange, Transaction

_MISSING = Raw()
_EMPTY = Raw(b"{}")


class TransactionItem(PushItem):
    """One item of a nested push.

    Attributes:
        queue: created by its first message.
        partition: messages of one partition stay in order.
        payload: any JSON; unlike in a plain push, none means an empty object.
        transactionId: the transaction fails if the partition already has it.
        traceId: a UUID that is stored with the message.
        headers: texts by name, delivered beside the payload.
        delaySeconds: deliver it so many seconds from now.
        deliverAt: deliver it at this time; a time that is past: now. Instead of `delaySeconds`.
    """

    payload: Raw = _EMPTY


class OperationBody(Struct):
    """One operation: an ack, a push of `items`, or a push of one item with the fields of this object.

    Attributes:
        type: `push` or `ack`.
        items: what to push.
        queue: of a push without `items`.
        partition: of a push without `items`.
        payload: of a push without `items`; none means an empty object.
        data: the same as `payload`.
        transactionId: of the message that is pushed or acked.
        traceId: of a push without `items`.
        headers: of a push without `items`.
        partitionId: of the message that is acked.
        leaseId: of the pop; without one, and without `requiredLeases`, leases are not checked.
        status: `completed` (default) or `success`, `failed`, `dlq`.
        consumerGroup: whose message it was; empty is queue mode.
        error: why it failed.
        delaySeconds: of a push without `items`.
        deliverAt: of a push without `items`.
    """

    type: str
    items: list[TransactionItem] | None = None
    queue: str | None = None
    partition: str = "Default"
    payload: Raw = _MISSING
    data: Raw = _MISSING
    transactionId: str | None = None  # noqa: N815 - the interface's names
    traceId: str | None = None  # noqa: N815
    headers: dict[str, str] | None = None
    partitionId: str | None = None  # noqa: N815
    leaseId: str | None = None  # noqa: N815
    status: str | None = None
    consumerGroup: str | None = None  # noqa: N815
    error: str | None = None
    delaySeconds: float | None = None  # noqa: N815
    deliverAt: str | None = None  # noqa: N815


class TransactionBody(Struct):
    """Operations to execute, all or none.

    Attributes:
        operations: in the order of the results.
        requiredLeases: leases that must be live, otherwise the transaction fails.
        kv: operations on the key-value store of newer brokers. Not supported: refused unless empty.
        timers: timers of newer brokers. Not supported: refused unless empty.
    """

    operations: Annotated[list[OperationBody], Meta(extra_json_schema={"minItems": 1})]
    requiredLeases: list[str] | None = None  # noqa: N815
    kv: list[Raw] | None = None
    timers: list[Raw] | None = None


_object = msgspec.json.Decoder(TransactionBody)
_array = msgspec.json.Decoder(list[OperationBody])
_HEADERS_TEXTS = {"operations.headers": HEADERS_TEXT, "operations.items.headers": HEADERS_TEXT}
_TEXTS = {"operations": "operations array required", **_HEADERS_TEXTS}
_STATUSES = ("completed", "success", "failed", "dlq")


class Plan:
    """A transaction in the order of the request: the operation of each result."""

    def __init__(self, body: TransactionBody, producer_sub: str | None) -> None:
        self.items: list[PushItem] = []
        self._fields: list[str] = []
        self.acks: list[AckItem] = []
        self.timers: list[TimerChange] = []
        self._producer_sub = producer_sub
        self.order: list[tuple[str, int]] = []
        self.refusal: str | None = None
        for number, operation in enumerate(body.operations):
            self._add(operation, f"operations[{number}]")
        leases = body.requiredLeases or None
        self.request = Transaction(to_push(self.items, producer_sub, self._fields), self.acks, leases, self.timers)

    def _add(self, operation: OperationBody, field: str) -> None:
        if operation.type == "push":
            for item, place in _push_items(operation, field):
                self._push(item, place)
        elif operation.type == "ack":
            self.order.append(("ack", len(self.acks)))
            self.acks.append(self._ack(operation, field))
        else:
            self.refusal = self.refusal or f"Unknown operation type: {operation.type}"

    def _push(self, item: PushItem, field: str) -> None:
        if item.waits:
            self.order.append(("timer", len(self.timers)))
            self.timers.append(to_timer(item, field, self._producer_sub))
            return
        self.order.append(("push", len(self.items)))
        self.items.append(item)
        self._fields.append(field)

    def _ack(self, operation: OperationBody, field: str) -> AckItem:
        for name, value in (("transactionId", operation.transactionId), ("partitionId", operation.partitionId)):
            if not value:
                raise BadRequestError(f"{field}: an ack needs {name}", f"{field}.{name}")
        status = operation.status or "completed"
        if status not in _STATUSES:
            self.refusal = self.refusal or f"ACK operation failed: Unknown status: {status}"
        body = AckBody(
            operation.transactionId or "", operation.partitionId or "", operation.leaseId, status, operation.error
        )
        return to_ack_item(
            body, check_group(operation.consumerGroup, f"{field}.consumerGroup", QUEUE_MODE), f"{field}."
        )


def _push_items(operation: OperationBody, field: str) -> list[tuple[PushItem, str]]:
    """The items of a push operation, each with its position in the request."""
    if operation.items is not None:
        return [(item, f"{field}.items[{number}]") for number, item in enumerate(operation.items)]
    if operation.queue is None:
        raise BadRequestError(f"{field}: a push needs items, or queue and payload", f"{field}.queue")
    payload = operation.payload or operation.data or _EMPTY
    item = PushItem(
        operation.queue, operation.partition, payload, operation.transactionId, operation.traceId, operation.headers,
        operation.delaySeconds, operation.deliverAt,
    )  # fmt: skip
    return [(item, field)]


def parse_transaction(body: bytes, room: Room) -> TransactionBody:
    """The object form, or a bare array of operations."""
    if body.lstrip()[:1] == b"[":
        room.check(_array, body)
        return TransactionBody(decode(_array, body, {}))
    room.check(_object, body)
    return decode(_object, body, _TEXTS)
