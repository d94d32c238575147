"""Requests of simple-mq into operations. The texts are those that clients of the original know."""

import re
from datetime import datetime
from typing import Annotated, Any, TypeVar
from uuid import UUID

import falcon
import falcon.asgi
import msgspec
from msgspec import Meta, Struct

from queen.core import simple_mq as limits
from queen.core.errors import BadRequestError, BodyTooLargeError
from queen.core.simple_mq import Enqueue, NewMessage
from queen.http import reading
from queen.http.fields import NO_NUL, between, text_of
from queen.http.parsing import parse_time
from queen.http.request import QueenRequest

T = TypeVar("T")

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SECONDS = re.compile(r"[0-9]{1,5}(\.[0-9]{1,6})?")


def parse_id(text: str, field: str) -> UUID:
    """A queue or message id."""
    if not _UUID.fullmatch(text):
        raise BadRequestError(f"Invalid UUID string: {text[:100]}", field)
    return UUID(text)


async def read_json(req: QueenRequest, decoder: "msgspec.json.Decoder[T]", bytes_max: int) -> T:
    """The body, which must not claim to be anything but JSON.

    Raises:
        HTTPUnsupportedMediaType: it does.
        BadRequestError: it is not what the decoder wants; names the field.
    """
    kind = (req.content_type or falcon.MEDIA_JSON).partition(";")[0].strip().lower()
    if kind != falcon.MEDIA_JSON and not kind.endswith("+json"):
        raise falcon.HTTPUnsupportedMediaType(description=f"The body must be application/json, not {kind[:80]}")
    return await reading.read_json(req, decoder, bytes_max, {})


def either(body: Struct, camel: str, snake: str) -> Any:  # noqa: ANN401 - what the two fields hold
    """The value of a field that may be written in two ways."""
    first, second = getattr(body, camel), getattr(body, snake)
    if first is not None and second is not None and first != second:
        raise BadRequestError(f"{camel} and {snake} are both given, and differ", camel)
    return first if first is not None else second


def check_number(value: object, field: str, low: tuple[int, str], high: tuple[int, str]) -> int:
    """A whole number within its limits, each given with the text for what is beyond it."""
    if not isinstance(value, int):
        raise BadRequestError(f"{field} is required", field)
    if value < low[0]:
        raise BadRequestError(low[1], field)
    if value > high[0]:
        raise BadRequestError(high[1], field)
    return value


# ---------------------------------------------------------------- messages


#: Seconds that a message stays hidden.
Visibility = Annotated[int, between(0, limits.VISIBILITY_SECONDS_MAX)]
_Group = Annotated[str, Meta(extra_json_schema=text_of(1, limits.GROUP_CHARS_MAX))]


class MessageBody(Struct):
    """A message to store, as it comes.

    Attributes:
        data: a text that is not blank.
        messageGroup: messages of one group are delivered in order, one at a time.
        message_group: the same.
    """

    data: Annotated[str, Meta(extra_json_schema={"minLength": 1, "pattern": NO_NUL})] | None = None
    messageGroup: _Group | None = None  # noqa: N815 - the interface's name
    message_group: _Group | None = None


class EnqueueBody(MessageBody):
    """One message, or several under `messages`.

    Attributes:
        data: a text that is not blank.
        messageGroup: messages of one group are delivered in order, one at a time.
        message_group: the same.
        messages: up to 100, instead of `data`.
    """

    messages: (
        Annotated[list[MessageBody], Meta(extra_json_schema={"minItems": 1, "maxItems": limits.BATCH_MESSAGES_MAX})]
        | None
    ) = None


def to_enqueue(queue: UUID, body: EnqueueBody, bytes_max: int) -> Enqueue:
    """The messages of a request.

    Raises:
        BadRequestError: no data, or too many messages; names the field.
        BodyTooLargeError: a message has more than ``bytes_max`` bytes.
    """
    if body.messages is None:
        return _enqueue(queue, [body], [""], bytes_max)
    if body.data is not None:
        raise BadRequestError("data and messages are both given", "data")
    if not 1 <= len(body.messages) <= limits.BATCH_MESSAGES_MAX:
        raise BadRequestError(
            f"messages must be 1 to {limits.BATCH_MESSAGES_MAX}, not {len(body.messages)}", "messages"
        )
    places = [f"messages[{number}]." for number in range(len(body.messages))]
    return _enqueue(queue, body.messages, places, bytes_max)


def _enqueue(
    queue: UUID, bodies: "list[MessageBody] | list[EnqueueBody]", places: list[str], bytes_max: int
) -> Enqueue:
    messages, size = [], 0
    for body, place in zip(bodies, places, strict=True):
        message, own = _message(body, place, bytes_max)
        messages.append(message)
        size += own
    return Enqueue(queue, messages, size)


def _message(body: MessageBody, place: str, bytes_max: int) -> tuple[NewMessage, int]:
    data, field = body.data, f"{place}data"
    if data is None or not data.strip():
        raise BadRequestError("Message data is required", field)
    if "\0" in data:
        raise BadRequestError(f"{field} contains U+0000, which cannot be stored", field)
    size = len(data.encode())
    if size > bytes_max:
        raise BodyTooLargeError(f"{field} has {size} bytes, more than {bytes_max}")
    group = either(body, "messageGroup", "message_group")
    if group is not None:
        check_group(group, f"{place}messageGroup")
    return NewMessage(data, group), size


def check_group(group: str, field: str) -> None:
    """Raises BadRequestError for a message group that is empty, too long or contains U+0000."""
    if not 1 <= len(group) <= limits.GROUP_CHARS_MAX or "\0" in group:
        raise BadRequestError(f"{field} must have 1 to {limits.GROUP_CHARS_MAX} characters and no U+0000", field)


# ---------------------------------------------------------------- queries


def parse_limit(text: str, messages_max: int) -> int:
    """A number of messages."""
    number = int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None
    if number is None:
        raise BadRequestError(f"Limit must be a whole number, not {text[:40]!r}", "limit")
    if number < 1:
        raise BadRequestError("Limit must be greater than 0", "limit")
    if number > messages_max:
        raise BadRequestError(f"Limit must not exceed {messages_max}", "limit")
    return number


def parse_wait_ms(text: str | None) -> int:
    """Seconds to wait, decimals allowed, as milliseconds; ``None`` is 0."""
    if text is None:
        return 0
    seconds = float(text) if _SECONDS.fullmatch(text) else None
    if seconds is None or seconds > limits.WAIT_SECONDS_MAX:
        raise BadRequestError(f"wait must be 0 to {limits.WAIT_SECONDS_MAX} seconds, not {text[:40]!r}", "wait")
    return int(seconds * 1000)


def parse_cursor(time: str | None, message_id: str | None) -> tuple[datetime | None, UUID | None]:
    """Where a peek goes on; an id without a time says nothing."""
    if time is None:
        return None, None
    try:
        after = parse_time(time.replace(" ", "+"), "cursorCreatedAt")
    except BadRequestError:
        raise BadRequestError("Invalid cursor format. Expected ISO timestamp format.", "cursorCreatedAt") from None
    return after, parse_id(message_id, "cursorMessageId") if message_id is not None else None
