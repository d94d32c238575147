"""Latency, traffic and errors of HTTP requests."""

from collections import defaultdict

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


def observe(method: str, uri: str, status: int, seconds: float) -> None:
    """Counts a request of simple-mq; ``uri`` is the template of its route."""
    REQUESTS.labels(method, uri, str(status)).observe(seconds)


class RequestTally:
    """Counts requests between two publications, with one addition per request and no lookup of labels."""

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self._seconds: defaultdict[tuple[str, str, int], float] = defaultdict(float)

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts a request by the template of its route."""
        key = (method, route, status)
        self._counts[key] += 1
        self._seconds[key] += seconds

    def publish(self) -> None:
        """Publishes the counts."""
        counts, seconds = self._counts, self._seconds
        self._counts, self._seconds = defaultdict(int), defaultdict(float)
        for (method, route, status), number in counts.items():
            labels = (method, route, str(status))
            ANSWERED.labels(*labels).inc(number)
            ANSWER_SECONDS.labels(*labels).inc(seconds[method, route, status])
