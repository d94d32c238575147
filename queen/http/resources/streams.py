"""``POST /streams/v1/queries``, ``…/cycle`` and ``…/state/get``: what the client's ``Stream`` commits and reads."""

from typing import Annotated

import falcon
import falcon.asgi
import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queen.core import ids, limits
from queen.core.errors import BadRequestError
from queen.core.operations import (
    QUEUE_MODE,
    AckItem,
    Cycle,
    Cycled,
    JobType,
    Registered,
    Registration,
    StateChange,
    StateRows,
)
from queen.engine.context import Context
from queen.engine.thread import EngineThread
from queen.http.fields import GroupName, Label, Name, Required, StateKey, WithoutNul
from queen.http.parsing import PushItem, check_group, check_name, to_push
from queen.http.reading import read_json
from queen.http.rendering import render_push, timestamp
from queen.http.request import QueenRequest
from queen.http.resources.ack import AckBody, to_ack_item

_NO_OBJECT = "request body must be a JSON object"
_NULL = Raw(b"null")
_MISSING = {
    "": _NO_OBJECT,
    **{name: f"{name} is required" for name in ("name", "source_queue", "config_hash", "query_id", "partition_id")},
}
_UNKNOWN_QUERY = "Unknown query_id: register the query first"
_TOO_MUCH = "The rows have more bytes than one answer may have (QUEEN_MAX_POP_BYTES): ask for fewer keys"
_STATUSES = ("completed", "success", "failed", "dlq")

#: Stands for a number that is never given out: the id in the request is none of ours.
_NOBODY = 0


class QueryBody(Struct):
    """A stream query by its name.

    Attributes:
        name: what the client calls its query id.
        source_queue: what it reads.
        config_hash: of the chain of operators; another one is refused.
        sink_queue: what it writes.
        reset: whether the state is to be thrown away.
    """

    name: Name
    source_queue: Name
    config_hash: Name
    sink_queue: Label | None = None
    reset: bool = False


class StateOp(Struct):
    """One change of the state.

    Attributes:
        type: `upsert` or `delete`.
        key: of the row; up to 2048 bytes.
        value: any JSON; one with a number `windowEnd` is the row of a window.
    """

    type: str
    key: StateKey
    value: Raw = _NULL


class CycleAck(Struct):
    """The last message of the input that a cycle has dealt with.

    Attributes:
        transactionId: of the message.
        leaseId: of the pop; it fences a cycle that is sent late.
        status: `completed` (default) or `success`, `failed`, `dlq`.
        count: how many messages the client believes that completes.
        error: why it failed.
    """

    transactionId: Required  # noqa: N815 - the interface's names
    leaseId: Required  # noqa: N815
    status: str | None = None
    count: int | None = None
    error: str | None = None


class CycleBody(Struct):
    """What a worker made of its input.

    Attributes:
        query_id: as the registration answered it.
        partition_id: of the input.
        consumer_group: of the pop; empty is queue mode.
        state_ops: of several of one key, the last one counts.
        push_items: outputs.
        ack: of the input.
        release_lease: whether others may have the partition.
    """

    query_id: Required
    partition_id: Required
    consumer_group: GroupName | None = None
    state_ops: list[StateOp] = []
    push_items: list[PushItem] = []
    ack: CycleAck | None = None
    release_lease: bool = True


class StateBody(Struct):
    """Which rows of the state.

    Attributes:
        query_id: as the registration answered it.
        partition_id: of the input.
        keys: only these.
        key_prefix: only rows whose key begins so.
        ripe_at_or_before: only windows that have ended by then, in the unit of their `windowEnd`; of many the first,
            and the others when these are flushed.
    """

    query_id: Required
    partition_id: Required
    keys: list[str] | None = None
    key_prefix: WithoutNul | None = None
    ripe_at_or_before: float | None = None


class QueryAnswer(Struct):
    """The answer to a registration."""

    query_id: str
    name: str
    config_hash: str
    fresh: bool
    reset: bool
    success: bool = True


