"""The server under test: started here, or somebody's."""

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

from queen.core.errors import QueenError
from queen.db.dsn import UNREACHABLE
from queen.db.sqlstate import reason_of
from queen.server.embedded import dsn_of_running
from queen_bench import programs, usage
from queen_bench.database import Postgres, describe

_DATABASE = ("DATABASE_URL", "PG_HOST")
_START_S = 60.0
_PORTS = {"http": 80, "https": 443}
_ANY = {"0.0.0.0", "::"}
#: Of Queen, and of the original of simple-mq.
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
    """A server by its address, and what else is known of it.

    Args:
        name: for reports.
        dsn: its database, if that may be looked at; else bytes and the CPU of PostgreSQL are not reported.
        embedded: whether its PostgreSQL is started again by itself when it dies.
        workers: how many it has, if it was started for this.

    Raises:
        TargetError: the address is none.
    """

    def __init__(
        self, name: str, url: str, dsn: str | None, *, embedded: bool = False, workers: int | None = None
    ) -> None:
        self.name, self.url, self.dsn, self.embedded, self.workers = name, url.rstrip("/"), dsn, embedded, workers
        self._host, self._port = _place(self.url)

    async def check(self) -> str:
        """Its version, as ``/health`` tells it.

        Raises:
            TargetError: it does not answer, or its database is known and cannot be looked at.
        """
        if self.dsn is not None:
            try:
                async with usage.connection(self.dsn) as connection:
                    await _sizes(connection)
            except UNREACHABLE as problem:
                raise TargetError(f"The database of {self.url} cannot be looked at: {reason_of(problem)}") from problem
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
            f"{self.url} is no queue, or not a healthy one: GET {path} was answered with {answer.status_code}, "
            f"{answer.text[:200]!r}"
        )

    def server_processes(self) -> list[psutil.Process]:
        """Its processes, without PostgreSQL's, if it runs on this machine."""
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.pid and self._is_at(each.laddr):
                # One that ends meanwhile is none of the server's.
                with contextlib.suppress(psutil.NoSuchProcess):
                    family = usage.family(_first_of_its_kind(psutil.Process(each.pid)))
                    return [process for process in family if _name(process) not in ("postgres", None)]
        return []

    def _is_at(self, listener: Any) -> bool:  # noqa: ANN401 - psutil's pair of address and port
        if not listener or listener.port != self._port:
            return False
        local = {each.address for some in psutil.net_if_addrs().values() for each in some}
        there = {str(found[4][0]) for found in _addresses(self._host, self._port)}
        return listener.ip in there or (listener.ip in _ANY and bool(there & local))

    async def postmaster(self) -> psutil.Process | None:
        """PostgreSQL's first process, if its database is known, answers and runs on this machine."""
        return await self._asked(usage.postmaster)

    async def sizes(self) -> Sizes | None:
        """Its sizes now, if its database is known and answers."""
        return await self._asked(_sizes)

    async def compact(self) -> None:
        """Gives back the space of what was deleted, so that tables grow by what is added; only of an embedded one."""
        if self.embedded:
            await self._asked(_compact)

    async def describe(self) -> Postgres | None:
        """Version and settings of its PostgreSQL, if its database is known and answers."""
        return await self._asked(lambda connection: describe(connection, embedded=self.embedded))

    async def _asked(self, question: Callable[[_Connection], Awaitable[_Answer]]) -> _Answer | None:
        # Load goes on while PostgreSQL is away, which may be just what somebody looks at.
        if self.dsn is not None:
            with contextlib.suppress(*UNREACHABLE):
                async with usage.connection(self.dsn) as connection:
                    return await question(connection)
        return None


def _place(url: str) -> tuple[str, int]:
    """Host and port."""
    parts = urlsplit(url)
    try:
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        port = None
    if port is None or not parts.hostname:
        raise TargetError(f"{url} is no address of a server: expected is http://host:port")
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
    """What it is called; ``None`` when it has ended, as processes of PostgreSQL do all the time."""
    with contextlib.suppress(psutil.NoSuchProcess):
        name: str = process.name()
        return name
    return None


def _first_of_its_kind(process: psutil.Process) -> psutil.Process:
    """The ancestor that began it all: the last one, but for ourselves, that runs the same program."""
    parent = process.parent()
    while parent is not None and parent.pid != os.getpid() and parent.name() == process.name():
        process, parent = parent, parent.parent()
    return process


@contextmanager
def started(dsn: str | None, workers: int, settings: Mapping[str, str] | None = None) -> Iterator[Target]:
    """A server of this installation for the length of the block, on an embedded PostgreSQL if no other is given.

    Args:
        dsn: its PostgreSQL.
        workers: how many it has.
        settings: of the server, where the environment says nothing else.

    Raises:
        TargetError: it does not start; the text ends with what it said.
    """
    with tempfile.TemporaryDirectory(prefix="queen-bench-") as name:
        folder, port = Path(name), _free_port()
        # As root, PostgreSQL runs as another user, who has to pass through.
        folder.chmod(0o755)
        database = ["--dsn", dsn] if dsn is not None else ["--data-dir", str(folder / "data")]
        command = [
            sys.executable, "-c", "import queen_command; queen_command.main()", "serve", "--port", str(port),
            "--workers", str(workers), *database,
        ]  # fmt: skip
        log = folder / "server.log"
        with log.open("wb") as output:
            environment = {**(settings or {}), **os.environ}
            for variable in _DATABASE:  # the one that is measured is named above
                environment.pop(variable, None)
            process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        with programs.ending(process):
            _wait_until_it_answers(process, port, log)
            yield Target(
                "queen", f"http://127.0.0.1:{port}", dsn or dsn_of_running(folder / "data"), embedded=dsn is None,
                workers=workers,
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
