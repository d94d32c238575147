"""Sets, cancels, fires and shows timers: ``/api/v1/timers``."""

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated
from uuid import uuid4

import falcon.asgi
import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queen.core.administration import TimerRow
from queen.core.errors import BadRequestError
from queen.core.job_type import JobType
from queen.core.limits import TIMER_KEY_CHARS_MAX, TIMER_SECONDS_MAX, TRANSACTION_ID_CHARS_MAX
from queen.http import parameters, queries
from queen.http.access import READ_ONLY, READ_WRITE
from queen.http.answers import answer, stamp, text
from queen.http.fields import Name, TransactionId, text_of
from queen.http.operation import Answer, Parameter, operation
from queen.http.parsing import HEADERS_TEXT, check_headers, check_name, check_own_id, decode, parse_integer
from queen.http.request import QueenRequest, read_body
from queen.log.requests import TimerChange, TimerVerdict
from queen.log.segment import decode_entry, encode_entry
from queen.operations.server import Server

_OPS = ("schedule", "reschedule", "cancel", "fire")
_STATUSES = ("scheduled", "rescheduled", "cancelled", "absent", "too_late")
_FAILED = ("absent", "too_late")
_DELAY_MS_MAX = TIMER_SECONDS_MAX * 1000
_KEY = text_of(1, TIMER_KEY_CHARS_MAX)
_LIST_LIMIT, _LIST_MAX = 100, 1000
_TXN = Parameter("txn", "Comes back in the answer", text_of(1, TRANSACTION_ID_CHARS_MAX))
_QUEUE_PATH = parameters.path("queue", "Name of the queue; slashes must be encoded", slashes=True)
_KEY_PATH = parameters.path("timerKey", "Key of the timer", _KEY, slashes=True)

Status = Annotated[str, Meta(extra_json_schema={"enum": list(_STATUSES)})]


class TimerOperation(Struct, forbid_unknown_fields=True):
    """One operation on the timer of a queue with a key.

    Attributes:
        op: `schedule` and `reschedule` set it, or replace it; `cancel` removes it; `fire` makes it due now.
        queue: of the message; a schedule creates it.
        timerKey: a queue has one timer per key.
        payload: of a schedule: the JSON text of the payload, in base64.
        delayMs: of a schedule: milliseconds from now; negative: 0.
        partition: of the message; `Default` by default.
        txn: the transaction id of the message; the server makes one by default.
        payloadZstd: must be false.
        headers: of the message: texts by name.
    """

    op: Annotated[str, Meta(extra_json_schema={"enum": list(_OPS)})]
    queue: Name
    timerKey: Annotated[str, Meta(extra_json_schema=_KEY)]  # noqa: N815 - the interface's names
    payload: str | None = None
    delayMs: Annotated[float, Meta(extra_json_schema={"maximum": _DELAY_MS_MAX})] | None = None  # noqa: N815
    partition: Name = "Default"
    txn: TransactionId | None = None
    payloadZstd: bool = False  # noqa: N815
    headers: dict[str, str] | None = None


class TimersBody(Struct):
    """Operations on timers.

    Attributes:
        operations: executed together; those on the same timer in this order.
    """

    operations: list[TimerOperation]


class TimerResult(Struct):
    """What an operation did.

    Attributes:
        ok: false for `absent` and `too_late`.
        status: `scheduled`; `rescheduled`: there was a timer with this key; `cancelled`; `absent`: there is none,
            perhaps because its message is in the log; `too_late`: its message has entered the log meanwhile.
        queue: as given.
        timerKey: as given.
        txn: the transaction id of the message.
        messageId: null: a message gets its id when it enters the log.
        deliverAt: when the message is due.
    """

    ok: bool
    status: Status
    queue: str
    timerKey: str  # noqa: N815
    txn: str | None
    messageId: None = None  # noqa: N815
    deliverAt: str | None = None  # noqa: N815


class TimerResults(Struct):
    """One result per operation, in the same order."""

    results: list[TimerResult]


