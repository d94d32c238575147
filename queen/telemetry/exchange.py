"""The current request, for tracing."""

from contextvars import ContextVar

from opentelemetry.trace import Span, SpanContext, TraceFlags

#: The request of this task; ``None`` on a WebSocket, and without tracing.
current: ContextVar["Exchange | None"] = ContextVar("queen_exchange", default=None)


def header_of(context: SpanContext) -> str:
    """The header ``traceparent`` of a span."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def context_of(header: str) -> SpanContext:
    """The span of a header ``traceparent`` that this server wrote."""
    _, trace_id, span_id, flags = header.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


class Exchange:
    """A request and its span.

    Attributes:
        span: the server's own.
        sender: the span of the client, from the request; invalid if there is none.
    """

    __slots__ = ("sender", "span")

    def __init__(self, span: Span, sender: SpanContext) -> None:
        self.span, self.sender = span, sender

    @property
    def traceparent(self) -> str | None:
        """The context to store with messages of this request: the client's, or else that of a recorded span."""
        if self.sender.is_valid:
            return header_of(self.sender)
        return header_of(self.span.get_span_context()) if self.span.is_recording() else None
