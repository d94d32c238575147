"""Measures requests of simple-mq: a falcon middleware."""

import time

import falcon.asgi

from queen.metrics import http

#: Requests of the other interface are not measured here: they cost less than their histogram would.
_PREFIX = "/api/queues"


class MeasureRequests:
    """Observes how long each request took, by method, route and status; long polls are left out."""

    async def process_request(self, req: falcon.asgi.Request, _resp: falcon.asgi.Response) -> None:
        """Notes the beginning."""
        if req.path.startswith(_PREFIX):
            req.context.began = time.perf_counter()

    async def process_response(
        self, req: falcon.asgi.Request, resp: falcon.asgi.Response, _resource: object, _succeeded: bool
    ) -> None:
        """Observes the end."""
        began = getattr(req.context, "began", None)
        if began is not None and not req.has_param("wait"):
            uri = req.uri_template or "unknown"
            http.observe(req.method, uri, resp.status_code, time.perf_counter() - began)
