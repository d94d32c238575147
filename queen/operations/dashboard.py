"""The dashboard: ``GET /`` and its files. They are public: the page fetches its data with the user's token."""

from importlib.resources import files

import falcon
import falcon.asgi

from queen.http.access import PUBLIC
from queen.http.assets import MEDIA_CSS, Assets, files_below
from queen.http.operation import Answer, Parameter, operation
from queen.http.request import QueenRequest
from queen.operations.server import Server

#: The page loads from and calls this server only, and texts never become markup or scripts, whatever a payload has.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
_page = Assets(dict(files_below(files("queen") / "dashboard")), _POLICY)


@operation(
    "GET",
    "/",
    "getDashboard",
    "The dashboard",
    access=PUBLIC,
    answers=[Answer("All resources come from this server", str, media_type=falcon.MEDIA_HTML)],
    errors=(),
)
async def get_dashboard(_server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """The page."""
    _page.send(req, resp, "index.html")


@operation(
    "GET",
    "/dashboard/{file}",
    "getDashboardFile",
    "A file of the dashboard",
    access=PUBLIC,
    answers=[Answer("A script", str, media_type=falcon.MEDIA_JS), Answer("A style", str, media_type=MEDIA_CSS)],
    errors=(404,),
    parameters=[
        Parameter("file", "Path of the file, with slashes", {"type": "string"}, "path", required=True, slashes=True),
    ],
)
async def get_dashboard_file(_server: Server, req: QueenRequest, resp: falcon.asgi.Response, file: str) -> None:
    """A file of the page."""
    _page.send(req, resp, file)
