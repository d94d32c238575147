"""Log lines about answered requests: one per administrative change and what it changes, or one per request if enabled.

Lines have the fields of ``QueenRequest.log_fields``; ``request_id`` is also in the answer.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import falcon.asgi

from queen.http.request import REQUEST_ID, QueenRequest
from queen.http.routes import Route

#: Methods that change nothing.
_ASKING = frozenset({"GET", "HEAD", "OPTIONS"})
#: A queue has three names of 255 characters, each of at most 12 bytes in JSON.
_BODY_BYTES_MAX = 16_384
_ID_HEADER = REQUEST_ID.lower().encode()
#: Key of the ASGI scope for a request that is changing something.
_UNDER_WAY = "queen.change"

changes = logging.getLogger("queen.audit")
requests = logging.getLogger("queen.requests")


def _what_changes(req: QueenRequest, answer: bytes | None = None) -> Iterator[dict[str, object]]:
    """The fields of each line about a change; a change of many dead letters has its body and answer in the first."""
    first, *others = req.about or [{}]
    # Bodies of administrative requests have no secrets; messages are not among them.
    texts = {"body": req.body.strip() or None, "answer": answer}
    shown = {name: text[:_BODY_BYTES_MAX].decode(errors="replace") for name, text in texts.items() if text is not None}
    yield req.log_fields | shown | first
    for about in others:
        yield req.log_fields | about


class RequestLog:
    """Gives ids to requests of interest and logs them: a falcon middleware.

    Most requests get no id: creating and sending one costs more than routing.

    Args:
        table: all routes; some are administrative.
        of_all: whether every request gets an id and a line.
    """

    def __init__(self, table: Sequence[Route], *, of_all: bool) -> None:
        self._of_all = of_all
        self._audited = {
            (route.path, method) for route in table if route.audited for method in route.access if method not in _ASKING
        }

    async def process_resource(
        self, req: QueenRequest, _resp: falcon.asgi.Response, _resource: object, _params: Mapping[str, object]
    ) -> None:
        """Marks the start of an administrative change."""
        if (req.uri_template, req.method) in self._audited:
            req.scope[_UNDER_WAY] = req

    async def process_response(
        self, req: QueenRequest, resp: falcon.asgi.Response, _resource: object, _succeeded: bool
    ) -> None:
        """Logs a request that is about to be answered."""
        status, changed = resp.status_code, _UNDER_WAY in req.scope
        if not (changed or status >= 400 or self._of_all or _ID_HEADER in req.sent_headers):
            return
        resp.set_header(REQUEST_ID, req.request_id)
        took_ms = round((time.perf_counter() - req.began) * 1000, 2)
        if changed:
            del req.scope[_UNDER_WAY]
            if not 400 <= status < 500:
                for fields in _what_changes(req, resp.data or b""):
                    changes.info("administrative change", extra={**fields, "status": status, "took_ms": took_ms})
        if self._of_all:
            requests.info("request", extra={**req.log_fields, "status": status, "took_ms": took_ms})

    def cut_off(self, scope: Mapping[str, Any]) -> None:
        """Logs a request whose client has disconnected; its work may still be done."""
        if req := scope.get(_UNDER_WAY):
            for fields in _what_changes(req):
                changes.warning("administrative change, outcome unknown: the client disconnected", extra=fields)
