"""Lists messages without delivering them: ``GET /api/queues/{queue_id}/messages/peek``."""

from datetime import datetime
from uuid import UUID

import falcon.asgi
from msgspec import Struct

from queen.core.errors import BadRequestError
from queen.http.access import READ_ONLY
from queen.http.answers import answer
from queen.http.fields import number_of
from queen.http.operation import Answer, Parameter, operation
from queen.http.parameters import TIME
from queen.http.parsing import parse_time
from queen.http.request import QueenRequest
from queen.operations.server import Server
from queen.simple_mq import requests as limits
from queen.simple_mq.interface import SimpleMq, home_of
from queen.simple_mq.operations.messages import MessageAnswer, local_time, message_answer, parse_limit, query
from queen.simple_mq.operations.paths import MESSAGES, QUEUE_ID, UUID_SCHEMA, parse_id, unknown_queue


class PageAnswer(Struct):
    """A page of messages, and the cursor of the next page."""

    messages: list[MessageAnswer]
    next_cursor_created_at: str | None
    next_cursor_message_id: UUID | None


@operation(
    "GET",
    f"{MESSAGES}/peek",
    "peek",
    "List messages without delivering them",
    access=READ_ONLY,
    answers=[Answer("A page, oldest first, and the cursor of the next page", PageAnswer)],
    errors=(400, 404, 503),
    parameters=[
        QUEUE_ID,
        Parameter("limit", "Maximum of messages", number_of(1, limits.PEEK_MESSAGES_MAX), required=True),
        query("cursorCreatedAt", "Cursor of the page, from the previous page", TIME),
        query("cursorMessageId", "Second part of the cursor, for messages with the same time", UUID_SCHEMA),
    ],
)
async def peek(server: Server, req: QueenRequest, resp: falcon.asgi.Response, queue_id: str) -> None:
    """Reads one message more than asked for: if there is one, there is a next page."""
    queue = parse_id(queue_id, "queue_id")
    text = req.get_param("limit")
    if text is None:
        raise BadRequestError("Limit is required", "limit")
    limit = parse_limit(text, limits.PEEK_MESSAGES_MAX)
    after, after_id = _parse_cursor(req.get_param("cursorCreatedAt"), req.get_param("cursorMessageId"))
    found = await server.ask(
        lambda context: SimpleMq.of(home_of(context, queue)).administration.peek(queue, after, after_id, limit + 1)
    )
    if found is None:
        raise unknown_queue(queue)
    last = found[limit - 1] if len(found) > limit else None
    page = PageAnswer(
        [message_answer(message) for message in found[:limit]],
        None if last is None else local_time(last.created_at),
        None if last is None else last.message_id,
    )
    answer(resp, page)


def _parse_cursor(time: str | None, message_id: str | None) -> tuple[datetime | None, UUID | None]:
    """The cursor of a page; an id without a time is ignored."""
    if time is None:
        return None, None
    try:
        after = parse_time(time.replace(" ", "+"), "cursorCreatedAt")
    except BadRequestError:
        raise BadRequestError("Invalid cursor format. Expected ISO timestamp format.", "cursorCreatedAt") from None
    return after, parse_id(message_id, "cursorMessageId") if message_id is not None else None
