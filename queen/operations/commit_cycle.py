"""Commits a cycle of a stream: ``POST /streams/v1/cycle``."""

from typing import Annotated

import falcon
import falcon.asgi
import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queen.core import limits
from queen.core.errors import BadRequestError
from queen.core.job_type import JobType
from queen.http.access import READ_WRITE
from queen.http.acks import AckBody, to_ack_item
from queen.http.fields import GroupName, Required, StateKey
from queen.http.operation import Answer, operation
from queen.http.parsing import PushItem, check_group, to_push
from queen.http.reading import read_json
from queen.http.rendering import render_push
from queen.http.request import QueenRequest
from queen.log.requests import QUEUE_MODE, AckItem, Cycle, CycleResult, StateChange
from queen.operations.server import Server
from queen.operations.stream_ids import ID_TEXTS, numbers_of, require_ids

_NULL = Raw(b"null")
_STATUSES = ("completed", "success", "failed", "dlq")


class StateOp(Struct):
    """One change of the state.

    Attributes:
        type: `upsert` or `delete`.
        key: of the row; up to 2048 bytes.
        value: any JSON; an object with a number `windowEnd` is the row of a window.
    """

    type: str
    key: StateKey
    value: Raw = _NULL


class CycleAck(Struct):
    """The last input message of a cycle.

    Attributes:
        transactionId: of the message.
        leaseId: of the pop; the server uses it to detect cycles that arrive late.
        status: `completed` (default) or `success`, `failed`, `dlq`.
        count: number of messages that this acknowledges, as the client counts.
        error: the reason of the failure.
    """

    transactionId: Required  # noqa: N815 - the interface's names
    leaseId: Required  # noqa: N815
    status: str | None = None
    count: int | None = None
    error: str | None = None


class CycleBody(Struct):
    """A cycle.

    Attributes:
        query_id: from the registration.
        partition_id: of the input.
        consumer_group: of the pop; empty is queue mode.
        state_ops: the last one per key applies.
        push_items: outputs.
        ack: of the input.
        release_lease: whether to release the lease of the partition.
    """

    query_id: Required
    partition_id: Required
    consumer_group: GroupName | None = None
    state_ops: list[StateOp] = []
    push_items: list[PushItem] = []
    ack: CycleAck | None = None
    release_lease: bool = True


class CycleAckAnswer(Struct):
    """The result of the ack of a cycle."""

    count: int
    lease_released: bool
    dlq: bool
    success: bool = True


class CycleAnswer(Struct):
    """The answer to a cycle; a failed one stored nothing.

    Attributes:
        success: also of a window close that lost a race.
        noop: this is such a window close: nothing was stored. Read the state again.
        reason: why it did nothing.
        error: why the cycle failed.
    """

    success: bool
    query_id: str
    partition_id: str
    queueName: str | None  # noqa: N815
    state_ops_applied: int = 0
    push_results: Annotated[
        Raw, Meta(extra_json_schema={"type": "array", "items": {"$ref": "#/components/schemas/PushedItem"}})
    ] = Raw(b"[]")
    ack_result: CycleAckAnswer | None = None
    noop: bool | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


class _Windowed(Struct):
    """The part of a value that marks the row of a window."""

    windowEnd: float | None = None  # noqa: N815


_decoder = msgspec.json.Decoder(CycleBody)
_windowed = msgspec.json.Decoder(_Windowed)
_TEXTS = {
    **ID_TEXTS,
    "ack.leaseId": "ack.leaseId is required: the server uses it to detect cycles that arrive late",
}


@operation(
    "POST",
    "/streams/v1/cycle",
    "commitCycle",
    "Commit a cycle: state, outputs and the ack of the input",
    access=READ_WRITE,
    answers=[Answer("`success`; if it is false, nothing of the cycle was stored", CycleAnswer)],
    errors=(400, 413, 422, 429, 503),
    body=CycleBody,
)
async def commit_cycle(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """A failed cycle is answered with status 200: clients read ``success``."""
    body = await read_json(req, _decoder, server.body_bytes_max, _TEXTS)
    cycle = _to_cycle(body, req.subject)
    problem = _refusal(body)
    cycled = CycleResult(problem) if problem else await server.engine.submit(JobType.CYCLE, cycle).future
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(_answer(body, cycle, cycled))


def _refusal(body: CycleBody) -> str | None:
    """The error of a cycle that fails without a look at the database."""
    for op in body.state_ops:
        if op.type not in ("upsert", "delete"):
            return f"Unknown state_op type: {op.type}"
    if body.ack is not None and (body.ack.status or "completed") not in _STATUSES:
        return f"Unknown status: {body.ack.status}"
    return None


def _to_cycle(body: CycleBody, producer_sub: str | None) -> Cycle:
    """A cycle for the engine; the last change per key applies.

    Raises:
        BadRequestError: a name, key or id is invalid; names the field.
    """
    require_ids(body.query_id, body.partition_id)
    group = check_group(body.consumer_group, "consumer_group", QUEUE_MODE)
    for number, op in enumerate(body.state_ops):
        _check_key(op.key, f"state_ops[{number}].key")
    places = [f"push_items[{number}]" for number in range(len(body.push_items))]
    return Cycle(
        *numbers_of(body.query_id, body.partition_id),
        group,
        list({op.key: _change(op) for op in body.state_ops}.values()),
        to_push(body.push_items, producer_sub, places),
        _ack_item(body, group),
        body.release_lease,
    )


def _check_key(key: str, field: str) -> None:
    size = len(key.encode())
    if not key or size > limits.STATE_KEY_BYTES_MAX or "\0" in key:
        raise BadRequestError(
            f"{field} must have 1 to {limits.STATE_KEY_BYTES_MAX} bytes and no NUL; it has {size} bytes", field
        )


def _change(op: StateOp) -> StateChange:
    if op.type == "delete":
        return StateChange(op.key, None)
    return StateChange(op.key, bytes(op.value), _window_end(op.value))


def _window_end(value: Raw) -> float | None:
    """The number ``windowEnd`` of a value that is an object with one."""
    try:
        return _windowed.decode(value).windowEnd
    except msgspec.DecodeError:
        return None


def _ack_item(body: CycleBody, group: str) -> AckItem | None:
    ack = body.ack
    if ack is None:
        return None
    if not ack.leaseId:
        raise BadRequestError(_TEXTS["ack.leaseId"], "ack.leaseId")
    return to_ack_item(AckBody(ack.transactionId, body.partition_id, ack.leaseId, ack.status, ack.error), group, "ack.")


def _answer(body: CycleBody, cycle: Cycle, cycled: CycleResult) -> CycleAnswer:
    if cycled.problem is not None and cycled.noop:
        return CycleAnswer(True, body.query_id, body.partition_id, cycled.queue, noop=True, reason=cycled.problem)
    if cycled.problem is not None:
        return CycleAnswer(False, body.query_id, body.partition_id, cycled.queue, error=cycled.problem)
    acked = CycleAckAnswer(cycled.completed, cycled.released, cycled.dead) if body.ack is not None else None
    pushed = Raw(render_push(body.push_items, cycle.push.batches, cycled.pushed))
    return CycleAnswer(True, body.query_id, body.partition_id, cycled.queue, len(body.state_ops), pushed, acked)
