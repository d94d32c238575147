"""Latency, traffic and errors of HTTP requests."""

from prometheus_client import Counter, Histogram

from queen.metrics.registry import REGISTRY

#: In seconds. From 50 ms on the buckets of the original; below, the range of this server's answers.
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

REQUESTS = Histogram(
    "http_server_requests_seconds",
    "Duration of simple-mq requests, from the request line to the answer; without long polls.",
    ("method", "uri", "status"),
    buckets=BUCKETS,
    registry=REGISTRY,
)
ANSWERED = Counter("queen_http_requests", "Answered requests.", ("method", "route", "status"), registry=REGISTRY)
ANSWER_SECONDS = Counter(
    "queen_http_request_seconds",
    "Total duration of the requests; without long polls.",
    ("method", "route", "status"),
    registry=REGISTRY,
)
