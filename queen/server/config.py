"""gunicorn's configuration: ``gunicorn -c python:queen.server.config queen.app:app``.

gunicorn reads every name here that is one of its settings.
"""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gunicorn import systemd

from queen.config import from_environment, ineffective
from queen.core import limits
from queen.core.errors import QueenError
from queen.engine.listening_port import LISTENING_PORT
from queen.engine.prefetched_leases import LEASES_OF_WORKERS
from queen.metrics import directory
from queen.postgres.setup import DatabaseInfo, prepare
from queen.security import authentication
from queen.server import listening, logs, worker_classes
from queen.server.worker_restarts import Replacements
from queen.system import open_files
from queen.system.errors import StartError
from queen.telemetry import needs

_settings = from_environment()
directory.share()
_replacements = Replacements(_settings.server.workers)
_MEMORY = "/dev/shm"  # noqa: S108 - gunicorn makes a private file there

bind = listening.authority(_settings.server.host, _settings.server.port)
backlog = listening.BACKLOG
workers = _settings.server.workers
worker_class = worker_classes.path_of(_settings)
threads = _settings.server.threads if _settings.server.worker_class == "gthread" else 1

# Of the worker class asgi: the C parser of the package gunicorn_h1c, where it is installed, never frees a connection.
http_parser = "python"

# Of gthread, meinheld and asgi: connections that one worker holds, long polls among them.
worker_connections = open_files.connections(_settings)

# Of gthread and asgi: limits of a request's head, as far as gunicorn's parsers support them.
limit_request_line = min(limits.URL_BYTES_MAX, 8190)
limit_request_fields = limits.HEADERS_MAX
limit_request_field_size = limits.HEAD_BYTES_MAX

graceful_timeout = _settings.server.graceful_timeout_s

#: Seconds without a heartbeat after which a worker counts as stuck and is replaced.
timeout = 30

#: Seconds that an idle connection is kept: longer than the 60 of common proxies, so that the proxy closes it.
keepalive = 75

# uvicorn's worker uses these. Empty: plain http.
certfile = _settings.security.tls_certificate or None
keyfile = _settings.security.tls_key or None

# The engine starts a thread, which a fork does not copy: each worker imports the application itself.
preload_app = False

# Off: a worker that is replaced under load breaks requests (measured: 58 to 119 of 45,000).
max_requests = 0

# The heartbeat is a file's timestamp: in memory it does not wait for a disk that is busy with PostgreSQL's WAL.
worker_tmp_dir = _MEMORY if os.access(_MEMORY, os.W_OK) else None

# All servers of a user would share one path.
control_socket_disable = True

loglevel = _settings.server.log_level
logconfig_dict = logs.configuration(_settings.server.log_level)


def on_starting(server: Any) -> None:  # noqa: ANN401 - gunicorn's arbiter
    """Prepares the database and the spool, before the first worker starts.

    Raises:
        SystemExit: there is no database, or one of them cannot be used.
    """
    # Only after the folder of the metrics is named: this imports prometheus_client.
    from queen.main import peer_secret, prepare_spool  # noqa: PLC0415

    directory.clear()
    for warning in ineffective(os.environ):
        server.log.warning("%s", warning)
    try:
        listening.protect(_settings, _hosts(server.cfg))
        open_files.ensure(_settings)
        listening.tls(_settings)
        needs.check(_settings)
        authentication.verifier_of(_settings)
        server.log.info("access", extra={"needs": authentication.describe(_settings)})
        authentication.warn(_settings)
        if _settings.telemetry.on:
            server.log.info("telemetry", extra=needs.describe(_settings))
        database, spool = asyncio.run(_prepare())
        # For the workers, which may have to start while PostgreSQL is unavailable.
        if _settings.database.pooler == "auto":
            os.environ["DB_POOLER"] = "yes" if database.pooled else "no"
        if _settings.peers.any and not _settings.peers.secret:
            os.environ["QUEEN_SYNC_SECRET"] = asyncio.run(peer_secret(from_environment()))
            server.log.info("notifications of peers are signed with the secret in the database")
        spool = spool or asyncio.run(prepare_spool(from_environment()))
        os.environ["FILE_BUFFER_DIR"] = str(spool)
    except QueenError as problem:
        server.log.error("%s", problem)  # noqa: TRY400 - it explains itself
        raise SystemExit(1) from None
    server.log.info("database ready", extra={"place": database.place, "version": database.version})
    for doubt in database.doubts:
        server.log.warning("%s. %s", doubt.text, doubt.advice)
    server.log.info("connections", extra={"divided": str(_settings.pool_sizes)})
    if database.connections_max is not None and (excess := _settings.pool_sizes.excess(database.connections_max)):
        server.log.warning("%s", excess)
    server.log.info("spool ready", extra={"folder": str(spool)})


def on_reload(server: Any) -> None:  # noqa: ANN401
    """All workers are about to be replaced."""
    _replacements.reloaded(server.worker_age)


def pre_fork(_server: Any, worker: Any) -> None:  # noqa: ANN401
    """A worker is about to be forked."""
    LEASES_OF_WORKERS.begin(worker.age)
    LISTENING_PORT.learn(worker.sockets)


def worker_exit(_server: Any, worker: Any) -> None:  # noqa: ANN401
    """A worker ends; in its process."""
    _replacements.spare_the_others(worker)


def child_exit(_server: Any, worker: Any) -> None:  # noqa: ANN401
    """Removes the gauges of an ended worker, and keeps its prefetched leases for the next one."""
    directory.forget(worker.pid)
    LEASES_OF_WORKERS.end(worker.age)


def on_exit(_server: Any) -> None:  # noqa: ANN401
    """Removes the folder that the workers shared."""
    directory.remove()


def _hosts(configured: Any) -> Iterator[str]:  # noqa: ANN401 - gunicorn's settings
    """The addresses to listen on, from the settings, gunicorn's options, or systemd."""
    inherited = range(systemd.SD_LISTEN_FDS_START, systemd.SD_LISTEN_FDS_START + systemd.listen_fds(False))
    for place in (*configured.address, *inherited):
        address = _address_of(place) if isinstance(place, int) else place
        if isinstance(address, tuple):  # or else the path of a Unix socket
            yield address[0]


def _address_of(descriptor: int) -> Any:  # noqa: ANN401 - as the socket's family has it
    with socket.socket(fileno=os.dup(descriptor)) as listener:
        return listener.getsockname()


async def _prepare() -> tuple[DatabaseInfo, Path | None]:
    """Prepares the database; or several with their spools, whose folder is then the second result."""
    if _settings.database.shards:
        from queen.server.databases import prepare_shards  # noqa: PLC0415 - as in on_starting

        return await prepare_shards(_settings)
    return await prepare(_database_url(), _settings.database.connect_timeout_ms), None


def _database_url() -> str:
    if url := _settings.database.url:
        return url
    raise StartError("No database: set DATABASE_URL or PG_HOST, or run `queen serve`, which includes PostgreSQL")
