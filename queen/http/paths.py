"""Names out of a path that hold slashes: the path is cut as it was sent, and its parts are decoded afterwards.

A slash that the client has encoded (``%2F``) never cuts. One that it has not belongs to the name too, unless it begins
one of the words between which a path is cut.
"""

from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

import falcon.asgi

from queen.core.errors import BadRequestError


def cut(req: falcon.asgi.Request, before: str, words: Sequence[str] = (), ending: str = "") -> tuple[str, ...] | None:
    """The names of a path ``<before>/name</word/name><ending>``, decoded.

    Args:
        req: has the path.
        before: what stands before the first name, with the slash at its beginning only.
        words: what stands between the names, without slashes.
        ending: what stands after the last name, with the slash at its beginning only.

    Returns:
        One name more than there are words, or ``None`` if the path is another one.

    Raises:
        BadRequestError: a name is not UTF-8.
    """
    path: bytes = req.scope["raw_path"].partition(b"?")[0]
    rest = path.partition(before.encode() + b"/")[2]
    if ending:
        if not rest.endswith(ending.encode()):
            return None
        rest = rest[: -len(ending)]
    parts = []
    for word in words:
        part, found, rest = rest.partition(b"/" + word.encode() + b"/")
        if not found:
            return None
        parts.append(part)
    return tuple(decoded(part) for part in (*parts, rest))


def decoded(text: bytes) -> str:
    """A part of a path, percent-decoded."""
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise BadRequestError("The path is not UTF-8", "path") from None
