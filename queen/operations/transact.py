"""Pushes and acknowledges in one transaction: ``POST /api/v1/transaction``."""

from collections.abc import Sequence
from uuid import uuid4

import falcon
import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core.errors import BadRequestError
from queen.core.job_type import JobType
from queen.http.access import READ_WRITE
from queen.http.answers import stamp
from queen.http.operation import Answer, operation
from queen.http.parsing import PushItem
from queen.http.request import QueenRequest, read_body
from queen.log import ids
from queen.log.requests import PartitionBatch, TransactionResult
from queen.operations.server import Server
from queen.operations.transaction_plan import OperationBody, Plan, TransactionBody, parse_transaction


class TransactionAnswer(Struct, omit_defaults=True):
    """The answer to a transaction; a failed one has no results, because it was rolled back."""

    transactionId: str  # noqa: N815
    success: bool
    results: list["AckDone | PushDone | TimerDone"]
    error: str | None = None
    reason: str | None = None


class AckDone(Struct, tag="ack"):
    """An ack in the results of a transaction."""

    index: int
    transactionId: str  # noqa: N815
    dlq: bool
    success: bool = True
    error: str | None = None


class PushDone(Struct, tag="push"):
    """A pushed item in the results of a transaction."""

    index: int
    transactionId: str  # noqa: N815
    messageId: str  # noqa: N815
    partitionId: str  # noqa: N815
    queueName: str  # noqa: N815
    success: bool = True


class TimerDone(Struct, tag="timer"):
    """A pushed item with a time in the results of a transaction; ``deliverAt`` says when it is due."""

    index: int
    transactionId: str  # noqa: N815
    queueName: str  # noqa: N815
    timerKey: str  # noqa: N815
    deliverAt: str | None  # noqa: N815
    success: bool = True


@operation(
    "POST",
    "/api/v1/transaction",
    "transact",
    "Push and acknowledge in one transaction",
    access=READ_WRITE,
    answers=[Answer("`success`, and one result per ack and per pushed item", TransactionAnswer)],
    errors=(400, 413, 422, 429, 503),
    description="All operations happen or none. A transaction that fails is answered with `success` false. A "
    "bare array is accepted in place of an object with `operations`. Pushed items with `delaySeconds` or `deliverAt` "
    "become timers.",
    body=TransactionBody | list[OperationBody],
)
async def transact(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """A failed transaction is answered with status 200: clients read ``success``."""
    body = parse_transaction(await read_body(req, server.body_bytes_max), req.room)
    _refuse_riders(body)
    if not body.operations:
        raise BadRequestError("operations array cannot be empty", "operations")
    plan = Plan(body, req.subject)
    resp.content_type = falcon.MEDIA_JSON
    if plan.refusal is not None:
        resp.data = _failure(plan.refusal, "bad_request")
        return
    executed: TransactionResult = await server.engine.submit(JobType.TRANSACTION, plan.request).future
    resp.data = _failed(plan, executed) if executed.undone else _done(plan, executed)


def _refuse_riders(body: TransactionBody) -> None:
    """Refuses operations that would silently not happen."""
    for field in ("kv", "timers"):
        if getattr(body, field):
            raise BadRequestError(
                f"{field} is not supported by this server; nothing of the transaction was executed", field
            )


def _failure(error: str, reason: str) -> bytes:
    return msgspec.json.encode(TransactionAnswer(str(uuid4()), False, [], error, reason))


def _failed(plan: Plan, executed: TransactionResult) -> bytes:
    for result in executed.acked:
        if result.problem is not None:
            return _failure(f"ACK operation failed: {result.problem}", "ack_rejected")
    if executed.full is not None:
        return _failure(f"PUSH operation failed: queue {executed.full!r} is full (maxSize)", "queue_full")
    for batch, stored in zip(plan.request.push.batches, executed.pushed.stored, strict=False):
        for number, place in enumerate(batch.places):
            if number in stored.duplicates:
                return _failure(f"PUSH operation failed: duplicate transactionId {_chosen(plan, place)}", "duplicate")
            if number in stored.refused:
                return _failure(f"PUSH operation failed: reserved transactionId {_chosen(plan, place)}", "bad_request")
    return _failure("The transaction failed and was rolled back", "db_error")


def _chosen(plan: Plan, place: int) -> str:
    return plan.items[place].transactionId or ""


def _done(plan: Plan, executed: TransactionResult) -> bytes:
    pushed = _places(plan.request.push.batches, executed)
    results: list[AckDone | PushDone | TimerDone] = []
    for index, (kind, number) in enumerate(plan.order):
        if kind == "ack":
            results.append(AckDone(index, plan.acks[number].transaction_id, executed.acked[number].dead))
        elif kind == "timer":
            timer, due = plan.timers[number], executed.due[number]
            results.append(TimerDone(index, timer.transaction_id, timer.queue, timer.key, stamp(due)))
        else:
            results.append(_push_done(index, plan.items[number], *pushed[number]))
    return msgspec.json.encode(TransactionAnswer(str(uuid4()), True, results))


def _push_done(index: int, item: PushItem, part_id: int, offset: int) -> PushDone:
    message_id = ids.message_id(part_id, offset)
    return PushDone(index, item.transactionId or message_id, message_id, ids.partition_id(part_id), item.queue)


def _places(batches: Sequence[PartitionBatch], executed: TransactionResult) -> dict[int, tuple[int, int]]:
    """Partition and offset of each pushed item."""
    return {
        place: (stored.part_id, stored.offset(number))
        for batch, stored in zip(batches, executed.pushed.stored, strict=True)
        for number, place in enumerate(batch.places)
    }
