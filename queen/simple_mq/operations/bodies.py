"""Reads request bodies, whose fields may have two spellings."""

from typing import Annotated, Any, TypeVar

import falcon
import msgspec
from msgspec import Struct

from queen.core.errors import BadRequestError
from queen.http import reading
from queen.http.fields import between
from queen.http.request import QueenRequest
from queen.simple_mq import requests as limits

T = TypeVar("T")

#: A visibility timeout in seconds.
Visibility = Annotated[int, between(0, limits.VISIBILITY_SECONDS_MAX)]


async def read_json(req: QueenRequest, decoder: "msgspec.json.Decoder[T]", bytes_max: int) -> T:
    """The decoded body; its content type must be JSON, if given.

    Raises:
        HTTPUnsupportedMediaType: it is not JSON.
        BadRequestError: the body is invalid; names the field.
    """
    kind = (req.content_type or falcon.MEDIA_JSON).partition(";")[0].strip().lower()
    if kind != falcon.MEDIA_JSON and not kind.endswith("+json"):
        raise falcon.HTTPUnsupportedMediaType(description=f"The body must be application/json, not {kind[:80]}")
    return await reading.read_json(req, decoder, bytes_max, {})


def either(body: Struct, camel: str, snake: str) -> Any:  # noqa: ANN401 - what the two fields hold
    """The value of a field with two spellings."""
    first, second = getattr(body, camel), getattr(body, snake)
    if first is not None and second is not None and first != second:
        raise BadRequestError(f"{camel} and {snake} are both given with different values", camel)
    return first if first is not None else second


def check_number(value: object, field: str, low: tuple[int, str], high: tuple[int, str]) -> int:
    """Checks a whole number; each limit has its error text."""
    if not isinstance(value, int):
        raise BadRequestError(f"{field} is required", field)
    if value < low[0]:
        raise BadRequestError(low[1], field)
    if value > high[0]:
        raise BadRequestError(high[1], field)
    return value


def visibility_of(body: Struct) -> int:
    """The visibility timeout of a body, in seconds; it is required.

    Raises:
        BadRequestError: it is missing or out of range.
    """
    return check_number(
        either(body, "visibilityTimeout", "visibility_timeout"), "visibilityTimeout",
        (0, "Visibility timeout cannot be negative"),
        (limits.VISIBILITY_SECONDS_MAX, "Visibility timeout cannot exceed 12 hours (43200 seconds)"),
    )  # fmt: skip
