"""What telemetry needs. The only module of the package that can be imported without OpenTelemetry's packages."""

from importlib import import_module
from importlib.util import find_spec
from urllib.parse import urlsplit

from queen.config import Settings
from queen.core.errors import SettingError

_PACKAGES = {
    "opentelemetry.trace": "opentelemetry-api",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
}


def check(settings: Settings) -> None:
    """Finds out at the start whether telemetry can be sent; asks no collector.

    Raises:
        SettingError: a package is missing, or a variable names a propagator that is not installed.
    """
    if not settings.telemetry_on:
        return
    for module, package in _PACKAGES.items():
        if not _is_installed(module):
            raise SettingError(
                f"QUEEN_OTEL_ENABLED needs the package {package}: pip install 'queen-for-python[otel]', or unset it"
            )
    try:
        import_module("opentelemetry.propagate")  # reads OTEL_PROPAGATORS
    except ValueError as problem:
        raise SettingError(f"OTEL_PROPAGATORS: {problem}") from None


def describe(settings: Settings) -> dict[str, str]:
    """What is sent, and where to, for the log: a password in the URL is nobody's business."""
    endpoint = urlsplit(settings.otel_endpoint)
    place = endpoint._replace(netloc=endpoint.netloc.rpartition("@")[2], query="").geturl()
    return {"traces": settings.otel_traces, "metrics": settings.otel_metrics, "endpoint": place}


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
