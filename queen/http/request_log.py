"""Log lines about requests that were answered: one for each administrative change, of all requests if wanted.

Every line has the fields of ``QueenRequest.log_fields``, of which ``request_id`` is also in the answer.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import falcon.asgi

from queen.http.request import REQUEST_ID, QueenRequest
from queen.http.routes import Route

#: What asks, and so changes nothing.
_ASKING = frozenset({"GET", "HEAD", "OPTIONS"})
_BODY_CHARS_MAX = 1000
#: Where a scope of ASGI has its request while that changes something.
_UNDER_WAY = "queen.change"

changes = logging.getLogger("queen.audit")
requests = logging.getLogger("queen.requests")


def _what_changes(req: QueenRequest) -> dict[str, str]:
    fields = req.log_fields
    # Nothing of a body of administration is secret; messages are not among them.
    if body := req.body.strip():
        fields["body"] = body[:_BODY_CHARS_MAX].decode(errors="replace")
    return fields


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

    async def process_resource(
        self, req: QueenRequest, _resp: falcon.asgi.Response, _resource: object, _params: Mapping[str, object]
    ) -> None:
        """Remembers an administrative change that begins."""
        if self._changes(req):
            req.scope[_UNDER_WAY] = req

    async def process_response(
        self, req: QueenRequest, resp: falcon.asgi.Response, _resource: object, _succeeded: bool
    ) -> None:
        """Looks at a request that is about to be answered."""
        status, changed = resp.status_code, self._changes(req)
        if not (changed or status >= 400 or self._of_all or req.get_header(REQUEST_ID) is not None):
            return
        resp.set_header(REQUEST_ID, req.request_id)
        if changed:
            req.scope.pop(_UNDER_WAY, None)
            if not 400 <= status < 500:
                changes.info("administrative change", extra={**_what_changes(req), "status": status})
        if self._of_all:
            took_ms = round((time.perf_counter() - req.began) * 1000, 2)
            requests.info("request", extra={**req.log_fields, "status": status, "took_ms": took_ms})

    def cut_off(self, scope: Mapping[str, Any]) -> None:
        """A request will not be answered, because its client has left; what it asked for may still be done."""
        if req := scope.get(_UNDER_WAY):
            changes.warning("administrative change, outcome unknown: the client left", extra=_what_changes(req))

    def _changes(self, req: QueenRequest) -> bool:
        return (req.uri_template, req.method) in self._audited
