"""Middleware for OpenTelemetry; needs its API: ``pip install 'queen-for-python[otel]'``."""

from opentelemetry import propagate, trace
from opentelemetry.trace import Link, SpanKind

from queen.worker.tasks import Message, Next

_tracer = trace.get_tracer("queen.worker")


async def traced(message: Message, call: Next) -> object:
    """A span of kind *consumer* around each call, linked to the context in which the message was pushed."""
    context = trace.get_current_span(propagate.extract({"traceparent": message.traceparent})).get_span_context()
    attributes = {
        "messaging.system": "queen",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": message.queue,
        "messaging.destination.partition.id": message.partition,
        "messaging.message.id": message.id,
    }
    links = [Link(context)] if context.is_valid else []
    with _tracer.start_as_current_span(
        f"process {message.queue}", kind=SpanKind.CONSUMER, links=links, attributes=attributes
    ):
        return await call(message)