class TimerShown(Struct):
    """A timer in a list.

    Attributes:
        encrypted: whether the payload is encrypted.
    """

    queue: str
    timerKey: str  # noqa: N815
    partition: str
    txn: str
    deliverAt: str  # noqa: N815
    encrypted: bool


class TimerPage(Struct):
    """Timers by key; ``nextAfter`` is the ``after`` of the next page."""

    rows: list[TimerShown]
    truncated: bool
    nextAfter: str | None  # noqa: N815


class TimerFound(Struct):
    """A timer, or only ``found: false``; ``payload`` is what is stored, in base64; ``headers`` only if it has some."""

    found: bool
    queue: str
    timerKey: str  # noqa: N815
    partition: str | UnsetType = UNSET
    txn: str | UnsetType = UNSET
    deliverAt: str | UnsetType = UNSET  # noqa: N815
    encrypted: bool | UnsetType = UNSET
    payload: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET


_decoder = msgspec.json.Decoder(TimersBody)
_json = msgspec.json.Decoder(Raw)
_TEXTS = {"operations": "operations array is required", "operations.headers": HEADERS_TEXT}


def _payload(operation: TimerOperation, field: str) -> bytes:
    if operation.payload is None:
        raise BadRequestError(f"{field}.payload is required", f"{field}.payload")
    if operation.payloadZstd:
        raise BadRequestError(f"{field}.payloadZstd is not supported: send the JSON text", f"{field}.payloadZstd")
    try:
        payload = base64.b64decode(operation.payload, validate=True)
        payload.decode()
        return bytes(_json.decode(payload))
    except (binascii.Error, UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        raise BadRequestError(f"{field}.payload is not JSON in base64", f"{field}.payload") from None


def _change(operation: TimerOperation, field: str, producer_sub: str | None) -> TimerChange:
    queue = check_name(operation.queue, f"{field}.queue")
    key = check_name(operation.timerKey, f"{field}.timerKey", TIMER_KEY_CHARS_MAX)
    if operation.op not in _OPS:
        raise BadRequestError(f"{field}.op must be one of {', '.join(_OPS)}, not {operation.op[:40]!r}", f"{field}.op")
    if operation.op in ("cancel", "fire"):
        return TimerChange(operation.op, queue, key)
    if operation.delayMs is None or operation.delayMs > _DELAY_MS_MAX:
        raise BadRequestError(
            f"{field}.delayMs must be a number of milliseconds up to {_DELAY_MS_MAX}", f"{field}.delayMs"
        )
    partition = check_name(operation.partition, f"{field}.partition")
    txn = check_own_id(operation.txn, f"{field}.txn") if operation.txn else str(uuid4())
    check_headers(operation.headers or {}, f"{field}.headers")
    message = encode_entry(_payload(operation, field), txn, None, producer_sub, operation.headers)
    return TimerChange("schedule", queue, key, partition, txn, max(operation.delayMs, 0) / 1000, None, message)


def _result(change: TimerChange, verdict: TimerVerdict, txn: str | None) -> TimerResult:
    return TimerResult(
        verdict.status not in _FAILED, verdict.status, change.queue, change.key, verdict.transaction_id or txn,
        deliverAt=stamp(verdict.deliver_at),
    )  # fmt: skip


@operation(
    "POST",
    "/api/v1/timers",
    "changeTimers",
    "Set, cancel and fire timers",
    access=READ_WRITE,
    answers=[Answer("One result per operation, in the same order", TimerResults)],
    errors=(400, 413, 422, 503),
    description="A timer is a message that enters the log at a time, not before. All operations happen or none.",
    body=TimersBody,
)
async def change_timers(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """A schedule of an existing key replaces its timer."""
    body = await read_body(req, server.body_bytes_max)
    req.room.check(_decoder, body)
    operations = decode(_decoder, body, _TEXTS).operations
    changes = [_change(each, f"operations[{number}]", req.subject) for number, each in enumerate(operations)]
    verdicts = await _carried_out(server, changes)
    results = [
        _result(change, verdict, each.txn) for change, verdict, each in zip(changes, verdicts, operations, strict=True)
    ]
    answer(resp, TimerResults(results))


async def _carried_out(server: Server, changes: Sequence[TimerChange]) -> Sequence[TimerVerdict]:
    if not changes:
        return []
    verdicts: Sequence[TimerVerdict] = await server.engine.submit(JobType.TIMER, changes).future
    return verdicts


@operation(
    "DELETE",
    "/api/v1/timers/{queue}/{timerKey}",
    "cancelTimer",
    "Cancel a timer",
    access=READ_WRITE,
    answers=[Answer("Whether it was cancelled: see `status`", TimerResult)],
    errors=(400, 503),
    parameters=[_QUEUE_PATH, _KEY_PATH, _TXN],
)
async def cancel_timer(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, queue: str, timer_key: str
) -> None:
    """No timer is no error: its message may be in the log."""
    key = check_name(timer_key, "timerKey", TIMER_KEY_CHARS_MAX)
    change = TimerChange("cancel", check_name(queue, "queue"), key)
    [verdict] = await _carried_out(server, [change])
    answer(resp, _result(change, verdict, req.get_param("txn")))


@operation(
    "GET",
    "/api/v1/timers/{queue}",
    "listTimers",
    "List the timers of a queue",
    access=READ_ONLY,
    answers=[Answer("A page, in the order of keys", TimerPage)],
    errors=(400, 503),
    parameters=[
        _QUEUE_PATH,
        Parameter("after", "`nextAfter` of the page before", _KEY),
        Parameter("limit", f"At most {_LIST_MAX}; larger ones count as that; {_LIST_LIMIT} by default",
                  {"type": "integer", "minimum": 1}),
    ],
)  # fmt: skip
async def list_timers(server: Server, req: QueenRequest, resp: falcon.asgi.Response, queue: str) -> None:
    """An unknown queue has none."""
    check_name(queue, "queue")
    after = req.get_param("after") or None
    if after is not None:
        check_name(after, "after", TIMER_KEY_CHARS_MAX)
    limit = min(parse_integer(req.get_param("limit"), "limit", _LIST_LIMIT, 1, queries.OFFSET_MAX), _LIST_MAX)
    rows = await server.ask(lambda context: context.reads.timers.page(queue, after, limit + 1))
    shown, more = rows[:limit], len(rows) > limit
    answer(resp, TimerPage([_shown(queue, row) for row in shown], more, shown[-1].key if more else None))


def _shown(queue: str, row: TimerRow) -> TimerShown:
    encrypted = bool(decode_entry(row.message.encode()).keyId)
    return TimerShown(queue, row.key, row.partition, row.transaction_id, text(row.deliver_at), encrypted)


@operation(
    "GET",
    "/api/v1/timers/{queue}/{timerKey}",
    "getTimer",
    "Show a timer",
    access=READ_ONLY,
    answers=[Answer("The timer with its payload as it is stored; `found` is false if there is none", TimerFound)],
    errors=(400, 503),
    parameters=[_QUEUE_PATH, _KEY_PATH],
)
async def get_timer(server: Server, _req: QueenRequest, resp: falcon.asgi.Response, queue: str, timer_key: str) -> None:
    """No timer is no error: its message may be in the log."""
    check_name(queue, "queue")
    check_name(timer_key, "timerKey", TIMER_KEY_CHARS_MAX)
    row = await server.ask(lambda context: context.reads.timers.find(queue, timer_key))
    if row is None:
        answer(resp, TimerFound(False, queue, timer_key))
        return
    entry = decode_entry(row.message.encode())
    answer(
        resp,
        TimerFound(
            True, queue, timer_key, row.partition, row.transaction_id, text(row.deliver_at), bool(entry.keyId),
            base64.b64encode(bytes(entry.payload)).decode(), entry.headers_map() or UNSET,
        ),
    )  # fmt: skip
