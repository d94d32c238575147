"""The world of a schedule: databases and clients behind proxies, and a server that is started again when killed."""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import psutil

from tests.support.chaos.proxy import Proxy, Streams
from tests.support.chaos.schedule import AddDatabase, FailOver, FillPostgresDisk, Link, Schedule
from tests.support.processes import PATIENCE_S, Server, free_port
from tests.support.processes import run as run_command
from tests.support.servers import start_on_database
from tests.support.shards import urls
from tests.support.standby import Pair

_INJECTED = Path(__file__).with_name("injected")
_LOOK_S, _RETRY_S = 0.05, 0.5
#: For each cluster: its files, its log, and a little to be filled.
_POSTGRES_DISK_MB = 256


async def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> None:
    """Returns when the condition holds; fails naming what did not happen."""
    deadline = time.monotonic() + seconds
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(_LOOK_S)


class Database:
    """One PostgreSQL, or a primary and its standby, behind proxies.

    Attributes:
        name: in DATABASE_URLS, where there are several.
        primary: the name of the cluster that takes writes.
        postgres: one or two clusters.
        proxies: one for each of them.
        lock: faults hold it while they change its processes.
        notes: what was not as planned.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.primary = "one"
        self.lock = asyncio.Lock()
        self.proxies: list[Proxy] = []
        self.notes: list[str] = []
        self._stack = ExitStack()
        self.folder.mkdir()

    async def open(self, seed: int, *, with_standby: bool, small_disk: bool) -> None:
        """Starts it; on a small disk, it can become full."""
        if small_disk:
            self._take_small_disk(_POSTGRES_DISK_MB * (1 + with_standby))
        self.postgres = Pair(self.folder)
        self._stack.callback(self.postgres.stop)
        await asyncio.to_thread(self.postgres.start, with_standby=with_standby)
        self.proxies = [Proxy(self._to(name), seed) for name in (("one", "two") if with_standby else ("one",))]
        for proxy in self.proxies:
            await proxy.start()

    async def close(self) -> None:
        """Ends it."""
        for proxy in self.proxies:
            await proxy.stop()
        await asyncio.to_thread(self._stack.close)

    @property
    def dsn(self) -> str:
        """The primary, without a proxy."""
        return self.postgres.dsn_of(self.primary)

    @property
    def url(self) -> str:
        """Whichever is the primary, by way of the proxies."""
        hosts = ",".join("127.0.0.1" for _ in self.proxies)
        return f"postgresql://postgres@/postgres?host={hosts}&port={','.join(str(p.port) for p in self.proxies)}"

    def _take_small_disk(self, size_mb: int) -> None:
        """Mounts a file system of its own, where one may be mounted."""
        if problem := self._mount(size_mb):
            self.notes.append(f"FillPostgresDisk is left out, for no tmpfs can be mounted: {problem}")
        else:
            self._stack.callback(lambda: subprocess.run(["umount", "-l", self.folder], check=False))
            self.folder.chmod(0o755)

    def _mount(self, size_mb: int) -> str:
        """Why it could not be mounted, if so."""
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", self.folder]
        try:
            mounted = subprocess.run(command, check=False, capture_output=True, text=True)
        except FileNotFoundError as problem:
            return str(problem)
        return mounted.stderr.strip() if mounted.returncode else ""

    def fill_disk(self) -> Path | None:
        """Takes all the room; what to remove to give it back."""
        if not self.folder.is_mount():
            return None
        ballast = self.folder / "ballast"
        with ballast.open("wb") as file, suppress(OSError):  # PostgreSQL may take some of it meanwhile
            while free := shutil.disk_usage(self.folder).free:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), free)
        return ballast

    def _to(self, name: str) -> Callable[[], Any]:
        async def open_far() -> Streams:
            return await asyncio.open_unix_connection(str(self.postgres.socket_of(name)))

        return open_far

    async def bring_back(self) -> None:
        """Starts the primary if it does not run, and returns when it answers."""

        def answers() -> bool:
            if not self.postgres.is_alive(self.primary):
                self.postgres.launch(self.primary)
            return self.postgres.answers(self.primary)

        await until(answers, f"PostgreSQL {self.name}")


class World:
    """Everything that a fault can be done to.

    Attributes:
        folder: everything lies in it.
        databases: all that there are.
        joined: those that a server that is started now knows.
        server: the latest one.
        starts: how often a server was started.
        server_lock: faults hold it while they change the processes of the server.
    """

    def __init__(self, folder: Path, schedule: Schedule) -> None:
        self.folder, self.schedule = folder, schedule
        number = schedule.databases + schedule.needs(AddDatabase)
        self.databases = [Database(name, folder / f"postgres-{name}") for name in ascii_lowercase[:number]]
        self.joined = self.databases[: schedule.databases]
        self.server_lock, self._list_lock = asyncio.Lock(), asyncio.Lock()
        self.starts = 0
        self._clients = Proxy(self._to_server, schedule.seed + 2)
        self._port = free_port()
        self._excused: Server | None = None
        self.injected = folder / "faults"
        self.injected.mkdir()
        self.spool = folder / "spool"
        self.spool.mkdir()

    async def open(self) -> None:
        """Starts everything."""
        async with asyncio.TaskGroup() as group:
            for number, database in enumerate(self.databases):
                needs = [self.schedule.needs(kind, number) for kind in (FailOver, FillPostgresDisk)]
                group.create_task(database.open(self.schedule.seed, with_standby=needs[0], small_disk=needs[1]))
        await self._clients.start()
        self.server = self._start_server()
        await asyncio.to_thread(self.server.wait_until_healthy)
        self._keeping = asyncio.create_task(self._keep_serving())

    async def close(self) -> None:
        """Ends everything."""
        if hasattr(self, "_keeping"):
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if hasattr(self, "server"):
            await asyncio.to_thread(self._end_server)
        await self._clients.stop()
        for database in self.databases:
            await database.close()

    @property
    def url(self) -> str:
        """Where clients find the server."""
        return f"http://127.0.0.1:{self._clients.port}"

    @property
    def notes(self) -> list[str]:
        """What was not as planned."""
        return [note for database in self.databases for note in database.notes]

    def link(self, link: Link, database: Database) -> list[Proxy]:
        """The proxies between the clients and the server, or between the server and a database."""
        return [self._clients] if link == "clients" else database.proxies

    # ------------------------------------------------------------ the server

    def _start_server(self) -> Server:
        self.starts += 1
        one = self.joined[0].url if len(self.joined) == 1 else ""
        return start_on_database(
            one,
            self.folder,
            "--workers",
            "2",
            port=self._port,
            FILE_BUFFER_DIR=str(self.spool),
            PYTHONPATH=str(_INJECTED),
            QUEEN_CHAOS=str(self.injected),
            **({} if one else self._urls),
        )

    @property
    def _urls(self) -> dict[str, str]:
        return {"DATABASE_URLS": urls({database.name: database.url for database in self.joined})}

    async def _to_server(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self._port)

    def excuse(self) -> Server:
        """The server that is about to be ended, and may end."""
        self._excused = self.server
        return self.server

    async def _keep_serving(self) -> None:
        """Starts the server again when it ended, as an orchestrator does; one that was not killed must not end."""
        was_healthy = True
        while True:
            await asyncio.sleep(_LOOK_S)
            was_healthy = was_healthy or await asyncio.to_thread(self.server.is_healthy_itself)
            if self.server.process.poll() is None:
                continue
            # A start may be refused, for instance while PostgreSQL is down; a server that runs must not give up.
            if was_healthy and self.server is not self._excused:
                tail = "\n".join(self.server.output.read_text().splitlines()[-60:])
                raise AssertionError(f"the server ended by itself, code {self.server.process.returncode}:\n{tail}")
            async with self.server_lock:
                self.server, was_healthy = self._start_server(), False
            await asyncio.sleep(_RETRY_S)

    async def wait_for_server(self, seconds: float) -> None:
        """Returns when the server answers, or after so long."""
        deadline = time.monotonic() + seconds
        while not await asyncio.to_thread(self.server.is_healthy) and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_S)

    def check_server(self) -> None:
        """Raises what has become of the server, if something has."""
        if self._keeping.done():
            self._keeping.result()

    def _end_server(self) -> None:
        if self.server.process.poll() is None:
            family = self.server.family()
            try:
                self.server.stop()
            except subprocess.TimeoutExpired:
                for process in family:
                    process.kill()
                raise

    async def change_list(self, verb: str, database: Database) -> str:
        """Changes the list of databases as people do: again until it is done, because all have to be up for that."""
        async with self._list_lock:
            for attempt in count(1):
                done = await asyncio.to_thread(run_command, "shards", verb, database.name, **self._urls)
                if done.returncode == 0:
                    return f"after {attempt} attempts" if attempt > 1 else ""
                assert "Traceback" not in done.stderr, done.stderr
                if f"{database.name} is " in done.stderr:  # a shard already, or drained already
                    return ""
                await asyncio.sleep(_RETRY_S)
        raise AssertionError

    # ------------------------------------------------------------ the end

    async def heal(self) -> None:
        """Everything works again, the server answers, and its spool is empty."""
        for proxy in [self._clients, *(proxy for database in self.databases for proxy in database.proxies)]:
            proxy.deliver("both")
            proxy.delay(0)
        for switch in ("disk-full", "sync-fails"):
            (self.injected / switch).unlink(missing_ok=True)
        for database in self.databases:
            async with database.lock:
                await database.bring_back()
        well: set[int] = set()

        def is_well() -> bool:
            self.check_server()
            for database in self.databases:
                assert database.postgres.is_alive(database.primary), f"PostgreSQL {database.name} ended by itself"
            if self.server.process.poll() is not None:
                return False
            well.update(self.server.settled_workers())
            with suppress(IndexError, psutil.NoSuchProcess):
                return bool(workers := self.server.workers()) and workers <= well
            return False

        try:
            await until(is_well, "healthy workers with an empty spool", 2 * PATIENCE_S)
        except AssertionError as problem:
            raise AssertionError(f"{problem}; the last answer: {self.server.last_health}") from None


@asynccontextmanager
async def world_of(folder: Path, schedule: Schedule) -> AsyncIterator[World]:
    """All of it, for the length of the block."""
    world = World(folder, schedule)
    try:
        await world.open()
        yield world
    finally:
        await world.close()
