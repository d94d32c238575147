"""Counts requests: a falcon middleware."""

import time
from collections import defaultdict

import falcon.asgi

from queen.http.request import QueenRequest
from queen.metrics.http import ANSWER_SECONDS, ANSWERED, REQUESTS

#: Requests of simple-mq have a histogram per route; for those of Queen's interface, which are too many, a sum is kept.
_SIMPLE_MQ = "/api/queues"
#: All other methods share one label value: clients must not be able to create series.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestCounters:
    """Counts requests by method, route and status, with their duration; long polls without.

    A request of Queen's interface costs one addition and no lookup of labels: ``publish`` passes the sums on.
    """

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self._seconds: defaultdict[tuple[str, str, int], float] = defaultdict(float)

    async def process_response(
        self, req: QueenRequest, resp: falcon.asgi.Response, _resource: object, _succeeded: bool
    ) -> None:
        """Counts an answered request."""
        seconds = time.perf_counter() - req.began
        route, waits = req.uri_template or "unknown", b"wait" in req.scope["query_string"]
        method = req.method if req.method in _METHODS else "other"
        if not route.startswith(_SIMPLE_MQ):
            self.add(method, route, resp.status_code, 0.0 if waits else seconds)
        elif not waits:
            REQUESTS.labels(method, route, str(resp.status_code)).observe(seconds)

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts a request by the template of its route."""
        key = (method, route, status)
        self._counts[key] += 1
        self._seconds[key] += seconds

    def publish(self) -> None:
        """Passes the counts since the last call to the Prometheus client."""
        counts, seconds = self._counts, self._seconds
        self._counts, self._seconds = defaultdict(int), defaultdict(float)
        for (method, route, status), number in counts.items():
            labels = (method, route, str(status))
            ANSWERED.labels(*labels).inc(number)
            ANSWER_SECONDS.labels(*labels).inc(seconds[method, route, status])
