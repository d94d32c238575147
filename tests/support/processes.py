"""Running ``queen`` as people do: real processes, on a free port, in a folder of the test's own."""

import atexit
import contextlib
import fcntl
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import psutil

from queen.embedded.server import EmbeddedPostgres
from queen.engine.engine import TASK_FAILED

ROOT = Path(__file__).parents[2]
PYTHON = (sys.executable, "-m", "queen_command")

#: Generous: it only ends tests that hang, and the machine may be slow and busy.
PATIENCE_S = 240.0


#: The servers that were started last, for the report of a test that fails.
RECENT: "deque[Server]" = deque(maxlen=4)
_LINES, _LINE_CHARACTERS = 20, 400


def wait_until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> Any:
    """The first true value of the condition; fails naming what did not happen."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


@contextmanager
def open_folder() -> Iterator[Path]:
    """A new folder that other users may pass through.

    pytest's own are for one user only, and a pytest that starts closes them again: as root, PostgreSQL is another user.
    """
    with tempfile.TemporaryDirectory(prefix="queen-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def _claimed(block: int) -> bool:
    """Whether this process has a block of ports from now to its end; the open file is its claim."""
    with suppress(OSError):
        claim = os.open(Path(tempfile.gettempdir()) / f"queen-test-ports-{block}", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(claim)
            return False
        return True
    return False


@cache
def _ports() -> Iterator[int]:
    """A hundred ports, again and again, that no other process of tests has, nor any outgoing connection."""
    block = next((block for block in range(200, 320) if _claimed(block)), None)
    assert block is not None, "all ports for tests are taken"
    return cycle(range(100 * block, 100 * block + 100))


def free_port() -> int:
    """A free port, which stays free while its server is down."""
    for port in islice(_ports(), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("the ports of this process are all in use")


def clean_environment(**variables: str) -> dict[str, str]:
    """The environment without anything that queen or libpq would read, and with these variables."""
    kept = ("PATH", "HOME", "LANG", "PYTHONSAFEPATH", "PYTHONDONTWRITEBYTECODE")
    return {name: os.environ[name] for name in kept if name in os.environ} | variables


def run(*arguments: str, patience: float = PATIENCE_S, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a command that ends by itself within so many seconds."""
    return subprocess.run(
        [*PYTHON, *arguments],
        cwd=ROOT,
        env=clean_environment(**variables),
        capture_output=True,
        text=True,
        timeout=patience,
        check=False,
    )


@dataclass
class Server:
    """A ``queen serve``.

    Attributes:
        output: the file with all that it and its children print.
        last_health: what it answered, when it was last asked whether it is settled.
    """

    process: subprocess.Popen[bytes]
    port: int
    data_dir: Path
    output: Path
    given_dsn: str | None = None
    last_health: str = ""
    _last_lines: str = ""

    def __post_init__(self) -> None:
        RECENT.append(self)

    def last_lines(self) -> str:
        """The end of what it has printed, also when its folder is gone."""
        with contextlib.suppress(OSError):
            lines = self.output.read_text(errors="replace").splitlines()
            self._last_lines = "\n".join(line[:_LINE_CHARACTERS] for line in lines[-_LINES:])
        return self._last_lines

    def connection(self, timeout: float = PATIENCE_S) -> http.client.HTTPConnection:
        """A connection that the caller closes."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and decoded body of one request."""
        connection = self.connection()
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text else None
        finally:
            connection.close()

    def is_healthy(self) -> bool:
        """Whether a worker answers that all is well."""
        try:
            return self.request("GET", "/health")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def is_healthy_itself(self) -> bool:
        """The same, and the worker is one of its own: one of a server that was killed may still hold the port."""
        try:
            status, body = self.request("GET", "/health")
            return status == 200 and body["worker_id"] in self.workers()
        except (OSError, http.client.HTTPException, IndexError, psutil.NoSuchProcess):
            return False

    def is_settled(self) -> bool:
        """Whether a worker answers that all is well, and that nothing waits in the spool."""
        return bool(self.settled_workers())

    def settled_workers(self) -> set[int]:
        """The worker that answers so, if one does: every database is connected, and nothing waits in the spool."""
        try:
            status, body = self.request("GET", "/health")
        except (OSError, http.client.HTTPException) as problem:
            self.last_health = repr(problem)
            return set()
        self.last_health = str(body)
        spool, databases = body["spool"], body.get("databases", {})
        waits = spool["spooling"] or spool["held_partitions"] or "disconnected" in databases.values()
        return {body["worker_id"]} if status == 200 and not waits else set()

    def wait_until_healthy(self) -> None:
        """Returns when requests are served; fails when the server ended instead."""
        wait_until(lambda: self.process.poll() is not None or self.is_healthy(), f"healthy; {self.output.read_text()}")
        assert self.process.poll() is None, self.output.read_text()

    def wait_until_all_are_healthy(self, workers: int) -> None:
        """Returns when each of so many workers has said since the call that all is well."""
        well: set[int] = set()

        def all_are() -> bool:
            status, body = self.request("GET", "/health")
            if status == 200:
                well.add(body["worker_id"])
            now = self.workers()
            return len(now) == workers and now <= well

        wait_until(all_are, f"{workers} healthy workers")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Asks it to stop; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        """Kills all of it at once, as when its machine is switched off."""
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()

    def children(self, name: str) -> list[psutil.Process]:
        """Its direct children whose command line has the name."""
        return [child for child in psutil.Process(self.process.pid).children() if name in _command_line(child)]

    def gunicorn(self) -> psutil.Process:
        """gunicorn's own process."""
        return self.children("gunicorn")[0]

    def workers(self) -> set[int]:
        """The process ids of gunicorn's workers."""
        return {worker.pid for worker in self.gunicorn().children()}

    def postmaster(self) -> psutil.Process:
        """PostgreSQL's first process."""
        children: list[psutil.Process] = wait_until(lambda: self.children("postgres"), "a postmaster")
        return children[0]

    def family(self) -> list[psutil.Process]:
        """It and everything below it."""
        process = psutil.Process(self.process.pid)
        return [process, *process.children(recursive=True)]

    @property
    def dsn(self) -> str:
        """Where its PostgreSQL is."""
        if self.given_dsn:
            return self.given_dsn
        configuration = (self.data_dir / "postgresql.conf").read_text()
        socket_dir = configuration.split("unix_socket_directories = '")[1].split("'")[0]
        return f"postgresql://postgres@/postgres?host={socket_dir}"


