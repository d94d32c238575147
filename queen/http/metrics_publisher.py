"""Publishes the counters of a worker once per second, so that counting costs a request only additions."""

import asyncio
import contextlib
from typing import Any

from queen.core.errors import ShuttingDownError
from queen.core.job_type import JobType
from queen.engine.handle import EngineHandle
from queen.engine.metrics import EngineMetrics, JobQueueMetrics
from queen.http.request_counters import RequestCounters
from queen.http.socket.sockets import Sockets
from queen.metrics import engine as metrics

_INTERVAL_S = 1.0


class MetricsPublisher:
    """Passes the metrics of one worker to the Prometheus client. A falcon middleware, for its start and stop.

    Args:
        engine: its metrics are read.
        sockets: the open WebSockets.
        requests: counters of HTTP requests.
    """

    def __init__(self, engine: EngineHandle, sockets: Sockets, requests: RequestCounters) -> None:
        self._engine, self._sockets, self._requests = engine, sockets, requests
        self._job_queues: dict[JobType, JobQueueMetrics] = {}
        self._waiting_refused = self._prefetched = self._in_vain = 0
        self._task: asyncio.Task[None] | None = None

    async def process_startup(self, _scope: Any, _event: Any) -> None:  # noqa: ANN401 - ASGI's dictionaries
        """Starts."""
        self._task = asyncio.create_task(self._run())

    async def process_shutdown(self, _scope: Any, _event: Any) -> None:  # noqa: ANN401
        """Stops, and publishes the final values."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.publish()

    def publish(self) -> None:
        """Publishes the current values."""
        self._requests.publish()
        metrics.publish_calls()
        metrics.WORKERS.set(1)
        metrics.WEBSOCKETS.set(len(self._sockets))
        with contextlib.suppress(ShuttingDownError):
            self._publish_engine(self._engine.engine.metrics())

    async def _run(self) -> None:
        while True:
            self.publish()
            await asyncio.sleep(_INTERVAL_S)

    def _publish_engine(self, now: EngineMetrics) -> None:
        for job_queue in now.job_queues:
            self._publish_job_queue(job_queue)
        for name, slots in (("hot", now.hot), ("cold", now.cold)):
            metrics.CONNECTIONS.labels(name).set(slots.total)
            metrics.CONNECTIONS_FREE.labels(name).set(slots.free)
        metrics.WAITERS.set(now.waiting)
        metrics.WAITERS_MAX.set(now.waiting_max)
        metrics.WAITER_PLACES.set(now.wait_lists)
        metrics.WAITERS_REFUSED.inc(now.waiting_refused - self._waiting_refused)
        self._waiting_refused = now.waiting_refused
        metrics.PREFETCHED.labels("taken").inc(now.prefetched - self._prefetched)
        metrics.PREFETCHED.labels("in_vain").inc(now.prefetched_in_vain - self._in_vain)
        self._prefetched, self._in_vain = now.prefetched, now.prefetched_in_vain

    def _publish_job_queue(self, job_queue: JobQueueMetrics) -> None:
        kind, before = job_queue.kind.value, self._job_queues.get(job_queue.kind)
        metrics.JOBS_WAITING.labels(kind).set(job_queue.queued)
        metrics.BYTES_WAITING.labels(kind).set(job_queue.queued_bytes)
        metrics.CALLS_IN_FLIGHT.labels(kind).set(job_queue.in_flight)
        metrics.CALLS_LIMIT.labels(kind).set(job_queue.limit)
        metrics.JOBS.labels(kind).inc(job_queue.jobs - (before.jobs if before else 0))
        metrics.JOBS_FAILED.labels(kind).inc(job_queue.failed - (before.failed if before else 0))
        metrics.JOBS_REFUSED.labels(kind).inc(job_queue.refused - (before.refused if before else 0))
        self._job_queues[job_queue.kind] = job_queue
