"""Bodies into values."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from queen.http.parsing import decode
from queen.http.request import QueenRequest, read_body

T = TypeVar("T")


async def read_json(
    req: QueenRequest, decoder: "msgspec.json.Decoder[T]", bytes_max: int, texts: Mapping[str, str]
) -> T:
    """The body as the decoder's type; ``texts`` as ``decode`` takes them.

    Raises:
        BodyTooLargeError: it has more than ``bytes_max``, or more elements than a request may have.
        BadRequestError: it is not what the decoder wants; names the field.
    """
    body = await read_body(req, bytes_max)
    req.room.check(decoder, body)
    return decode(decoder, body, texts)
