"""The server under test: a running one, or one that is started here."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import asyncpg
import httpx
import psutil
from msgspec import Struct

from bench import database, meter, programs
from bench.database import Postgres, describe
from bench.sockets.amqp import Amqp, AmqpError, address_of
from queen.core.errors import QueenError
from queen.embedded.server import dsn_of_running
from queen.postgres.dsn import UNREACHABLE
from queen.postgres.sqlstate import reason_of

_DATABASE = ("DATABASE_URL", "PG_HOST")
_START_S = 60.0
_PORTS = {"http": 80, "https": 443, "amqp": 5672}
_ANY = {"0.0.0.0", "::"}
#: The tables of Queen, and of the original of simple-mq.
_HEALTH = ("/health", "/actuator/health")
_OURS = "FROM pg_class AS c WHERE c.relnamespace::regnamespace::text IN ('queen', 'simple_mq') AND c.relkind = 'r'"
_SIZES = f"""
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::int8 AS tables,
        (pg_current_wal_insert_lsn() - '0/0')::int8 AS wal {_OURS}"""
_TABLES = f"SELECT c.oid::regclass::text AS name {_OURS}"

_Connection: TypeAlias = "asyncpg.Connection[Any]"
_Answer = TypeVar("_Answer")


class TargetError(QueenError):
    """The server to measure cannot be reached or started."""

    code = "bench_target"


class Sizes(Struct, frozen=True):
    """Bytes of the server's tables with their indexes, and of all WAL ever."""

    tables: int
    wal: int


class Target:
    """A server by its address, with known facts.

    Args:
        name: for reports.
        dsn: its database, if accessible; else bytes and CPU of PostgreSQL are not reported.
        embedded: whether its PostgreSQL is restarted when it dies.
        workers: their number, if it was started for this session.
        pid: its process, likewise.

    Raises:
        TargetError: the address is invalid.
    """

    #: Whether it uses PostgreSQL.
    has_postgres = True

    def __init__(
        self,
        name: str,
        url: str,
        dsn: str | None,
        *,
        embedded: bool = False,
        workers: int | None = None,
        pid: int | None = None,
    ) -> None:
        self.pid = pid
        self.name, self.url, self.dsn, self.embedded, self.workers = name, url.rstrip("/"), dsn, embedded, workers
        self._host, self.port = _place(self.url)

    async def check(self) -> str:
        """Its version, from ``/health``.

        Raises:
            TargetError: it does not answer, or its known database is inaccessible.
        """
        if self.dsn is not None:
            try:
                async with database.connection(self.dsn) as connection:
                    await _sizes(connection)
            except UNREACHABLE as problem:
                raise TargetError(f"The database of {self.url} is inaccessible: {reason_of(problem)}") from problem
        return await self._version()

    async def _version(self) -> str:
        for path in _HEALTH:
            try:
                async with httpx.AsyncClient(trust_env=False) as client:
                    answer = await client.get(self.url + path, timeout=10)
            except httpx.HTTPError as problem:
                raise TargetError(f"No server at {self.url}: {reason_of(problem)}") from problem
            if answer.status_code == httpx.codes.OK:
                with contextlib.suppress(ValueError, AttributeError):
                    return str(answer.json().get("version", "unknown"))
        raise TargetError(
            f"{self.url} is not a queue server, or not healthy: GET {path} was answered with {answer.status_code}, "
            f"{answer.text[:200]!r}"
        )

    def server_processes(self) -> list[psutil.Process]:
        """Its processes, without PostgreSQL's, if it runs on this machine."""
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.pid and self._is_at(each.laddr):
                # A process that ends meanwhile does not belong to the server.
                with contextlib.suppress(psutil.NoSuchProcess):
                    family = meter.family(_first_of_its_kind(psutil.Process(each.pid)))
                    return [process for process in family if _name(process) not in ("postgres", None)]
        return []

    def worker_processes(self) -> list[psutil.Process]:
        """Its processes without children."""
        server = self.server_processes()
        parents = {process.ppid() for process in server}
        return [process for process in server if process.pid not in parents]

    def _is_at(self, listener: Any) -> bool:  # noqa: ANN401 - psutil's pair of address and port
        if not listener or listener.port != self.port:
            return False
        local = {each.address for some in psutil.net_if_addrs().values() for each in some}
        there = {str(found[4][0]) for found in _addresses(self._host, self.port)}
        return listener.ip in there or (listener.ip in _ANY and bool(there & local))

    async def postmaster(self) -> psutil.Process | None:
        """The postmaster, if its database is known, answers and runs on this machine."""
        return await self._asked(meter.postmaster)

    async def sizes(self) -> Sizes | None:
        """Its sizes now, if its database is known and answers."""
        return await self._asked(_sizes)

    async def compact(self) -> None:
        """Frees the space of deleted rows, so that tables grow by what is added; for an embedded PostgreSQL only."""
        if self.embedded:
            await self._asked(_compact)

    async def describe(self) -> Postgres | None:
        """Version and settings of its PostgreSQL, if its database is known and answers."""
        return await self._asked(lambda connection: describe(connection, embedded=self.embedded))

    async def _asked(self, question: Callable[[_Connection], Awaitable[_Answer]]) -> _Answer | None:
        # Load continues while PostgreSQL is down, which may be the purpose of the run.
        if self.dsn is not None:
            with contextlib.suppress(*UNREACHABLE):
                async with database.connection(self.dsn) as connection:
                    return await question(connection)
        return None