def _command_line(process: psutil.Process) -> str:
    """The command line of a process; empty when it has just ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def start(data_dir: Path, *options: str, output: Path | None = None, dsn: str | None = None, **popen: Any) -> Server:
    """Starts ``queen serve`` without waiting for it, by default on an embedded PostgreSQL in ``data_dir``."""
    port = free_port()
    output = output or data_dir.parent / f"{data_dir.name}.{port}.out"
    environment = popen.pop("env", None) or clean_environment()
    place = ["--dsn", dsn] if dsn else ["--data-dir", str(data_dir)]
    if not dsn and not data_dir.exists() and not popen.keys() & {"command", "user"}:
        _copy_cluster(data_dir)
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*popen.pop("command", PYTHON), "serve", "--port", str(port), *place, *options],
            cwd=popen.pop("cwd", ROOT),
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            **popen,
        )
    return Server(process, port, data_dir, output, dsn)


def _copy_cluster(data_dir: Path) -> None:
    """Gives a new data folder a copy of a new cluster, which takes a tenth of the time of making one."""
    data_dir.mkdir(mode=0o755)
    subprocess.run(["cp", "-a", _new_cluster(), data_dir], check=True)


@cache
def _new_cluster() -> Path:
    """A cluster in which nothing is stored yet; it goes when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="queen-test-"))
    atexit.register(shutil.rmtree, folder)
    folder.chmod(0o755)
    postgres = EmbeddedPostgres(folder)
    postgres.start()
    postgres.stop()
    return postgres.folder.cluster


@contextmanager
def serving(data_dir: Path, *options: str, **popen: Any) -> Iterator[Server]:
    """A healthy server for the length of the block."""
    server = start(data_dir, *options, **popen)
    try:
        server.wait_until_healthy()
        yield server
    finally:
        end(server)


@contextmanager
def serving_workers(number: int) -> Iterator[Server]:
    """A server with so many workers, in a folder of its own."""
    with open_folder() as folder:
        environment = clean_environment(QUEEN_DATA_DIR=str(folder))
        with serving(folder / "data", "--workers", str(number), env=environment) as server:
            yield server


def end(server: Server) -> None:
    """Ends what is left of a server, however the test went."""
    server.last_lines()
    if server.process.poll() is None:
        server.stop()
    if server.output.exists():
        failed = [line for line in server.output.read_text(errors="replace").splitlines() if TASK_FAILED in line]
        assert not failed, failed[0]


def is_gone(process: psutil.Process) -> bool:
    """Whether a process has ended, also if its parent has not reaped it."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def json_lines(text: str) -> list[Mapping[str, Any]]:
    """The structured lines of an output."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
