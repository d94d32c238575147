"""Lists dead letters: ``GET /api/v1/dlq``."""

import falcon.asgi
from msgspec import UNSET, Raw, Struct, UnsetType

from queen.core.administration import ERROR_CHARS, DeadLetterFilter, DeadLetterRow
from queen.engine.context import Context
from queen.http import queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer, shown, shown_headers, text
from queen.http.fields import text_of
from queen.http.operation import Answer, Parameter, operation
from queen.http.parameters import GROUP, LARGE, PARTITION, QUEUE, TIME, page
from queen.http.parsing import check_name
from queen.http.request import QueenRequest
from queen.log import ids
from queen.operations.server import Server
from queen.security.keyring import Keyring

_DEFAULT_LIMIT = 100
ERROR = Parameter(
    "error",
    f"Only those with this error text; of a longer one its first {ERROR_CHARS} characters",
    text_of(1, ERROR_CHARS),
)


class DeadLetterElement(Struct, rename="camel"):
    """A dead letter; ``id`` is the id of the dead letter, ``messageId`` that of its message."""

    id: str
    message_id: str
    transaction_id: str
    partition_id: str
    queue: str
    partition: str
    consumer_group: str
    error_message: str
    retry_count: int
    data: Raw
    trace_id: str | None
    producer_sub: str | None
    created_at: str
    failed_at: str
    headers: dict[str, str] | UnsetType = UNSET
    error: str | UnsetType = UNSET
    error_code: str | UnsetType = UNSET


class DeadLetterList(Struct):
    """A page of dead letters; ``total`` is the number of matches among the newest 100,000."""

    messages: list[DeadLetterElement]
    pagination: queries.Pagination
    total: int


@operation(
    "GET",
    "/api/v1/dlq",
    "listDeadLetters",
    "List dead letters",
    access=READ_ONLY,
    answers=[Answer("A page, newest failure first; `total` is the number of matches", DeadLetterList)],
    errors=(400, 503),
    description=LARGE + " The list covers the newest 100,000 of the queue, or of all queues.",
    parameters=[
        QUEUE,
        PARTITION,
        GROUP,
        ERROR,
        Parameter("from", "Only failures at or after this time", TIME),
        Parameter("to", "Only failures before this time", TIME),
        *page(_DEFAULT_LIMIT),
    ],
)
async def list_dead_letters(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """A page of matches, newest failure first."""
    wanted = DeadLetterFilter(
        queries.name(req, "queue"), queries.name(req, "consumerGroup"), queries.name(req, "partition"),
        error_text(req), queries.moment(req, "from"), queries.moment(req, "to"),
    )  # fmt: skip
    asked = queries.page(req, _DEFAULT_LIMIT)

    async def look(context: Context) -> DeadLetterList:
        dead_letters = context.reads.dead_letters
        rows = await dead_letters.page(wanted, asked.limit, asked.offset)
        return DeadLetterList([_element(row, server.keys) for row in rows], asked, await dead_letters.count(wanted))

    answer(resp, await server.ask(look))


def error_text(req: QueenRequest) -> str | None:
    """``error`` of the query; ``None`` matches any."""
    return check_error(req.get_param("error"))


def check_error(text: str | None) -> str | None:
    """An error text to look for; raises BadRequestError."""
    return check_name(text, "error", ERROR_CHARS) if text else None


def _element(row: DeadLetterRow, keys: Keyring | None) -> DeadLetterElement:
    opened = shown(row.payload, row.key_id, row.queue, row.partition, keys)
    return DeadLetterElement(
        id=ids.dead_letter_id(row.id),
        message_id=ids.message_id(row.part_id, row.off),
        transaction_id=row.transaction_id,
        partition_id=ids.partition_id(row.part_id),
        queue=row.queue,
        partition=row.partition,
        consumer_group=row.consumer_group,
        error_message=row.error,
        retry_count=row.retry_count,
        data=opened.payload,
        trace_id=row.trace_id,
        producer_sub=row.producer_sub,
        created_at=text(row.created_at),
        failed_at=text(row.failed_at),
        headers=shown_headers(row.headers),
        error=opened.error,
        error_code=opened.code,
    )
