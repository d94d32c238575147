"""Sends spans of a worker (with OpenTelemetry's batch processor) and metrics of the instance to the collector.

Everything is created in the worker's process, after the fork. The loop of the requests never waits for the collector:
threads send, and data that they cannot send is dropped.
"""

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from threading import Thread
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric

from queen.config import Settings
from queen.core.version import VERSION
from queen.metrics.directory import Spokesman
from queen.telemetry.metrics import metrics_data

log = logging.getLogger("queen.telemetry")

NAME = "queen"
#: Time limit of the last export at shutdown: less than gunicorn's limit for the application.
_LAST_EXPORT_S = 1.5

Collect = Callable[[], Awaitable[Sequence[Metric]]]


def instance(settings: Settings) -> Resource:
    """The OpenTelemetry resource of this instance; ``OTEL_RESOURCE_ATTRIBUTES`` adds to or overrides it."""
    ours = Resource(
        {
            "service.name": settings.telemetry.service,
            "service.version": VERSION,
            "service.instance.id": f"{socket.gethostname()}:{settings.server.port}",
        }
    )
    return Resource.create().merge(ours).merge(OTELResourceDetector().detect())


def tracing(settings: Settings) -> TracerProvider:
    """Creates and sends spans of this worker."""
    worker = Resource({"process.pid": os.getpid()})
    provider = TracerProvider(resource=instance(settings).merge(worker), shutdown_on_exit=False)
    if settings.telemetry.traces == "otlp":
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class SendMetrics:
    """Sends the metrics of the instance, from one of its workers.

    Args:
        exporter: sends to the collector.
        interval_s: pause between two exports.
    """

    def __init__(self, exporter: MetricExporter, resource: Resource, collect: Collect, interval_s: float) -> None:
        self._exporter, self._resource, self._collect, self._interval_s = exporter, resource, collect, interval_s
        self._spokesman = Spokesman()
        self._scope = InstrumentationScope(NAME, VERSION)
        self._export: Thread | None = None

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.send()

    async def send(self) -> Thread | None:
        """Starts an export if this worker sends for the instance and the last one has ended; returns its thread."""
        if not self._spokesman.speaks() or (self._export is not None and self._export.is_alive()):
            return self._export
        try:
            families = await self._collect()
        except Exception:  # the next export may succeed, and no request depends on this one
            log.exception("The metrics for OpenTelemetry could not be collected")
            return None
        data = metrics_data(families, self._resource, self._scope, self._spokesman.began_ns, time.time_ns())
        self._export = _begin(lambda: self._exporter.export(data))
        return self._export

    def close(self) -> None:
        """Aborts a running export."""
        self._exporter.shutdown()


def _begin(work: Callable[[], object]) -> Thread:
    thread = Thread(target=work, name="queen-telemetry", daemon=True)
    thread.start()
    return thread


class Life:
    """Starts and stops sending with the worker: a falcon middleware without a part in requests."""

    def __init__(self, provider: TracerProvider, metrics: SendMetrics | None) -> None:
        self._provider, self._metrics = provider, metrics
        self._task: asyncio.Task[None] | None = None

    async def process_startup(self, _scope: Any, _event: Any) -> None:  # noqa: ANN401 - ASGI's dictionaries
        """Starts."""
        if self._metrics is not None:
            self._task = asyncio.create_task(self._metrics.run())

    async def process_shutdown(self, _scope: Any, _event: Any) -> None:  # noqa: ANN401
        """Sends remaining data, if the collector accepts it in time."""
        spans = _begin(self._provider.shutdown)
        last: Thread | None = None
        if self._metrics is not None and self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_EXPORT_S):
                    last = await self._metrics.send()
        until = time.monotonic() + _LAST_EXPORT_S
        for thread in (spans, last):
            if thread is not None:
                await asyncio.to_thread(thread.join, max(0.0, until - time.monotonic()))
        if self._metrics is not None:
            self._metrics.close()


def metrics_sender(settings: Settings, collect: Collect) -> SendMetrics | None:
    """The sender of metrics, if metrics are on."""
    if settings.telemetry.metrics != "otlp":
        return None
    return SendMetrics(OTLPMetricExporter(), instance(settings), collect, settings.telemetry.metrics_interval_ms / 1000)
