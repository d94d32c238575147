"""Lists messages: ``GET /api/v1/messages``."""

from datetime import UTC, datetime, timedelta

import falcon.asgi
from msgspec import UNSET, Raw, Struct, UnsetType

from queen.core.administration import MessageFilter, MessageRow, Period
from queen.core.errors import BadRequestError
from queen.http import queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer, shown, shown_headers, stamp, text
from queen.http.operation import Answer, Parameter, operation
from queen.http.parameters import FROM, NAME, PARTITION, QUEUE, TASK, TO, limit, offset
from queen.http.request import QueenRequest
from queen.log import ids
from queen.operations.server import Server
from queen.security.keyring import Keyring

_STATUSES = ("pending", "processing", "completed", "dead_letter")
_DEFAULT_PERIOD = timedelta(hours=1)
_FOREVER = datetime(9999, 1, 1, tzinfo=UTC)
_DEFAULT_LIMIT = 200
_OFFSET_MAX = 10_000
#: Maximum of messages that a search looks at, in all and at a time.
_SEARCHED_MAX, _SEARCHED_STEP = 5_000, 1_000


class BusStatus(Struct, rename="camel"):
    """How many of the queue's named groups have acknowledged a message."""

    consumed_by: int
    total_groups: int


class MessageElement(Struct, rename="camel"):
    """A message in a list."""

    id: str
    transaction_id: str
    partition_id: str
    queue_path: str
    queue: str
    partition: str
    namespace: str
    task: str
    status: str
    queue_status: str
    bus_status: BusStatus
    trace_id: str | None
    producer_sub: str | None
    queue_priority: int
    created_at: str
    lease_expires_at: str | None
    payload: Raw
    data: Raw
    headers: dict[str, str] | UnsetType = UNSET
    error: str | UnsetType = UNSET
    error_code: str | UnsetType = UNSET


class Mode(Struct, rename="camel"):
    """How queues are consumed: ``queue`` (no group named), ``bus`` (named groups), ``hybrid`` or ``none``."""

    has_queue_mode: bool
    bus_groups_count: int
    type: str


class MessageList(Struct):
    """A page of messages; ``total`` is the length of the page.

    Attributes:
        searched: with `search`, how many messages were looked at.
        next: with `search`, the offset at which to go on; null: that was all, or as far back as a list goes.
    """

    messages: list[MessageElement]
    mode: Mode
    total: int
    pagination: queries.Pagination
    searched: int | UnsetType = UNSET
    next: int | UnsetType | None = UNSET


class _Found(Struct):
    """The rows of a page; of a search also how many were looked at, and where the next one begins."""

    rows: list[MessageRow]
    searched: int | UnsetType = UNSET
    next: int | UnsetType | None = UNSET


@operation(
    "GET",
    "/api/v1/messages",
    "listMessages",
    "List messages",
    access=READ_ONLY,
    answers=[Answer("A page, newest first; `total` is the length of the page", MessageList)],
    errors=(400, 503),
    description="With `status`, the list covers the newest 10,000 messages that match the other filters. With "
    "`search`, a request looks at up to 5,000 messages from `offset` on, and `next` says where to go on.",
    parameters=[
        QUEUE,
        PARTITION,
        Parameter("ns", "Only queues of this namespace", NAME),
        Parameter("namespace", "The same as `ns`", NAME),
        TASK,
        Parameter("status", "Only messages with this status", {"type": "string", "enum": list(_STATUSES)}),
        Parameter("search", "Only messages whose payload, transaction id or id contains this text, in any case", NAME),
        FROM,
        TO,
        limit(_DEFAULT_LIMIT),
        offset(_OFFSET_MAX),
    ],
)
async def list_messages(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """A page of matches, newest first."""
    status = req.get_param("status") or None
    if status not in (None, *_STATUSES):
        raise BadRequestError(f"status must be one of {', '.join(_STATUSES)}, not {status[:40]!r}", "status")
    wanted = MessageFilter(
        queries.name(req, "queue"), queries.name(req, "partition"), queries.name(req, "ns", "namespace"),
        queries.name(req, "task"), status,
    )  # fmt: skip
    page = queries.page(req, _DEFAULT_LIMIT, _OFFSET_MAX)
    period = queries.period(req, _DEFAULT_PERIOD)
    if not req.get_param("to"):
        # The clock of the database may be ahead, and the newest messages are found faster without a bound.
        period = Period(period.begin, _FOREVER)
    search = queries.name(req, "search")
    if search is None:
        found = _Found(await _rows(server, wanted, period, page.limit, page.offset))
    else:
        found = await _search(server, wanted, period, page, search.lower())
    queues = {row.queue for row in found.rows} or {wanted.queue or ""}
    consumers = await server.ask(lambda context: context.reads.consumer_groups.consumers_of(list(queues)))
    mode = Mode(consumers.queue_mode, consumers.groups, mode_type(consumers.queue_mode, consumers.groups))
    messages = [_element(row, server.keys) for row in found.rows]
    answer(resp, MessageList(messages, mode, len(messages), page, found.searched, found.next))


async def _rows(server: Server, wanted: MessageFilter, period: Period, most: int, begin: int) -> list[MessageRow]:
    return await server.ask(lambda context: context.reads.messages.page(wanted, period, most, begin))


async def _search(server: Server, wanted: MessageFilter, period: Period, page: queries.Pagination, text: str) -> _Found:
    """The messages with this text, until the page is full or enough messages were looked at."""
    found: list[MessageRow] = []
    searched = 0
    while searched < _SEARCHED_MAX and page.offset + searched <= _OFFSET_MAX:
        # A page with large payloads is shorter.
        rows = await _rows(server, wanted, period, _SEARCHED_STEP, page.offset + searched)
        if not rows:
            return _Found(found, searched, None)
        for row in rows:
            searched += 1
            if text in _searched_text(row, server.keys):
                found.append(row)
                if len(found) == page.limit:
                    break
        if len(found) == page.limit:
            break
    further = page.offset + searched
    return _Found(found, searched, further if further <= _OFFSET_MAX else None)


def _searched_text(row: MessageRow, keys: Keyring | None) -> str:
    opened = shown(row.payload, row.key_id, row.queue, row.partition, keys)
    return f"{row.transaction_id} {ids.message_id(row.part_id, row.off)} {bytes(opened.payload).decode()}".lower()


def mode_type(has_queue_mode: bool, bus_groups: int) -> str:
    """How queues are consumed, as ``type`` of ``Mode``."""
    if has_queue_mode:
        return "hybrid" if bus_groups else "queue"
    return "bus" if bus_groups else "none"


def _element(row: MessageRow, keys: Keyring | None) -> MessageElement:
    opened = shown(row.payload, row.key_id, row.queue, row.partition, keys)
    return MessageElement(
        id=ids.message_id(row.part_id, row.off),
        transaction_id=row.transaction_id,
        partition_id=ids.partition_id(row.part_id),
        queue_path=f"{row.queue}/{row.partition}",
        queue=row.queue,
        partition=row.partition,
        namespace=row.namespace,
        task=row.task,
        status=row.status,
        queue_status=row.queue_mode,
        bus_status=BusStatus(row.done, row.groups),
        trace_id=row.trace_id,
        producer_sub=row.producer_sub,
        queue_priority=row.priority,
        created_at=text(row.created_at),
        lease_expires_at=stamp(row.lease_ends),
        payload=opened.payload,
        data=opened.payload,
        headers=shown_headers(row.headers),
        error=opened.error,
        error_code=opened.code,
    )
