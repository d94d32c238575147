"""``GET /openapi.json`` and ``GET /docs``: the contract, for programs and for people."""

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import falcon
import falcon.asgi
import msgspec

from queen.http.assets import Assets

_FOLDER = files("queen.http") / "assets"
#: Files of the page, and where they lie; those of Swagger UI are compressed (ADR 24).
_FILES = {
    "docs.html": _FOLDER / "docs.html",
    "docs.js": _FOLDER / "docs.js",
    "swagger-ui-bundle.js": _FOLDER / "swagger-ui" / "swagger-ui-bundle.js.gz",
    "swagger-ui.css": _FOLDER / "swagger-ui" / "swagger-ui.css.gz",
}
#: Nothing comes from elsewhere, and nothing goes there.
_POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"


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

    def __init__(self) -> None:
        self._assets = Assets(_FILES, _POLICY)

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """The page."""
        self._assets.send(req, resp, "docs.html")

    async def on_get_asset(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, asset: str) -> None:
        """A file of the page."""
        self._assets.send(req, resp, asset)
