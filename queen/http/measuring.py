"""Measures requests: a falcon middleware."""

import time

import falcon.asgi

from queen.http.request import QueenRequest
from queen.metrics import http
from queen.metrics.http import RequestTally

#: Requests of simple-mq have a histogram per route; those of Queen's interface are too many and are tallied.
_SIMPLE_MQ = "/api/queues"
#: All other methods share one label value: clients must not be able to create series.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class MeasureRequests:
    """Counts requests by method, route and status, with their duration; long polls without.

    Args:
        tally: counts requests of Queen's interface.
    """

    def __init__(self, tally: RequestTally) -> None:
        self._tally = tally

    async def process_response(
        self, req: QueenRequest, resp: falcon.asgi.Response, _resource: object, _succeeded: bool
    ) -> None:
        """Counts an answered request."""
        seconds = time.perf_counter() - req.began
        route, waits = req.uri_template or "unknown", b"wait" in req.scope["query_string"]
        method = req.method if req.method in _METHODS else "other"
        if not route.startswith(_SIMPLE_MQ):
            self._tally.add(method, route, resp.status_code, 0.0 if waits else seconds)
        elif not waits:
            http.observe(method, route, resp.status_code, seconds)
