"""Names with slashes in a path: the path is split as it was sent, and its parts are decoded afterwards.

An encoded slash (``%2F``) never splits. Other slashes belong to the name, too, except before one of the words at which
a path is split.
"""

import re
from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

from queen.core.errors import BadRequestError


def decoded(text: bytes) -> str:
    """A part of a path, percent-decoded."""
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise BadRequestError("The path is not UTF-8", "path") from None


class Template:
    """A path with names in braces: ``/api/v1/resources/queues/{queue}/depth``.

    Args:
        path: the template; names in camel case.
        slashes: whether names may contain slashes; a name ends at the first text that follows it in the template.

    Attributes:
        route: falcon's template for it.
        path, slashes: as given.
        literal_chars: the length of the template without names: where several match, the longest is meant.
    """

    def __init__(self, path: str, *, slashes: bool) -> None:
        first, *rest = re.split(r"\{(\w+)\}", path)
        self.path, self.slashes = path, slashes
        self._before = first.encode()
        *names, self._last = [_snake(name) for name in rest[::2]] or [""]
        separators = [text.encode() for text in rest[1::2]]
        *between, self._ending = separators or [b""]
        self._between = list(zip(names, between, strict=True))
        self.literal_chars = len(first) + sum(map(len, separators))
        self.route = f"{first}{{path:path}}" if slashes else re.sub(r"\{(\w+)\}", lambda m: f"{{{_snake(m[1])}}}", path)

    def match(self, path: bytes) -> Mapping[str, str] | None:
        """The names in a path as it was sent, decoded; ``None`` if it does not match.

        Raises:
            BadRequestError: a name is not UTF-8.
        """
        rest = path.partition(self._before)[2]
        if self._ending:
            if not rest.endswith(self._ending):
                return None
            rest = rest.removesuffix(self._ending)
        names = {}
        for name, separator in self._between:
            part, found, rest = rest.partition(separator)
            if not found:
                return None
            names[name] = decoded(part)
        names[self._last] = decoded(rest)
        return names


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda m: f"_{m[0].lower()}", name)
