"""Publishes once a second what a worker counts, so that counting costs a request nothing but additions."""

import asyncio
import contextlib
from typing import Any

from queen.core.errors import ShuttingDownError
from queen.core.operations import JobType
from queen.engine.status import EngineStatus, LaneStatus
from queen.engine.thread import EngineThread
from queen.http.socket.sockets import Sockets
from queen.metrics import engine as metrics
from queen.metrics.http import RequestTally

_INTERVAL_S = 1.0


class Publisher:
    """Hands the figures of one worker to Prometheus' client; a falcon middleware for its beginning and end.

    Args:
        engine: its figures are read from its status.
        sockets: the open WebSockets.
        requests: what was counted of HTTP requests.
    """

    def __init__(self, engine: EngineThread, sockets: Sockets, requests: RequestTally) -> None:
        self._engine, self._sockets, self._requests = engine, sockets, requests
        self._lanes: dict[JobType, LaneStatus] = {}
        self._waiting_refused = 0
        self._task: asyncio.Task[None] | None = None

    async def process_startup(self, _scope: Any, _event: Any) -> None:  # noqa: ANN401 - ASGI's dictionaries
        """Begins."""
        self._task = asyncio.create_task(self._run())

    async def process_shutdown(self, _scope: Any, _event: Any) -> None:  # noqa: ANN401
        """Ends, and publishes the last of it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.publish()

    def publish(self) -> None:
        """Publishes the figures of this moment."""
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
        for lane in status.lanes:
            self._publish_lane(lane)
        for name, slots in (("hot", status.hot), ("cold", status.cold)):
            metrics.CONNECTIONS.labels(name).set(slots.total)
            metrics.CONNECTIONS_FREE.labels(name).set(slots.free)
        metrics.WAITERS.set(status.waiting)
        metrics.WAITERS_MAX.set(status.waiting_max)
        metrics.WAITER_PLACES.set(status.places)
        metrics.WAITERS_REFUSED.inc(status.waiting_refused - self._waiting_refused)
        self._waiting_refused = status.waiting_refused

    def _publish_lane(self, lane: LaneStatus) -> None:
        kind, before = lane.kind.value, self._lanes.get(lane.kind)
        metrics.JOBS_WAITING.labels(kind).set(lane.queued)
        metrics.BYTES_WAITING.labels(kind).set(lane.queued_bytes)
        metrics.CALLS_IN_FLIGHT.labels(kind).set(lane.in_flight)
        metrics.CALLS_LIMIT.labels(kind).set(lane.limit)
        metrics.JOBS.labels(kind).inc(lane.jobs - (before.jobs if before else 0))
        metrics.JOBS_FAILED.labels(kind).inc(lane.failed - (before.failed if before else 0))
        metrics.JOBS_REFUSED.labels(kind).inc(lane.refused - (before.refused if before else 0))
        self._lanes[lane.kind] = lane
