"""``GET /openapi.json`` and ``GET /docs``: the contract, for programs and for people."""

import gzip
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import falcon
import falcon.asgi
import msgspec

from queen.core.errors import NotFoundError

_ASSETS = files("queen.http") / "assets"
MEDIA_CSS = "text/css"
_TYPES = {".js": falcon.MEDIA_JS, ".css": MEDIA_CSS}
#: Files of the page, and where they lie; those of Swagger UI are compressed (ADR 24).
_FILES: Mapping[str, str] = {
    "docs.js": "docs.js",
    "swagger-ui-bundle.js": "swagger-ui/swagger-ui-bundle.js.gz",
    "swagger-ui.css": "swagger-ui/swagger-ui.css.gz",
}
#: Nothing comes from elsewhere, and nothing goes there.
_POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
_KEEP = "public, max-age=3600"


class ContractResource:
    """The document, as it holds for this server."""

    def __init__(self, document: Callable[[], Any]) -> None:
        self._document = document
        self._encoded = b""

    async def on_get(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """OpenAPI 3.1; made at the first request."""
        if not self._encoded:
            self._encoded = msgspec.json.encode(self._document())
        resp.content_type = falcon.MEDIA_JSON
        resp.data = self._encoded


class DocumentationResource:
    """The document as a page, with everything that it needs."""

    async def on_get(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """The page."""
        resp.content_type = falcon.MEDIA_HTML
        resp.set_header("Content-Security-Policy", _POLICY)
        resp.data = _read("docs.html")

    async def on_get_asset(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, asset: str) -> None:
        """A file of the page."""
        if asset not in _FILES:
            raise NotFoundError(f"The page has no file {asset[:100]!r}")
        resp.content_type = _TYPES[f".{asset.rpartition('.')[2]}"]
        resp.set_header("Cache-Control", _KEEP)
        content = _read(_FILES[asset])
        if _FILES[asset].endswith(".gz"):
            resp.append_header("Vary", "Accept-Encoding")
            if "gzip" in (req.get_header("Accept-Encoding") or ""):
                resp.set_header("Content-Encoding", "gzip")
            else:
                content = gzip.decompress(content)
        resp.data = content


@cache
def _read(name: str) -> bytes:
    return _ASSETS.joinpath(name).read_bytes()
