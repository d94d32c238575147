"""One span per request, by the semantic conventions for HTTP servers: a falcon middleware."""

from collections.abc import Iterable, Mapping
from typing import Any

import falcon.asgi
from opentelemetry import propagate
from opentelemetry.propagators.textmap import Getter
from opentelemetry.semconv._incubating.attributes import messaging_attributes, rpc_attributes
from opentelemetry.semconv.attributes import (
    client_attributes,
    error_attributes,
    http_attributes,
    network_attributes,
    server_attributes,
    url_attributes,
    user_agent_attributes,
)
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, get_current_span
from opentelemetry.util.types import AttributeValue

from queen.http.query_shown import query_shown
from queen.http.request import QueenRequest
from queen.telemetry.exchange import Exchange, current

#: Requests for queues are traced; health checks, scrapes, pages and notifications between instances are not.
_TRACED = ("/api/", "/streams/", "/sqs")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

Headers = Iterable[tuple[bytes, bytes]]


class _HeaderGetter(Getter[Headers]):
    """Reads the headers of an ASGI scope."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        name = key.lower().encode()
        return [value.decode("latin-1") for held, value in carrier if held == name] or None

    def keys(self, carrier: Headers) -> list[str]:
        return [name.decode("latin-1") for name, _ in carrier]


_GETTER = _HeaderGetter()


class TraceRequests:
    """Starts and ends the span of each request; the engine adds details (``queen.telemetry.engine``).

    It is the outermost middleware, so that refusals are recorded, too.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def process_request(self, req: QueenRequest, _resp: falcon.asgi.Response) -> None:
        """Starts the span, as a child of the client's span."""
        if not req.path.startswith(_TRACED):
            current.set(None)
            return
        parent = propagate.extract(req.scope["headers"], getter=_GETTER)
        method = req.method if req.method in _METHODS else "HTTP"
        span = self._tracer.start_span(method, parent, SpanKind.SERVER, _known_at_once(req))
        if span.is_recording():
            span.set_attributes(_of_client(req))
        current.set(Exchange(span, get_current_span(parent).get_span_context()))

    async def process_resource(
        self, req: QueenRequest, _resp: falcon.asgi.Response, _resource: object, _params: Mapping[str, object]
    ) -> None:
        """Names the span by its route."""
        exchange = current.get()
        if exchange is not None and exchange.span.is_recording() and req.uri_template:
            method = req.method if req.method in _METHODS else "HTTP"
            exchange.span.update_name(f"{method} {req.uri_template}")
            exchange.span.set_attribute(http_attributes.HTTP_ROUTE, req.uri_template)

    async def process_response(
        self, req: QueenRequest, resp: falcon.asgi.Response, _resource: object, _succeeded: bool
    ) -> None:
        """Ends the span. Client errors are not errors of this span."""
        exchange = current.get()
        if exchange is None:
            return
        current.set(None)
        span, status = exchange.span, resp.status_code
        if span.is_recording():
            span.set_attribute(http_attributes.HTTP_RESPONSE_STATUS_CODE, status)
            if req.action:
                _name_action(span, req)
            if status >= 500:
                span.set_attribute(error_attributes.ERROR_TYPE, str(status))
                span.set_status(StatusCode.ERROR)
        span.end()


def _name_action(span: Span, req: QueenRequest) -> None:
    """All actions of SQS have one route, so they have names of their own."""
    span.update_name(f"SQS {req.action}")
    span.set_attribute(rpc_attributes.RPC_METHOD, req.action)
    if req.queue:
        span.set_attribute(messaging_attributes.MESSAGING_DESTINATION_NAME, req.queue)


def _known_at_once(req: QueenRequest) -> dict[str, AttributeValue]:
    """The attributes for the sampler."""
    known: dict[str, AttributeValue] = {
        http_attributes.HTTP_REQUEST_METHOD: req.method if req.method in _METHODS else "_OTHER",
        url_attributes.URL_PATH: req.path,
        url_attributes.URL_SCHEME: req.scheme,
    }
    if req.query_string:
        known[url_attributes.URL_QUERY] = query_shown(req.query_string)
    return known


def _of_client(req: QueenRequest) -> dict[str, AttributeValue]:
    found: dict[str, Any] = {
        server_attributes.SERVER_ADDRESS: req.host,
        server_attributes.SERVER_PORT: req.port,
        client_attributes.CLIENT_ADDRESS: req.remote_addr,
        network_attributes.NETWORK_PROTOCOL_VERSION: req.scope["http_version"],
        user_agent_attributes.USER_AGENT_ORIGINAL: req.user_agent,
        http_attributes.HTTP_REQUEST_METHOD_ORIGINAL: None if req.method in _METHODS else req.method,
    }
    return {name: value for name, value in found.items() if value is not None}
