"""The world of a schedule: PostgreSQL and clients behind proxies, and a server that is started again when killed."""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.chaos.proxy import Proxy, Streams
from tests.support.chaos.schedule import FailOver, FillPostgresDisk, Link, Schedule
from tests.support.processes import PATIENCE_S, Server, free_port
from tests.support.servers import start_on_database
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


class World:
    """Everything that a fault can be done to.

    Attributes:
        folder: everything lies in it.
        primary: the name of the cluster that takes writes.
        postgres: one or two clusters.
        links: the two proxies.
        server: the latest one.
        starts: how often a server was started.
        postgres_lock: faults hold it while they change the processes of PostgreSQL.
        server_lock: the same for those of the server.
        notes: what was not as planned.
    """

    def __init__(self, folder: Path, schedule: Schedule) -> None:
        self.folder, self.schedule = folder, schedule
        self.primary = "one"
        self.postgres_lock, self.server_lock = asyncio.Lock(), asyncio.Lock()
        self.starts, self.notes = 0, list[str]()
        self._port = free_port()
        self._closing = False
        self._excused: Server | None = None
        self._stack = ExitStack()
        self.injected = folder / "faults"
        self.injected.mkdir()
        self.spool = folder / "spool"
        self.spool.mkdir()

    async def open(self) -> None:
        """Starts everything."""
        self.postgres = Pair(self._postgres_folder())
        self._stack.callback(self.postgres.stop)
        with_standby = self.schedule.needs(FailOver)
        await asyncio.to_thread(self.postgres.start, with_standby=with_standby)
        names = ("one", "two") if with_standby else ("one",)
        databases = [Proxy(self._to_postgres(name), self.schedule.seed) for name in names]
        clients = Proxy(self._to_server, self.schedule.seed + 2)
        self.links: dict[Link, list[Proxy]] = {"database": databases, "clients": [clients]}
        for proxy in (*databases, clients):
            await proxy.start()
        self.server = self._start_server()
        await asyncio.to_thread(self.server.wait_until_healthy)
        self._keeping = asyncio.create_task(self._keep_serving())

    async def close(self) -> None:
        """Ends everything."""
        self._closing = True
        if hasattr(self, "_keeping"):
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if hasattr(self, "server"):
            await asyncio.to_thread(self._end_server)
        for proxies in getattr(self, "links", {}).values():
            for proxy in proxies:
                await proxy.stop()
        await asyncio.to_thread(self._stack.close)

    @property
    def url(self) -> str:
        """Where clients find the server."""
        return f"http://127.0.0.1:{self.links['clients'][0].port}"

    @property
    def dsn(self) -> str:
        """The primary, without a proxy."""
        return self.postgres.dsn_of(self.primary)

    # ------------------------------------------------------------ PostgreSQL

    def _postgres_folder(self) -> Path:
        """A small file system of its own where one has to become full, and may be mounted."""
        path = self.folder / "postgres"
        path.mkdir()
        if self.schedule.needs(FillPostgresDisk):
            if problem := self._mount(path):
                self.notes.append(f"FillPostgresDisk is left out, for no tmpfs can be mounted: {problem}")
            else:
                self._stack.callback(lambda: subprocess.run(["umount", "-l", path], check=False))
                path.chmod(0o755)
        return path

    def _mount(self, path: Path) -> str:
        """Why it could not be mounted, if so."""
        size = _POSTGRES_DISK_MB * (1 + self.schedule.needs(FailOver))
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", path]
        try:
            mounted = subprocess.run(command, check=False, capture_output=True, text=True)
        except FileNotFoundError as problem:
            return str(problem)
        return mounted.stderr.strip() if mounted.returncode else ""

    def fill_postgres_disk(self) -> Path | None:
        """Takes all the room; what to remove to give it back."""
        folder = self.folder / "postgres"
        if not folder.is_mount():
            return None
        ballast = folder / "ballast"
        with ballast.open("wb") as file, suppress(OSError):  # PostgreSQL may take some of it meanwhile
            while free := shutil.disk_usage(folder).free:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), free)
        return ballast

    def _to_postgres(self, name: str) -> Callable[[], Any]:
        async def open_far() -> Streams:
            return await asyncio.open_unix_connection(str(self.postgres.socket_of(name)))

        return open_far

    async def bring_postgres_back(self) -> None:
        """Starts the primary if it does not run, and returns when it answers."""

        def answers() -> bool:
            if not self.postgres.is_alive(self.primary):
                self.postgres.launch(self.primary)
            return self.postgres.answers(self.primary)

        await until(answers, "PostgreSQL")

    # ------------------------------------------------------------ the server

    def _start_server(self) -> Server:
        ports = ",".join(str(proxy.port) for proxy in self.links["database"])
        hosts = ",".join("127.0.0.1" for _ in self.links["database"])
        self.starts += 1
        return start_on_database(
            f"postgresql://postgres@/postgres?host={hosts}&port={ports}",
            self.folder,
            "--workers",
            "2",
            port=self._port,
            FILE_BUFFER_DIR=str(self.spool),
            PYTHONPATH=str(_INJECTED),
            QUEEN_CHAOS=str(self.injected),
        )

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

    # ------------------------------------------------------------ the end

    async def heal(self) -> None:
        """Everything works again, the server answers, and its spool is empty."""
        for proxies in self.links.values():
            for proxy in proxies:
                proxy.deliver("both")
                proxy.delay(0)
        for switch in ("disk-full", "sync-fails"):
            (self.injected / switch).unlink(missing_ok=True)
        async with self.postgres_lock:
            await self.bring_postgres_back()

        def is_well() -> bool:
            self.check_server()
            assert self.postgres.is_alive(self.primary), "PostgreSQL ended by itself"
            return self.server.process.poll() is None and self.server.is_settled()

        await until(is_well, "a healthy server with an empty spool", 2 * PATIENCE_S)


@asynccontextmanager
async def world_of(folder: Path, schedule: Schedule) -> AsyncIterator[World]:
    """All of it, for the length of the block."""
    world = World(folder, schedule)
    try:
        await world.open()
        yield world
    finally:
        await world.close()
