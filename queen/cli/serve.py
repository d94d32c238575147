"""``queen serve``: starts the server, with an embedded PostgreSQL unless another is given."""

import shutil
from typing import Annotated

import typer
from rich.text import Text

from queen.cli.options import DataDir, Dsn, environment_with, settings_from
from queen.cli.output import out
from queen.config.presets import PRESETS
from queen.core.addresses import is_loopback
from queen.embedded import binaries
from queen.security import authentication
from queen.server import listening, logs
from queen.server.supervisor import Running, Supervisor


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option(help="HTTP port; 0 chooses a free one.", show_default="6632", min=0, max=65_535)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Number of worker processes.", show_default="2", min=1, max=1024)
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Size of the server: balanced, high-throughput, or low-latency (docs/scaling.md).", show_default=False
        ),
    ] = None,
    dsn: Dsn = None,
    data_dir: DataDir = None,
    worker_class: Annotated[
        str | None, typer.Option(help="Worker class: uvicorn, asgi, gthread, or meinheld.", show_default="uvicorn")
    ] = None,
    graceful_timeout: Annotated[
        int | None, typer.Option(help="Seconds to wait for requests in flight at shutdown.", show_default="30")
    ] = None,
    certfile: Annotated[
        str | None, typer.Option(help="Certificate for https (PEM, with its chain).", show_default="http")
    ] = None,
    keyfile: Annotated[str | None, typer.Option(help="Private key of the certificate.", show_default=False)] = None,
    insecure: Annotated[
        bool | None,
        typer.Option("--insecure", help="Start although other machines get full access without a token."),
    ] = None,
) -> None:
    """Start the server, and run until SIGTERM or Ctrl-C; SIGHUP replaces the workers."""
    environment = environment_with(
        HOST=host,
        PORT=port,
        NUM_WORKERS=workers,
        QUEEN_PRESET=preset,
        DATABASE_URL=dsn,
        QUEEN_DATA_DIR=data_dir,
        QUEEN_WORKER_CLASS=worker_class,
        GRACEFUL_TIMEOUT=graceful_timeout,
        QUEEN_TLS_CERTFILE=certfile,
        QUEEN_TLS_KEYFILE=keyfile,
        QUEEN_INSECURE=insecure,
    )
    settings = settings_from(environment, data_dir)
    logs.configure(settings.server.log_level)
    raise typer.Exit(Supervisor(settings, environment, _announce).run())


def _announce(running: Running) -> None:
    url = f"{running.scheme}://{listening.authority(running.host, running.port)}"
    out.print(Text.assemble(("Queen for Python", "bold"), " listens on ", (url, "bold cyan")))
    for label, text in _facts(running):
        out.print(Text.assemble((f"  {label:<12}", "dim"), text))


def _facts(running: Running) -> list[tuple[str, str]]:
    version, embedded = running.database.version, running.embedded
    if embedded:
        database = [
            ("PostgreSQL", f"{version}, embedded"),
            ("Data folder", str(embedded.folder.path)),
            ("SQL", f'{_psql()} "{embedded.dsn}"'),
        ]
    else:
        database = [("PostgreSQL", f"{version} at {running.database.place}")]
    return [
        *database,
        *([("Preset", _preset(running.settings.server.preset))] if running.settings.server.preset else []),
        ("Workers", f"{running.settings.server.workers}, gunicorn class {running.worker_class.name}"),
        ("Connections", _connections(running)),
        *[("Note", line) for line in running.worker_class.notes],
        ("Access", _access(running)),
        ("Stop", f"Ctrl-C, or kill {running.pid}; requests in flight are finished"),
    ]


def _preset(name: str) -> str:
    preset = PRESETS[name]
    return (
        f"{name}: {' '.join(f'{key}={value}' for key, value in preset.variables().items())}, where nothing else is set"
    )


def _connections(running: Running) -> str:
    allowed = running.database.connections_max
    return f"{running.settings.pool_sizes}{f'; PostgreSQL allows {allowed}' if allowed is not None else ''}"


def _psql() -> str:
    """The psql command on this machine; the wheel includes one for machines that have none."""
    return "psql" if shutil.which("psql") else str(binaries.folder() / "psql")


def _access(running: Running) -> str:
    if is_loopback(running.host):
        return f"{running.access}; only programs on this machine can connect"
    warned = "WARNING: " if running.access == authentication.OPEN else ""
    return f"{warned}{running.access}; other machines may reach {running.host}"
