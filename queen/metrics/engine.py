"""Metrics of the engine: waiting jobs, calls in flight, batch sizes, and duration of calls.

The engine only adds; the sums are published once per second, at no cost per request.
"""

from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client import Counter, Gauge, Histogram

from queen.core.job_type import JobType
from queen.metrics.registry import REGISTRY

_KIND = ("kind",)

#: The upper bounds of the buckets.
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_JOBS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class _SummedHistogram(Histogram):
    """A histogram that takes many observations at once: one by one, each costs fifteen Python calls."""

    def add(self, counts: Sequence[int], total: float) -> None:
        """Adds observations: how many in each bucket, the last without a bound, and their sum."""
        self._sum.inc(total)
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count:
                bucket.inc(count)


CALL_SECONDS = _SummedHistogram(
    "queen_engine_call_seconds",
    "Duration of one call to PostgreSQL (round trip).",
    _KIND,
    buckets=_SECONDS,
    registry=REGISTRY,
)
BATCH_JOBS = _SummedHistogram(
    "queen_engine_batch_jobs",
    "Jobs per call.",
    _KIND,
    buckets=_JOBS,
    registry=REGISTRY,
)


def _gauge(name: str, meaning: str, labels: tuple[str, ...] = ()) -> Gauge:
    """A gauge that is summed over live workers."""
    return Gauge(name, meaning, labels, registry=REGISTRY, multiprocess_mode="livesum")


def _counter(name: str, meaning: str, labels: tuple[str, ...] = ()) -> Counter:
    return Counter(name, meaning, labels, registry=REGISTRY)


WORKERS = _gauge("queen_workers", "Worker processes.")
JOBS_WAITING = _gauge("queen_engine_jobs_waiting", "Jobs that wait for a call.", _KIND)
BYTES_WAITING = _gauge("queen_engine_bytes_waiting", "Bytes of the waiting jobs.", _KIND)
CALLS_IN_FLIGHT = _gauge("queen_engine_calls_in_flight", "Calls in flight.", _KIND)
CALLS_LIMIT = _gauge("queen_engine_calls_limit", "Limit of calls in flight; Vegas adjusts it.", _KIND)
JOBS = _counter("queen_engine_jobs", "Jobs that went into a call.", _KIND)
JOBS_FAILED = _counter("queen_engine_jobs_failed", "Jobs answered with an error.", _KIND)
JOBS_REFUSED = _counter("queen_engine_jobs_refused", "Jobs refused because too many were waiting.", _KIND)
CONNECTIONS = _gauge("queen_connections", "Connections to PostgreSQL shared by all jobs.", ("pool",))
CONNECTIONS_FREE = _gauge("queen_connections_free", "Idle connections among these.", ("pool",))
WAITERS = _gauge("queen_waiters", "Waiting long polls.")
WAITERS_MAX = _gauge("queen_waiters_max", "Limit of waiting long polls.")
PREFETCHED = _counter(
    "queen_prefetched", "Leases that were prefetched: taken by a pop, or given back because no pop came.", ("outcome",)
)
WAITERS_REFUSED = _counter("queen_waiters_refused", "Long polls refused because of the limit.")
WAITER_PLACES = _gauge("queen_waiter_places", "Distinct queues, groups and partitions that long polls wait for.")
WEBSOCKETS = _gauge("queen_websockets", "Open WebSockets.")


class _Observations:
    """Observations of one histogram, for all time, and how many of them are published."""

    def __init__(self, histogram: _SummedHistogram, bounds: Sequence[float]) -> None:
        self._histogram = histogram
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self._published, self._published_total = list(self.counts), 0.0

    def publish(self) -> None:
        """Adds the new ones to the histogram. May be called in another thread than that of the engine."""
        counts, total = list(self.counts), self.total
        if counts == self._published:
            return
        before = zip(counts, self._published, strict=True)
        self._histogram.add([now - then for now, then in before], total - self._published_total)
        self._published, self._published_total = counts, total


_OBSERVED = {
    kind: (
        _Observations(CALL_SECONDS.labels(kind.value), _SECONDS),
        _Observations(BATCH_JOBS.labels(kind.value), _JOBS),
    )
    for kind in JobType
}


def observe_call(kind: JobType, seconds: float, jobs: int) -> None:
    """Observes one call."""
    times, sizes = _OBSERVED[kind]
    times.counts[bisect_left(_SECONDS, seconds)] += 1
    times.total += seconds
    sizes.counts[bisect_left(_JOBS, jobs)] += 1
    sizes.total += jobs


def publish_calls() -> None:
    """Publishes the calls since the last time."""
    for observed in _OBSERVED.values():
        for each in observed:
            each.publish()
