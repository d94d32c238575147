"""Static files of the server's pages: in memory, compressed, with an ETag."""

import gzip
from collections.abc import Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from importlib.resources.abc import Traversable

import falcon
import falcon.asgi
from msgspec import Struct

from queen.core.errors import NotFoundError

MEDIA_CSS = "text/css"
_TYPES = {
    "css": MEDIA_CSS,
    "html": falcon.MEDIA_HTML,
    "js": falcon.MEDIA_JS,
    "svg": "image/svg+xml",
    "txt": falcon.MEDIA_TEXT,
}
#: A browser caches files and revalidates them each time, so that it uses no old file after an upgrade.
_CACHING = "no-cache"


class Asset(Struct, frozen=True):
    """A file to send.

    Attributes:
        media_type: for ``Content-Type``.
        plain: the file.
        packed: the file, compressed by gzip.
        tag: for ``ETag``; weak, because both forms have the same tag.
    """

    media_type: str
    plain: bytes
    packed: bytes
    tag: str


class Assets:
    """The files of a page.

    Args:
        places: the files by the name in the URL; a file whose name ends with ``.gz`` is compressed.
        policy: what the page may load and call (``Content-Security-Policy``).
    """

    def __init__(self, places: Mapping[str, Traversable], policy: str) -> None:
        self._places, self._policy = places, policy

    def send(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, name: str) -> None:
        """Answers a file, or 304 if the browser has it already.

        Raises:
            NotFoundError: the page has no such file.
        """
        asset = self._loaded.get(name)
        if asset is None:
            raise NotFoundError(f"The dashboard has no file {name[:100]!r}")
        resp.etag = asset.tag
        resp.cache_control = [_CACHING]
        resp.vary = ["Accept-Encoding"]
        resp.set_headers(
            {
                "Content-Security-Policy": self._policy,
                "Referrer-Policy": "no-referrer",
                "X-Content-Type-Options": "nosniff",
            }
        )
        if asset.tag in {tag if tag == "*" else tag.dumps() for tag in req.if_none_match or ()}:
            resp.status = 304
            return
        resp.content_type = asset.media_type
        if "gzip" in (req.get_header("Accept-Encoding") or ""):
            resp.set_header("Content-Encoding", "gzip")
            resp.data = asset.packed
        else:
            resp.data = asset.plain

    @cached_property
    def _loaded(self) -> Mapping[str, Asset]:
        return {name: _load(name, place) for name, place in self._places.items()}


def files_below(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    """All files to serve in a folder and its subfolders, by path."""
    for place in folder.iterdir():
        if place.is_dir():
            yield from files_below(place, f"{prefix}{place.name}/")
        elif _ending(place.name) in _TYPES:
            yield f"{prefix}{place.name}", place


def _ending(name: str) -> str:
    return name.rpartition(".")[2]


def _load(name: str, place: Traversable) -> Asset:
    content = place.read_bytes()
    plain = gzip.decompress(content) if place.name.endswith(".gz") else content
    packed = content if plain is not content else gzip.compress(plain, mtime=0)
    return Asset(_TYPES[_ending(name)], plain, packed, f'W/"{sha256(plain).hexdigest()[:20]}"')
