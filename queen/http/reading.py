"""Reads and decodes request bodies."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from queen.http.parsing import decode
from queen.http.request import QueenRequest, read_body

T = TypeVar("T")


async def read_json(
    req: QueenRequest, decoder: "msgspec.json.Decoder[T]", bytes_max: int, texts: Mapping[str, str]
) -> T:
    """The decoded body; ``texts`` as in ``decode``.

    Raises:
        BodyTooLargeError: it exceeds ``bytes_max``, or the maximum of elements.
        BadRequestError: it is invalid; names the field.
    """
    body = await read_body(req, bytes_max)
    req.room.check(decoder, body)
    return decode(decoder, body, texts)
