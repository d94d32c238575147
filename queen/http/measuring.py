"""Measures requests: a falcon middleware."""

import time

import falcon.asgi

from queen.http.request import QueenRequest
from queen.metrics import http
from queen.metrics.http import RequestTally

#: Requests of simple-mq are few enough for a histogram of each route; those of the other interface are tallied.
_SIMPLE_MQ = "/api/queues"
#: Every other method has one name: what a client makes up must not make series.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class MeasureRequests:
    """Counts each request by method, route and status, with the time that it took; long polls take none.

    Args:
        tally: where requests of Queen's interface are counted.
    """

    def __init__(self, tally: RequestTally) -> None:
        self._tally = tally

    async def process_response(
        self, req: QueenRequest, resp: falcon.asgi.Response, _resource: object, _succeeded: bool
    ) -> None:
        """Counts what is answered."""
        seconds = time.perf_counter() - req.began
        route, waits = req.uri_template or "unknown", b"wait" in req.scope["query_string"]
        method = req.method if req.method in _METHODS else "other"
        if not route.startswith(_SIMPLE_MQ):
            self._tally.add(method, route, resp.status_code, 0.0 if waits else seconds)
        elif not waits:
            http.observe(method, route, resp.status_code, seconds)
