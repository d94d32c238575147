"""Publishes the counters of a worker once per second, so that counting costs a request only additions."""

import asyncio
import contextlib
from typing import Any

from queen.core.errors import ShuttingDownError
from queen.core.job_type import JobType
from queen.engine.handle import EngineHandle
from queen.engine.status import EngineStatus, JobQueueStatus
from queen.http.socket.sockets import Sockets
from queen.metrics import engine as metrics
from queen.metrics.http import RequestTally

_INTERVAL_S = 1.0


class Publisher:
    """Passes the metrics of one worker to the Prometheus client. A falcon middleware, for its start and stop.

    Args:
        engine: its metrics are read from its status.
        sockets: the open WebSockets.
        requests: counters of HTTP requests.
    """

    def __init__(self, engine: EngineHandle, sockets: Sockets, requests: RequestTally) -> None:
        self._engine, self._sockets, self._requests = engine, sockets, requests
        self._job_queues: dict[JobType, JobQueueStatus] = {}
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
        metrics.WORKERS.set(1)
        metrics.WEBSOCKETS.set(len(self._sockets))
        with contextlib.suppress(ShuttingDownError):
            self._publish_engine(self._engine.engine.status())

    async def _run(self) -> None:
        while True:
            self.publish()
            await asyncio.sleep(_INTERVAL_S)

    def _publish_engine(self, status: EngineStatus) -> None:
        for job_queue in status.job_queues:
            self._publish_lane(job_queue)
        for name, slots in (("hot", status.hot), ("cold", status.cold)):
            metrics.CONNECTIONS.labels(name).set(slots.total)
            metrics.CONNECTIONS_FREE.labels(name).set(slots.free)
        metrics.WAITERS.set(status.waiting)
        metrics.WAITERS_MAX.set(status.waiting_max)
        metrics.WAITER_PLACES.set(status.wait_lists)
        metrics.WAITERS_REFUSED.inc(status.waiting_refused - self._waiting_refused)
        self._waiting_refused = status.waiting_refused
        metrics.PREFETCHED.labels("taken").inc(status.prefetched - self._prefetched)
        metrics.PREFETCHED.labels("in_vain").inc(status.prefetched_in_vain - self._in_vain)
        self._prefetched, self._in_vain = status.prefetched, status.prefetched_in_vain

    def _publish_lane(self, job_queue: JobQueueStatus) -> None:
        kind, before = job_queue.kind.value, self._job_queues.get(job_queue.kind)
        metrics.JOBS_WAITING.labels(kind).set(job_queue.queued)
        metrics.BYTES_WAITING.labels(kind).set(job_queue.queued_bytes)
        metrics.CALLS_IN_FLIGHT.labels(kind).set(job_queue.in_flight)
        metrics.CALLS_LIMIT.labels(kind).set(job_queue.limit)
        metrics.JOBS.labels(kind).inc(job_queue.jobs - (before.jobs if before else 0))
        metrics.JOBS_FAILED.labels(kind).inc(job_queue.failed - (before.failed if before else 0))
        metrics.JOBS_REFUSED.labels(kind).inc(job_queue.refused - (before.refused if before else 0))
        self._job_queues[job_queue.kind] = job_queue
