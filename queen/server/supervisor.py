"""``queen serve``: the parent process of gunicorn and of the embedded PostgreSQL."""

import asyncio
import http.client
import logging
import os
import signal
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from queen.config import Settings
from queen.embedded.restarts import Keeper
from queen.embedded.server import EmbeddedPostgres
from queen.postgres.setup import DatabaseInfo, prepare
from queen.security import authentication
from queen.server import listening, worker_classes
from queen.server.gunicorn_child import Gunicorn
from queen.server.worker_classes import WorkerClass
from queen.spool import place
from queen.system import open_files
from queen.system.signals import SignalStream

log = logging.getLogger(__name__)

_TICK_S = 0.1
_STOP = frozenset({signal.SIGTERM, signal.SIGINT})

#: Connections for psql, an administrator, etc.
_SPARE_CONNECTIONS = 20


@dataclass(frozen=True, slots=True)
class Running:
    """Facts about a started server; ``embedded`` is None for an external database."""

    settings: Settings
    pid: int
    host: str
    port: int
    scheme: str
    access: str
    worker_class: WorkerClass
    database: DatabaseInfo
    embedded: EmbeddedPostgres | None


class _StopRequested(Exception):  # noqa: N818 - not an error
    """SIGTERM or SIGINT came."""


def _several(shards: Sequence[tuple[str, str]]) -> DatabaseInfo:
    """What is known of several databases, which gunicorn's master prepares: some may be unavailable."""
    return DatabaseInfo("", f"{len(shards)} databases: {', '.join(name for name, _ in shards)}", pooled=False)


def embedded_postgres(settings: Settings) -> EmbeddedPostgres:
    """The embedded PostgreSQL, with connections for twice the workers: during a reload old and new ones overlap."""
    return EmbeddedPostgres(Path(settings.server.data_dir), 2 * settings.pool_sizes.total + _SPARE_CONNECTIONS)


class Supervisor:
    """Runs everything until it is told to stop.

    Args:
        settings: of the server.
        environment: the settings as variables, for the workers.
        announce: called once, when the first worker answers.
    """

    def __init__(self, settings: Settings, environment: Mapping[str, str], announce: Callable[[Running], None]) -> None:
        self._settings = settings
        self._environment = environment
        self._announce = announce

    def run(self) -> int:
        """Returns the exit code: 0 after a requested stop.

        Raises:
            QueenError: it cannot start; the text has the reason and what to do.
        """
        watched = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
        with SignalStream(*watched) as self._signals, ExitStack() as stack:
            try:
                return self._serve(stack)
            except _StopRequested:
                log.info("stopping; press Ctrl-C again to abort requests in flight")
                return 0

    def _serve(self, stack: ExitStack) -> int:
        if self._settings.spool.folder:
            place.check(Path(self._settings.spool.folder))
        worker_class = worker_classes.usable(self._settings)
        listening.protect(self._settings, [self._settings.server.host])
        tls = listening.tls(self._settings)
        authentication.verifier_of(self._settings)
        open_files.ensure(self._settings)
        listener = stack.enter_context(listening.listen(self._settings.server.host, self._settings.server.port))
        port: int = listener.getsockname()[1]
        given = self._settings.database
        postgres = None if given.url or given.shards else self._start_postgres(stack)
        url = postgres.dsn if postgres else given.url
        database = asyncio.run(self._prepare(url)) if url else _several(given.shards)
        environment = {**self._environment, "DATABASE_URL": url} if url else self._environment
        gunicorn = Gunicorn(listener, environment, self._settings.server.graceful_timeout_s)
        stack.callback(gunicorn.stop, self._wait_in_hurry)
        listener.close()
        running = Running(
            self._settings,
            os.getpid(),
            self._settings.server.host,
            port,
            "https" if tls else "http",
            authentication.describe(self._settings),
            worker_class,
            database,
            postgres,
        )
        return self._watch(gunicorn, running)

    def _start_postgres(self, stack: ExitStack) -> EmbeddedPostgres:
        postgres = embedded_postgres(self._settings)
        postgres.start(self._wait)
        stack.callback(postgres.stop, self._wait_in_hurry)
        return postgres

    async def _prepare(self, url: str) -> DatabaseInfo:
        """Prepares the database; a signal ends that, too."""
        task = asyncio.create_task(prepare(url, self._settings.database.connect_timeout_ms))
        while not (await asyncio.wait({task}, timeout=_TICK_S))[0]:
            self._wait(0)
        return task.result()

    def _watch(self, gunicorn: Gunicorn, running: Running) -> int:
        keeper = Keeper(running.embedded) if running.embedded else None
        announced = False
        while gunicorn.exit_code is None:
            if self._wait(_TICK_S) is signal.SIGHUP:
                gunicorn.reload()
            if keeper:
                keeper.tend()
            if not announced and _answers(running):
                self._announce(running)
                announced = True
        log.error("gunicorn ended unexpectedly; see the messages above", extra={"exit_code": gunicorn.exit_code})
        return max(gunicorn.exit_code, 1)

    def _wait(self, seconds: float) -> signal.Signals | None:
        received = self._signals.wait(seconds)
        if received in _STOP:
            raise _StopRequested
        return received

    def _wait_in_hurry(self, seconds: float) -> bool:
        """Waits during the shutdown; true if the user presses Ctrl-C again."""
        return self._signals.wait(seconds) is signal.SIGINT


def _answers(running: Running) -> bool:
    """Whether a worker serves requests."""
    host = listening.reachable(running.host)
    connection = (
        # No check that it is our own server: this process has started it.
        http.client.HTTPSConnection(host, running.port, timeout=1, context=ssl._create_unverified_context())  # noqa: S323, SLF001
        if running.scheme == "https"
        else http.client.HTTPConnection(host, running.port, timeout=1)
    )
    try:
        connection.request("GET", "/health")
        connection.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True