class QueryConflict(Struct):
    """The answer to a registration with another chain of operators: a problem document that names the query."""

    query_id: str
    name: str
    detail: str
    error: str
    success: bool = False
    status: int = 409
    title: str = "Conflict"
    code: str = "config_hash_mismatch"
    type: str = "about:blank"


class CycleAckAnswer(Struct):
    """What became of the ack of a cycle."""

    count: int
    lease_released: bool
    dlq: bool
    success: bool = True


class CycleAnswer(Struct):
    """The answer to a cycle; of one that failed nothing happened."""

    success: bool
    query_id: str
    partition_id: str
    queueName: str | None  # noqa: N815
    state_ops_applied: int = 0
    push_results: Annotated[
        Raw, Meta(extra_json_schema={"type": "array", "items": {"$ref": "#/components/schemas/PushedItem"}})
    ] = Raw(b"[]")
    ack_result: CycleAckAnswer | None = None
    error: str | UnsetType = UNSET


class StateAnswerRow(Struct):
    """One row of the state."""

    key: str
    value: Raw
    updated_at: str


class StateAnswer(Struct):
    """The answer to a read of the state."""

    rows: list[StateAnswerRow]
    success: bool = True
    error: str | UnsetType = UNSET


class _Windowed(Struct):
    """The part of a value by which the server knows the row of a window."""

    windowEnd: float | None = None  # noqa: N815


_query = msgspec.json.Decoder(QueryBody)
_cycle = msgspec.json.Decoder(CycleBody)
_state = msgspec.json.Decoder(StateBody)
_windowed = msgspec.json.Decoder(_Windowed)
_CYCLE_TEXTS = _MISSING | {
    "ack.leaseId": "ack.leaseId is required: without it a cycle that is sent late cannot be told"
}


class StreamQueriesResource:
    """Registers stream queries."""

    def __init__(self, engine: EngineThread, body_bytes_max: int) -> None:
        self._engine, self._body_bytes_max = engine, body_bytes_max

    async def on_post(self, req: QueenRequest, resp: falcon.asgi.Response) -> None:
        """Makes the query or finds it again; 409 for another chain of operators without a reset."""
        body = await read_json(req, _query, self._body_bytes_max, _MISSING)
        registration = _registration(body)

        async def register(context: Context) -> Registered:
            more = True
            while more:
                done = await context.patiently(lambda _again: context.administration.register_stream(registration))
                more = done.more
            return done

        registered: Registered = await self._engine.submit(JobType.CUSTOM, register).future
        query_id = ids.stream_id(registered.stream)
        resp.content_type = falcon.MEDIA_JSON
        if registered.conflict:
            resp.status = 409
            text = (
                f"config_hash mismatch: operator chain changed for queryId {body.name!r}. "
                "Pass reset:true to wipe existing state, or use a new queryId."
            )
            resp.data = msgspec.json.encode(QueryConflict(query_id, body.name, text, text))
            return
        resp.data = msgspec.json.encode(
            QueryAnswer(query_id, body.name, body.config_hash, registered.fresh, body.reset and not registered.fresh)
        )


def _registration(body: QueryBody) -> Registration:
    for field in ("name", "source_queue", "config_hash"):
        value = getattr(body, field)
        if not value:
            raise BadRequestError(f"{field} is required", field)
        check_name(value, field)
    if body.sink_queue:
        check_name(body.sink_queue, "sink_queue")
    return Registration(body.name, body.source_queue, body.config_hash, body.sink_queue or None, body.reset)


class StreamCycleResource:
    """Commits cycles."""

    def __init__(self, engine: EngineThread, body_bytes_max: int) -> None:
        self._engine, self._body_bytes_max = engine, body_bytes_max

    async def on_post(self, req: QueenRequest, resp: falcon.asgi.Response) -> None:
        """A cycle that fails is an answer, with status 200: clients read ``success``."""
        body = await read_json(req, _cycle, self._body_bytes_max, _CYCLE_TEXTS)
        cycle = to_cycle(body, req.subject)
        problem = _refusal(body)
        cycled = Cycled(problem) if problem else await self._engine.submit(JobType.CYCLE, cycle).future
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(_cycle_answer(body, cycle, cycled))


