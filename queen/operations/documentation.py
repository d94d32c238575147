"""The OpenAPI document, and a page that shows it: ``GET /openapi.json``, ``GET /docs``."""

from functools import lru_cache
from importlib.resources import files

import falcon
import falcon.asgi
import msgspec

from queen.http.access import PUBLIC
from queen.http.assets import MEDIA_CSS, Assets
from queen.http.openapi.document import document
from queen.http.operation import Answer, Parameter, operation
from queen.http.request import QueenRequest
from queen.operations.server import Server

_FOLDER = files("queen.http") / "assets"
#: Files of the page and their locations; those of Swagger UI are compressed (ADR 24).
_FILES = {
    "docs.html": _FOLDER / "docs.html",
    "docs.js": _FOLDER / "docs.js",
    "swagger-ui-bundle.js": _FOLDER / "swagger-ui" / "swagger-ui-bundle.js.gz",
    "swagger-ui.css": _FOLDER / "swagger-ui" / "swagger-ui.css.gz",
}
#: The page loads from and sends to this server only.
_POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
_page = Assets(_FILES, _POLICY)


@operation(
    "GET",
    "/openapi.json",
    "getContract",
    "This document",
    access=PUBLIC,
    answers=[Answer("OpenAPI 3.1", dict)],
    errors=(),
)
async def get_contract(server: Server, _req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """OpenAPI 3.1; built at the first request."""
    resp.content_type = falcon.MEDIA_JSON
    resp.data = _document(server)


@lru_cache(maxsize=1)
def _document(server: Server) -> bytes:
    return msgspec.json.encode(document(server.topics, over_several=bool(server.settings.database.shards)))


@operation(
    "GET",
    "/docs",
    "getDocumentation",
    "This document as a web page",
    access=PUBLIC,
    answers=[Answer("All resources come from this server", str, media_type=falcon.MEDIA_HTML)],
    errors=(),
)
async def get_documentation(_server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """The page."""
    _page.send(req, resp, "docs.html")


@operation(
    "GET",
    "/docs/{asset}",
    "getDocumentationAsset",
    "A file of the web page",
    access=PUBLIC,
    answers=[Answer("A script", str, media_type=falcon.MEDIA_JS), Answer("A style", str, media_type=MEDIA_CSS)],
    errors=(404,),
    parameters=[Parameter("asset", "Name of the file", {"type": "string"}, "path", required=True)],
)
async def get_documentation_asset(_server: Server, req: QueenRequest, resp: falcon.asgi.Response, asset: str) -> None:
    """A file of the page."""
    _page.send(req, resp, asset)
