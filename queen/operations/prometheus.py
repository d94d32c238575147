"""Metrics for Prometheus: ``GET /metrics/prometheus`` and ``GET /actuator/prometheus``."""

import falcon.asgi

from queen.http import queries
from queen.http.access import PUBLIC
from queen.http.operation import Answer, Parameter, operation
from queen.http.parameters import NAME
from queen.http.request import QueenRequest
from queen.metrics.registry import CONTENT_TYPE, render
from queen.operations.server import Server

_ANSWERS = [Answer("Of all workers of the instance", str, media_type=CONTENT_TYPE)]


_NAMES = Parameter(
    "name",
    "Only metrics whose name begins so, one parameter per beginning",
    {"type": "array", "items": NAME, "maxItems": queries.NAMES_MAX},
)


async def _send_metrics(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """200, also while PostgreSQL is unavailable: then without its statistics."""
    names = queries.names(req, "name")
    families = await server.metrics.on_request()
    resp.content_type = CONTENT_TYPE
    resp.set_header("Cache-Control", "no-cache")
    resp.data = render(families, names)


get_prometheus_metrics = operation(
    "GET",
    "/metrics/prometheus",
    "getPrometheusMetrics",
    "Show all metrics in the Prometheus text format",
    access=PUBLIC,
    answers=_ANSWERS,
    errors=(400,),
    parameters=[_NAMES],
)(_send_metrics)

get_actuator_prometheus = operation(
    "GET",
    "/actuator/prometheus",
    "getActuatorPrometheus",
    "Show metrics, as at `/metrics/prometheus`",
    access=PUBLIC,
    answers=_ANSWERS,
    errors=(400,),
    parameters=[_NAMES],
)(_send_metrics)
