"""Metrics of the engine: waiting jobs, calls in flight, batch sizes, and duration of calls.

Calls are observed one by one, through children that are bound at the start. Everything else is counted by the engine
anyway and published once per second, at no cost per request.
"""

from prometheus_client import Counter, Gauge, Histogram

from queen.core.job_type import JobType
from queen.metrics.registry import REGISTRY

_KIND = ("kind",)

CALL_SECONDS = Histogram(
    "queen_engine_call_seconds",
    "Duration of one call to PostgreSQL (round trip).",
    _KIND,
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
    registry=REGISTRY,
)
BATCH_JOBS = Histogram(
    "queen_engine_batch_jobs",
    "Jobs per call.",
    _KIND,
    buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500),
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

#: By job type, bound once: a lookup of labels costs more than the observation.
_CALLS = {kind: (CALL_SECONDS.labels(kind.value), BATCH_JOBS.labels(kind.value)) for kind in JobType}


def observe_call(kind: JobType, seconds: float, jobs: int) -> None:
    """Observes one call."""
    times, sizes = _CALLS[kind]
    times.observe(seconds)
    sizes.observe(jobs)
