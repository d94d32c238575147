"""The application with telemetry around it."""

from queen.config import Settings
from queen.core.version import VERSION
from queen.http.app import QueenApp, create_app
from queen.http.figures import Figures
from queen.operations.catalogue import routes
from queen.telemetry.engine import TracedEngine
from queen.telemetry.requests import TraceRequests
from queen.telemetry.sending import NAME, Life, figures_of, tracing


def create_traced_app(settings: Settings, engine: TracedEngine) -> QueenApp:
    """The application with telemetry, in the process of its worker; the engine is not started yet."""
    provider = tracing(settings)
    life = Life(provider, figures_of(settings, Figures(engine, settings.telemetry.series_max).gather))
    tracer = provider.get_tracer(NAME, VERSION)
    return create_app(settings, engine, routes, around=(TraceRequests(tracer), life))
