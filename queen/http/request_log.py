"""Log lines about requests that were answered: one for each administrative change, of all requests if wanted.

Every line has the fields of ``QueenRequest.log_fields``, of which ``request_id`` is also in the answer.
"""

import logging
import time
from collections.abc import Sequence

import falcon.asgi

from queen.http.request import REQUEST_ID, QueenRequest
from queen.http.routes import Route

#: What asks, and so changes nothing.
_ASKING = frozenset({"GET", "HEAD", "OPTIONS"})
_BODY_CHARS_MAX = 1000

changes = logging.getLogger("queen.audit")
requests = logging.getLogger("queen.requests")


class RequestLog:
    """Names the requests whose answers somebody may ask about, and writes lines: a falcon middleware.

    Most requests get no id: making one and sending it back costs more than all of routing.

    Args:
        table: all routes, of which some are administration.
        of_all: whether every request has an id and a line.
    """

    def __init__(self, table: Sequence[Route], *, of_all: bool) -> None:
        self._of_all = of_all
        self._audited = {
            (route.path, method) for route in table if route.audited for method in route.access if method not in _ASKING
        }

    async def process_response(
        self, req: QueenRequest, resp: falcon.asgi.Response, _resource: object, _succeeded: bool
    ) -> None:
        """Looks at a request that is about to be answered."""
        status, changed = resp.status_code, (req.uri_template, req.method) in self._audited
        if not (changed or status >= 400 or self._of_all or req.get_header(REQUEST_ID) is not None):
            return
        resp.set_header(REQUEST_ID, req.request_id)
        if changed and not 400 <= status < 500:
            fields = {**req.log_fields, "status": status}
            # Nothing of a body of administration is secret; messages are not among them.
            if body := req.opening.get("body"):
                fields["body"] = body[:_BODY_CHARS_MAX].decode(errors="replace")
            changes.info("administrative change", extra=fields)
        if self._of_all:
            took_ms = round((time.perf_counter() - req.began) * 1000, 2)
            requests.info("request", extra={**req.log_fields, "status": status, "took_ms": took_ms})
