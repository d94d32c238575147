"""The application with telemetry around it."""

from queen.catalogue import metrics_of, routes
from queen.config import Settings
from queen.core.version import VERSION
from queen.http.app import QueenApp, create_app
from queen.telemetry.engine import TracedEngine
from queen.telemetry.requests import TraceRequests
from queen.telemetry.sending import NAME, Life, metrics_sender, tracing


def create_traced_app(settings: Settings, engine: TracedEngine) -> QueenApp:
    """The application with telemetry, in the process of its worker; the engine is not started yet."""
    provider = tracing(settings)
    life = Life(provider, metrics_sender(settings, metrics_of(settings, engine).collect))
    tracer = provider.get_tracer(NAME, VERSION)
    return create_app(settings, engine, routes, around=(TraceRequests(tracer), life))
