"""gunicorn's configuration: ``gunicorn -c python:queen.server.config queen.app:app``.

gunicorn takes every name here that is one of its settings.
"""

import asyncio
import os
import socket
from collections.abc import Iterator
from typing import Any

from gunicorn import systemd

from queen.config import from_environment, misspelt
from queen.core.errors import QueenError
from queen.db.setup import prepare
from queen.metrics import directory
from queen.security import authentication
from queen.server import listening, logs, open_files, worker_classes
from queen.server.errors import StartError
from queen.server.replacements import Replacements
from queen.telemetry import needs

_settings = from_environment()
directory.share()
_replacements = Replacements(_settings.workers)
_MEMORY = "/dev/shm"  # noqa: S108 - gunicorn makes a private file there

bind = listening.authority(_settings.host, _settings.port)
backlog = listening.BACKLOG
workers = _settings.workers
worker_class = worker_classes.path_of(_settings)
threads = _settings.threads if _settings.worker_class == "gthread" else 1

# Of the worker class asgi: the C parser of the package gunicorn_h1c, where it is installed, never frees a connection.
http_parser = "python"

# Of gthread, meinheld and asgi: connections that one worker holds, long polls among them.
worker_connections = open_files.connections(_settings)

# Of gthread and asgi: the bounds of a request's head, as far as gunicorn's parsers know them.
limit_request_line = min(_settings.url_bytes_max, 8190)
limit_request_fields = _settings.headers_max
limit_request_field_size = _settings.head_bytes_max

graceful_timeout = _settings.graceful_timeout_s

#: Seconds without a heartbeat after which a worker is taken for stuck and replaced.
timeout = 30

#: Seconds that an idle connection is kept: longer than the 60 of common proxies, so that it is they who close it.
keepalive = 75

# uvicorn's worker takes these over. Empty: plain http.
certfile = _settings.tls_certificate or None
keyfile = _settings.tls_key or None

# The engine starts a thread, which a fork would not carry over: each worker imports the application itself.
preload_app = False

# Off: a worker that is replaced under load breaks requests (measured: 58 to 119 of 45,000).
max_requests = 0

# The heartbeat is a file's time stamp: in memory it does not wait for a disk that is busy with PostgreSQL's log.
worker_tmp_dir = _MEMORY if os.access(_MEMORY, os.W_OK) else None

# It would be one path for all servers of a user.
control_socket_disable = True

loglevel = _settings.log_level
logconfig_dict = logs.configuration(_settings.log_level)


def on_starting(server: Any) -> None:  # noqa: ANN401 - gunicorn's arbiter
    """Makes the database and the spool ready, before the first worker starts.

    Raises:
        SystemExit: there is none, or it cannot be used.
    """
    # Not before the folder of the metrics is named: this imports prometheus_client.
    from queen.main import prepare_spool  # noqa: PLC0415

    directory.clear()
    for name, meant in misspelt(os.environ).items():
        server.log.warning("%s is no setting and has no effect: is %s meant?", name, meant)
    try:
        listening.protect(_settings, _hosts(server.cfg))
        open_files.ensure(_settings)
        listening.tls(_settings)
        needs.check(_settings)
        authentication.verifier_of(_settings)
        server.log.info("access", extra={"needs": authentication.describe(_settings)})
        authentication.warn(_settings)
        if _settings.telemetry_on:
            server.log.info("telemetry", extra=needs.describe(_settings))
        if not _settings.jwt_enabled and _settings.insecure:
            server.log.warning(
                "No authentication, and QUEEN_INSECURE: who reaches this server may do everything (docs/security.md)"
            )
        if not _settings.jwt_enabled and _settings.cors_origins == ("*",):
            server.log.warning(
                "No authentication, and QUEEN_CORS_ORIGINS=*: every page in a browser that reaches this server may "
                "read and change everything (docs/security.md)"
            )
        database = asyncio.run(prepare(_database_url(), _settings.connect_timeout_ms))
        # The workers are told: they may have to start while PostgreSQL is away, and could not find out.
        if _settings.pooler == "auto":
            os.environ["DB_POOLER"] = "yes" if database.pooled else "no"
        os.environ["FILE_BUFFER_DIR"] = spool = str(asyncio.run(prepare_spool(from_environment())))
    except QueenError as problem:
        server.log.error("%s", problem)  # noqa: TRY400 - it explains itself
        raise SystemExit(1) from None
    server.log.info("database ready", extra={"place": database.place, "version": database.version})
    server.log.info("spool ready", extra={"folder": spool})


def on_reload(server: Any) -> None:  # noqa: ANN401
    """All workers are about to be replaced."""
    _replacements.reloaded(server.worker_age)


def worker_exit(_server: Any, worker: Any) -> None:  # noqa: ANN401
    """A worker ends; in its process."""
    _replacements.spare_the_others(worker)


def child_exit(_server: Any, worker: Any) -> None:  # noqa: ANN401
    """Forgets how a worker was that has ended."""
    directory.forget(worker.pid)


def on_exit(_server: Any) -> None:  # noqa: ANN401
    """Removes what the workers have shared."""
    directory.remove()


def _hosts(configured: Any) -> Iterator[str]:  # noqa: ANN401 - gunicorn's settings
    """What the server will listen on, whoever has said so: the settings, gunicorn's options, or systemd."""
    inherited = range(systemd.SD_LISTEN_FDS_START, systemd.SD_LISTEN_FDS_START + systemd.listen_fds(False))
    for place in (*configured.address, *inherited):
        address = _address_of(place) if isinstance(place, int) else place
        if isinstance(address, tuple):  # or else the path of a Unix socket
            yield address[0]


def _address_of(descriptor: int) -> Any:  # noqa: ANN401 - as the socket's family has it
    with socket.socket(fileno=os.dup(descriptor)) as listener:
        return listener.getsockname()


def _database_url() -> str:
    if url := _settings.database_url:
        return url
    raise StartError("No database: set DATABASE_URL or PG_HOST, or run `queen serve`, which brings a PostgreSQL along")
