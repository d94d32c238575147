"""Checks for telemetry. The only module here that can be imported without OpenTelemetry's packages."""

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
    """Checks at the start whether telemetry can be sent; does not contact a collector.

    Raises:
        SettingError: a package is missing, or a propagator is not installed.
    """
    if not settings.telemetry.on:
        return
    for module, package in _PACKAGES.items():
        if not _is_installed(module):
            raise SettingError(
                f"QUEEN_OTEL_ENABLED needs the package {package}: pip install 'queen-for-python[otel]', or "
                "unset QUEEN_OTEL_ENABLED"
            )
    try:
        import_module("opentelemetry.propagate")  # reads OTEL_PROPAGATORS
    except ValueError as problem:
        raise SettingError(f"OTEL_PROPAGATORS: {problem}") from None


def describe(settings: Settings) -> dict[str, str]:
    """What is sent, and where, for the log; without a password in the URL."""
    endpoint = urlsplit(settings.telemetry.endpoint)
    place = endpoint._replace(netloc=endpoint.netloc.rpartition("@")[2], query="").geturl()
    return {"traces": settings.telemetry.traces, "metrics": settings.telemetry.metrics, "endpoint": place}


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
