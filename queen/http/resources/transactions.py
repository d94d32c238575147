"""``POST /api/v1/transaction``."""

from collections.abc import Sequence
from typing import Annotated
from uuid import uuid4

import falcon
import falcon.asgi
import msgspec
from msgspec import Meta, Raw, Struct

from queen.core import ids
from queen.core.errors import BadRequestError
from queen.core.operations import QUEUE_MODE, AckItem, Executed, JobType, Lot, Transaction
from queen.engine.thread import EngineThread
from queen.http.parsing import PushItem, check_group, decode, to_push
from queen.http.rendering import AckDone, PushDone, TransactionAnswer
from queen.http.request import QueenRequest, read_body
from queen.http.resources.ack import AckBody, to_ack_item
from queen.http.room import Room

_MISSING = Raw()
_EMPTY = Raw(b"{}")


class TransactionItem(PushItem):
    """One item of a nested push.

    Attributes:
        queue: comes into being with its first message.
        partition: messages of one partition stay in order.
        payload: any JSON; unlike in a plain push, none means an empty object.
        transactionId: one that is stored in the partition already makes the transaction fail.
        traceId: a UUID that goes along with the message.
    """

    payload: Raw = _EMPTY


class OperationBody(Struct):
    """One operation: an ack, a push of `items`, or a push of one item that stands here itself.

    Attributes:
        type: `push` or `ack`.
        items: what to push.
        queue: of a push without `items`.
        partition: of a push without `items`.
        payload: of a push without `items`; none means an empty object.
        data: the same under its other name.
        transactionId: of the message that is pushed or acked.
        traceId: of a push without `items`.
        partitionId: of the message that is acked.
        leaseId: of the pop; without one, and without `requiredLeases`, nothing is fenced.
        status: `completed` (default) or `success`, `failed`, `dlq`.
        consumerGroup: whose message it was; empty is queue mode.
        error: why it failed.
    """

    type: str
    items: list[TransactionItem] | None = None
    queue: str | None = None
    partition: str = "Default"
    payload: Raw = _MISSING
    data: Raw = _MISSING
    transactionId: str | None = None  # noqa: N815 - the interface's names
    traceId: str | None = None  # noqa: N815
    partitionId: str | None = None  # noqa: N815
    leaseId: str | None = None  # noqa: N815
    status: str | None = None
    consumerGroup: str | None = None  # noqa: N815
    error: str | None = None


class TransactionBody(Struct):
    """Operations to carry out all or none.

    Attributes:
        operations: in the order of the results.
        requiredLeases: leases that must be live, or nothing happens.
        kv: riders on the key-value store of newer brokers, which this server has not: refused unless empty.
        timers: the same for timers.
    """

    operations: Annotated[list[OperationBody], Meta(extra_json_schema={"minItems": 1})]
    requiredLeases: list[str] | None = None  # noqa: N815
    kv: list[Raw] | None = None
    timers: list[Raw] | None = None


_object = msgspec.json.Decoder(TransactionBody)
_array = msgspec.json.Decoder(list[OperationBody])
_TEXTS = {"operations": "operations array required"}
_STATUSES = ("completed", "success", "failed", "dlq")


class Plan:
    """A transaction as it came: what each result belongs to, in the order of the request."""

    def __init__(self, body: TransactionBody, producer_sub: str | None) -> None:
        self.items: list[PushItem] = []
        self._fields: list[str] = []
        self.acks: list[AckItem] = []
        self.order: list[tuple[str, int]] = []
        self.refusal: str | None = None
        for number, operation in enumerate(body.operations):
            self._add(operation, f"operations[{number}]")
        leases = body.requiredLeases or None
        self.request = Transaction(to_push(self.items, producer_sub, self._fields), self.acks, leases)

    def _add(self, operation: OperationBody, field: str) -> None:
        if operation.type == "push":
            for item, place in _push_items(operation, field):
                self.order.append(("push", len(self.items)))
                self.items.append(item)
                self._fields.append(place)
        elif operation.type == "ack":
            self.order.append(("ack", len(self.acks)))
            self.acks.append(self._ack(operation, field))
        else:
            self.refusal = self.refusal or f"Unknown operation type: {operation.type}"

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
    """The items of a push operation, each with its place in the request."""
    if operation.items is not None:
        return [(item, f"{field}.items[{number}]") for number, item in enumerate(operation.items)]
    if operation.queue is None:
        raise BadRequestError(f"{field}: a push needs items, or queue and payload", f"{field}.queue")
    payload = operation.payload or operation.data or _EMPTY
    item = PushItem(operation.queue, operation.partition, payload, operation.transactionId, operation.traceId)
    return [(item, field)]