class Broker(Target):
    """RabbitMQ, by an address ``amqp://user:password@host:port/vhost``."""

    has_postgres = False

    def __init__(self, url: str) -> None:
        super().__init__("rabbitmq", url, None)

    async def _version(self) -> str:
        connection = Amqp()
        try:
            await connection.open(address_of(self.url))
            await connection.close()
        except (OSError, AmqpError) as problem:
            raise TargetError(f"No RabbitMQ at {self._host}:{self.port}: {reason_of(problem)}") from problem
        return connection.version


def _place(url: str) -> tuple[str, int]:
    """Host and port."""
    parts = urlsplit(url)
    try:
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        port = None
    if port is None or not parts.hostname:
        raise TargetError(f"{url} is not the address of a server: expected is http://host:port")
    return parts.hostname, port


def _addresses(host: str, port: int) -> "list[tuple[Any, ...]]":
    try:
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except OSError:
        return []


async def _sizes(connection: _Connection) -> Sizes:
    row = await connection.fetchrow(_SIZES)
    assert row is not None
    return Sizes(row["tables"], row["wal"])


async def _compact(connection: _Connection) -> None:
    for row in await connection.fetch(_TABLES):
        await connection.execute(f"VACUUM (FULL) {row['name']}")


def _name(process: psutil.Process) -> str | None:
    """Its name; ``None`` if it has ended, as processes of PostgreSQL often do."""
    with contextlib.suppress(psutil.NoSuchProcess):
        name: str = process.name()
        return name
    return None


def _first_of_its_kind(process: psutil.Process) -> psutil.Process:
    """The topmost ancestor, except this process, that runs the same program."""
    parent = process.parent()
    while parent is not None and parent.pid != os.getpid() and parent.name() == process.name():
        process, parent = parent, parent.parent()
    return process


@contextmanager
def started(dsn: str | None, workers: int, settings: Mapping[str, str] | None = None) -> Iterator[Target]:
    """A server of this installation during the block, on an embedded PostgreSQL if no other is given.

    Args:
        dsn: its PostgreSQL.
        workers: their number.
        settings: of the server; the environment overrides them.

    Raises:
        TargetError: it does not start; the text ends with its output.
    """
    with tempfile.TemporaryDirectory(prefix="queen-bench-") as name:
        folder, port = Path(name), _free_port()
        # As root, PostgreSQL runs as another user, which needs search permission.
        folder.chmod(0o755)
        database = ["--dsn", dsn] if dsn is not None else ["--data-dir", str(folder / "data")]
        command = [
            sys.executable, "-c", "import queen_command; queen_command.main()", "serve", "--port", str(port),
            "--workers", str(workers), *database,
        ]  # fmt: skip
        log = folder / "server.log"
        with log.open("wb") as output:
            environment = {**(settings or {}), **os.environ}
            for variable in _DATABASE:  # the measured one is named above
                environment.pop(variable, None)
            process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        with programs.ending(process):
            _wait_until_it_answers(process, port, log)
            yield Target(
                "queen", f"http://127.0.0.1:{port}", dsn or dsn_of_running(folder / "data"), embedded=dsn is None,
                workers=workers, pid=process.pid,
            )  # fmt: skip


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_it_answers(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health", timeout=2, trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise TargetError(f"The server did not start: {log.read_text(errors='replace')[-2000:]}")
