"""``queen serve``: the server, with a PostgreSQL of its own unless it is given one."""

import shutil
from typing import Annotated

import typer
from rich.text import Text

from queen.cli.options import DataDir, Dsn, environment_with, settings_from
from queen.cli.output import fail, out
from queen.core.addresses import is_loopback
from queen.core.errors import QueenError
from queen.security import authentication
from queen.server import listening, logs, programs
from queen.server.supervisor import Running, Supervisor


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="HTTP port; 0 takes a free one.", show_default="6632")] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes.", show_default="2")] = None,
    dsn: Dsn = None,
    data_dir: DataDir = None,
    worker_class: Annotated[
        str | None, typer.Option(help="uvicorn, asgi, gthread, or meinheld.", show_default="uvicorn")
    ] = None,
    graceful_timeout: Annotated[
        int | None, typer.Option(help="Seconds that a stop waits for requests in flight.", show_default="30")
    ] = None,
    certfile: Annotated[
        str | None, typer.Option(help="Certificate (PEM, with its chain) to serve https with.", show_default="http")
    ] = None,
    keyfile: Annotated[str | None, typer.Option(help="Private key of the certificate.", show_default=False)] = None,
    insecure: Annotated[
        bool | None,
        typer.Option("--insecure", help="Start although other machines can do everything, without a token."),
    ] = None,
) -> None:
    """Start the server, and run until SIGTERM or Ctrl-C; SIGHUP replaces the workers."""
    environment = environment_with(
        host=host,
        port=port,
        workers=workers,
        dsn=dsn,
        data_dir=data_dir,
        worker_class=worker_class,
        graceful_timeout_s=graceful_timeout,
        tls_certificate=certfile,
        tls_key=keyfile,
        insecure=insecure,
    )
    try:
        settings = settings_from(environment, data_dir)
        logs.configure(settings.log_level)
        exit_code = Supervisor(settings, environment, _announce).run()
    except QueenError as problem:
        fail(problem)
    raise typer.Exit(exit_code)


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
        ("Workers", f"{running.workers} of gunicorn's class {running.worker_class.name}"),
        *[("Note", line) for line in running.worker_class.notes],
        ("Access", _access(running)),
        ("Stop", f"Ctrl-C, or kill {running.pid}; requests in flight are answered"),
    ]


def _psql() -> str:
    """How to call psql here: the wheel brings one for machines that have none."""
    return "psql" if shutil.which("psql") else str(programs.folder() / "psql")


def _access(running: Running) -> str:
    if is_loopback(running.host):
        return f"{running.access}; only programs on this machine can connect"
    warned = "WARNING: " if running.access == authentication.OPEN else ""
    return f"{warned}{running.access}, and other machines may reach {running.host}"
