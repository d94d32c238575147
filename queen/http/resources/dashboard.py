"""``GET /``: the dashboard, a page that shows what the rest of the interface answers."""

from importlib.resources import files

import falcon.asgi

from queen.http.assets import Assets, files_below

#: It loads and calls nothing but this server, and no text becomes markup or a script, whatever a payload holds.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)


class DashboardResource:
    """The page and its files, the same for everybody: what the page shows, it asks for with its user's token."""

    def __init__(self) -> None:
        self._assets = Assets(dict(files_below(files("queen") / "dashboard")), _POLICY)

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """The page."""
        self._assets.send(req, resp, "index.html")

    async def on_get_file(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, place: str) -> None:
        """A file of the page."""
        self._assets.send(req, resp, place)
