"""A collector: takes what servers send over OTLP/HTTP, and keeps it decoded."""

import gzip
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

Attributes = Mapping[str, Any]


def _attributes(pairs: "list[KeyValue]") -> Attributes:
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in pairs}


@dataclass(frozen=True)
class Link:
    """``place`` is trace and span in hexadecimal."""

    place: tuple[str, str]
    attributes: Attributes


@dataclass(frozen=True)
class Span:
    """``place`` and ``parent`` are trace and span in hexadecimal; no parent is an empty span."""

    name: str
    kind: int
    place: tuple[str, str]
    parent: tuple[str, str]
    failed: bool
    attributes: Attributes
    resource: Attributes
    links: tuple[Link, ...]


@dataclass(frozen=True)
class Export:
    """The metrics of one request: kind and points by name, and who sent them."""

    resource: Attributes
    metrics: Mapping[str, tuple[str, list[Any]]]


class Collector:
    """What has come in so far."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Span] = []
        self.exports: list[Export] = []

    def take_spans(self, body: bytes) -> bytes:
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _attributes(list(group.resource.attributes))
            for scope in group.scope_spans:
                for span in scope.spans:
                    trace = span.trace_id.hex()
                    links = tuple(
                        Link((link.trace_id.hex(), link.span_id.hex()), _attributes(list(link.attributes)))
                        for link in span.links
                    )
                    self.spans.append(
                        Span(
                            span.name, span.kind, (trace, span.span_id.hex()), (trace, span.parent_span_id.hex()),
                            span.status.code == 2, _attributes(list(span.attributes)), resource, links,
                        )
                    )  # fmt: skip
        return ExportTraceServiceResponse().SerializeToString()

    def take_metrics(self, body: bytes) -> bytes:
        for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            metrics = {}
            for scope in group.scope_metrics:
                for metric in scope.metrics:
                    kind = str(metric.WhichOneof("data"))
                    metrics[metric.name] = (kind, list(getattr(metric, kind).data_points))
            self.exports.append(Export(_attributes(list(group.resource.attributes)), metrics))
        return ExportMetricsServiceResponse().SerializeToString()


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port."""
    collector = Collector()
    takers = {"/v1/traces": collector.take_spans, "/v1/metrics": collector.take_metrics}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            answer = takers[self.path](body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