def _refusal(body: CycleBody) -> str | None:
    """What makes a cycle fail before anybody looks at what there is."""
    for op in body.state_ops:
        if op.type not in ("upsert", "delete"):
            return f"Unknown state_op type: {op.type}"
    if body.ack is not None and (body.ack.status or "completed") not in _STATUSES:
        return f"Unknown status: {body.ack.status}"
    return None


def to_cycle(body: CycleBody, producer_sub: str | None) -> Cycle:
    """A cycle as the engine takes it; of several changes of a key the last one counts.

    Raises:
        BadRequestError: a name, key or id is out of its limits; names the field.
    """
    _require_ids(body)
    group = check_group(body.consumer_group, "consumer_group", QUEUE_MODE)
    for number, op in enumerate(body.state_ops):
        _check_key(op.key, f"state_ops[{number}].key")
    places = [f"push_items[{number}]" for number in range(len(body.push_items))]
    return Cycle(
        ids.parse_stream_id(body.query_id) or _NOBODY,
        ids.parse_partition_id(body.partition_id) or _NOBODY,
        group,
        list({op.key: _change(op) for op in body.state_ops}.values()),
        to_push(body.push_items, producer_sub, places),
        _ack_item(body, group),
        body.release_lease,
    )


def _require_ids(body: CycleBody | StateBody) -> None:
    for field in ("query_id", "partition_id"):
        if not getattr(body, field):
            raise BadRequestError(f"{field} is required", field)


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
        raise BadRequestError(_CYCLE_TEXTS["ack.leaseId"], "ack.leaseId")
    return to_ack_item(AckBody(ack.transactionId, body.partition_id, ack.leaseId, ack.status, ack.error), group, "ack.")


def _cycle_answer(body: CycleBody, cycle: Cycle, cycled: Cycled) -> CycleAnswer:
    if cycled.problem is not None:
        return CycleAnswer(False, body.query_id, body.partition_id, cycled.queue, error=cycled.problem)
    acked = CycleAckAnswer(cycled.completed, cycled.released, cycled.dead) if body.ack is not None else None
    pushed = Raw(render_push(body.push_items, cycle.push.lots, cycled.pushed))
    return CycleAnswer(True, body.query_id, body.partition_id, cycled.queue, len(body.state_ops), pushed, acked)


class StreamStateResource:
    """Reads the state of a stream."""

    def __init__(self, engine: EngineThread, body_bytes_max: int) -> None:
        self._engine, self._body_bytes_max = engine, body_bytes_max

    async def on_post(self, req: QueenRequest, resp: falcon.asgi.Response) -> None:
        """The rows of one partition, in the order of their keys."""
        body = await read_json(req, _state, self._body_bytes_max, _MISSING)
        _require_ids(body)
        stream = ids.parse_stream_id(body.query_id) or _NOBODY
        part_id = ids.parse_partition_id(body.partition_id) or _NOBODY
        keys = [key for key in body.keys or () if "\0" not in key] if body.keys else None
        prefix = check_prefix(body.key_prefix)

        async def read(context: Context) -> StateRows | None:
            return await context.patiently(
                lambda _again: context.database.stream_state(stream, part_id, keys, prefix, body.ripe_at_or_before)
            )

        rows: StateRows | None = await self._engine.submit(JobType.CUSTOM, read).future
        if rows is not None and not rows.complete and body.ripe_at_or_before is None:
            raise BadRequestError(_TOO_MUCH, "keys")
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(_state_answer(rows))


def check_prefix(prefix: str | None) -> str | None:
    """The prefix of keys; ``""`` is that of all."""
    if prefix and "\0" in prefix:
        raise BadRequestError("key_prefix must not contain NUL", "key_prefix")
    return prefix or None


def _state_answer(rows: StateRows | None) -> StateAnswer:
    if rows is None:
        return StateAnswer([], False, _UNKNOWN_QUERY)
    return StateAnswer(
        [StateAnswerRow(row.key, Raw(row.value.encode()), timestamp(row.updated_at)) for row in rows.rows]
    )