def parse_transaction(body: bytes, room: Room) -> TransactionBody:
    """The object form, or a bare array of operations."""
    if body.lstrip()[:1] == b"[":
        room.check(_array, body)
        return TransactionBody(decode(_array, body, {}))
    room.check(_object, body)
    return decode(_object, body, _TEXTS)


def _refuse_riders(body: TransactionBody) -> None:
    """A guard that nobody looks at would be worse than none."""
    for field in ("kv", "timers"):
        if getattr(body, field):
            raise BadRequestError(f"{field}: this server has none; nothing of the transaction was carried out", field)


class TransactionResource:
    """Pushes and acks, all or none."""

    def __init__(self, engine: EngineThread, body_bytes_max: int) -> None:
        self._engine, self._body_bytes_max = engine, body_bytes_max

    async def on_post(self, req: QueenRequest, resp: falcon.asgi.Response) -> None:
        """A transaction that fails is an answer, with status 200: clients read ``success``."""
        body = parse_transaction(await read_body(req, self._body_bytes_max), req.room)
        _refuse_riders(body)
        if not body.operations:
            raise BadRequestError("operations array cannot be empty", "operations")
        plan = Plan(body, req.subject)
        resp.content_type = falcon.MEDIA_JSON
        if plan.refusal is not None:
            resp.data = _failure(plan.refusal, "bad_request")
            return
        executed: Executed = await self._engine.submit(JobType.TRANSACTION, plan.request).future
        resp.data = _failed(plan, executed) if executed.undone else _done(plan, executed)


def _failure(error: str, reason: str) -> bytes:
    return msgspec.json.encode(TransactionAnswer(str(uuid4()), False, [], error, reason))


def _failed(plan: Plan, executed: Executed) -> bytes:
    for result in executed.acked:
        if result.problem is not None:
            return _failure(f"ACK operation failed: {result.problem}", "ack_rejected")
    if executed.full is not None:
        return _failure(f"PUSH operation failed: queue {executed.full!r} is full (maxSize)", "queue_full")
    for lot, stored in zip(plan.request.push.lots, executed.pushed.stored, strict=False):
        for number, place in enumerate(lot.places):
            if number in stored.duplicates:
                return _failure(f"PUSH operation failed: duplicate transactionId {_chosen(plan, place)}", "duplicate")
            if number in stored.refused:
                return _failure(f"PUSH operation failed: reserved transactionId {_chosen(plan, place)}", "bad_request")
    return _failure("The transaction failed and nothing of it happened", "db_error")


def _chosen(plan: Plan, place: int) -> str:
    return plan.items[place].transactionId or ""


def _done(plan: Plan, executed: Executed) -> bytes:
    pushed = _places(plan.request.push.lots, executed)
    results: list[AckDone | PushDone] = []
    for index, (kind, number) in enumerate(plan.order):
        if kind == "ack":
            results.append(AckDone(index, plan.acks[number].transaction_id, executed.acked[number].dead))
        else:
            results.append(_push_done(index, plan.items[number], *pushed[number]))
    return msgspec.json.encode(TransactionAnswer(str(uuid4()), True, results))


def _push_done(index: int, item: PushItem, part_id: int, offset: int) -> PushDone:
    message_id = ids.message_id(part_id, offset)
    return PushDone(index, item.transactionId or message_id, message_id, ids.partition_id(part_id), item.queue)


def _places(lots: Sequence[Lot], executed: Executed) -> dict[int, tuple[int, int]]:
    """Partition and offset of each pushed item."""
    return {
        place: (stored.part_id, stored.offset(number))
        for lot, stored in zip(lots, executed.pushed.stored, strict=True)
        for number, place in enumerate(lot.places)
    }
