"""What a worker sends to the collector: its spans by OpenTelemetry's batch processor, the instance's metrics by itself.

Everything is made in the worker's process, after the fork. Nothing here waits for the collector in the loop of the
requests: threads send, and what they cannot get rid of is dropped.
"""

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
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
from queen.metrics.directory import Spokesman
from queen.telemetry.figures import metrics_data

log = logging.getLogger("queen.telemetry")

NAME = "queen"
VERSION = version("queen-for-python")
#: How long a stop waits for the last export: less than gunicorn leaves an application for its end.
_LAST_EXPORT_S = 1.5

Collect = Callable[[], Awaitable[Sequence[Metric]]]


def instance(settings: Settings) -> Resource:
    """What sends: this instance, with what ``OTEL_RESOURCE_ATTRIBUTES`` adds or says otherwise."""
    ours = Resource(
        {
            "service.name": settings.otel_service,
            "service.version": VERSION,
            "service.instance.id": f"{socket.gethostname()}:{settings.port}",
        }
    )
    return Resource.create().merge(ours).merge(OTELResourceDetector().detect())


def tracing(settings: Settings) -> TracerProvider:
    """Makes spans of this worker, and sends them."""
    worker = Resource({"process.pid": os.getpid()})
    provider = TracerProvider(resource=instance(settings).merge(worker), shutdown_on_exit=False)
    if settings.otel_traces == "otlp":
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class SendFigures:
    """Sends the metrics of the instance, from one of its workers.

    Args:
        exporter: knows the collector.
        interval_s: pause between two exports.
    """

    def __init__(self, exporter: MetricExporter, resource: Resource, collect: Collect, interval_s: float) -> None:
        self._exporter, self._resource, self._collect, self._interval_s = exporter, resource, collect, interval_s
        self._spokesman = Spokesman()
        self._scope = InstrumentationScope(NAME, VERSION)
        self._export: Thread | None = None

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.send()

    async def send(self) -> Thread | None:
        """Begins an export, if this worker speaks for the instance and the last one has ended; returns its thread."""
        if not self._spokesman.speaks() or (self._export is not None and self._export.is_alive()):
            return self._export
        try:
            families = await self._collect()
        except Exception:  # the next export may work, and no request depends on this one
            log.exception("The metrics for OpenTelemetry could not be gathered")
            return None
        data = metrics_data(families, self._resource, self._scope, self._spokesman.began_ns, time.time_ns())
        self._export = _begin(lambda: self._exporter.export(data))
        return self._export

    def close(self) -> None:
        """Gives up what is still being sent."""
        self._exporter.shutdown()


def _begin(work: Callable[[], object]) -> Thread:
    thread = Thread(target=work, name="queen-telemetry", daemon=True)
    thread.start()
    return thread


class Life:
    """Begins sending with the worker, and ends it: a falcon middleware that has no part in requests."""

    def __init__(self, provider: TracerProvider, figures: SendFigures | None) -> None:
        self._provider, self._figures = provider, figures
        self._task: asyncio.Task[None] | None = None

    async def process_startup(self, _scope: Any, _event: Any) -> None:  # noqa: ANN401 - ASGI's dictionaries
        """Begins."""
        if self._figures is not None:
            self._task = asyncio.create_task(self._figures.run())

    async def process_shutdown(self, _scope: Any, _event: Any) -> None:  # noqa: ANN401
        """Sends what is left, if the collector takes it soon."""
        spans = _begin(self._provider.shutdown)
        figures: Thread | None = None
        if self._figures is not None and self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_EXPORT_S):
                    figures = await self._figures.send()
        until = time.monotonic() + _LAST_EXPORT_S
        for thread in (spans, figures):
            if thread is not None:
                await asyncio.to_thread(thread.join, max(0.0, until - time.monotonic()))
        if self._figures is not None:
            self._figures.close()


def figures_of(settings: Settings, collect: Collect) -> SendFigures | None:
    """Sends the metrics, if they are to be sent."""
    if settings.otel_metrics != "otlp":
        return None
    return SendFigures(OTLPMetricExporter(), instance(settings), collect, settings.otel_metrics_interval_ms / 1000)
