"""The application with telemetry around it."""

from queen.config import Settings
from queen.http.app import QueenApp, create_app
from queen.http.figures import Figures
from queen.telemetry.engine import TracedEngine
from queen.telemetry.requests import TraceRequests
from queen.telemetry.sending import NAME, VERSION, Life, figures_of, tracing


def create_traced_app(settings: Settings, engine: TracedEngine) -> QueenApp:
    """The application over an engine that is not started yet, in the process of its worker."""
    provider = tracing(settings)
    life = Life(provider, figures_of(settings, Figures.of(settings, engine).gather))
    tracer = provider.get_tracer(NAME, VERSION)
    return create_app(settings, engine, around=(TraceRequests(tracer), life))
