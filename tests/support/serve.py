"""``queen serve`` as tests of its start and its end use it."""

import asyncio
import http.client
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import pytest

from queen.embedded.server import EmbeddedPostgres
from tests.support.processes import (
    PATIENCE_S,
    ROOT,
    Server,
    clean_environment,
    end,
    free_port,
    wait_until,
)

NOBODY = pwd.getpwnam("nobody")


def query(dsn: str, sql: str) -> Any:
    async def fetch() -> Any:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return asyncio.run(fetch())


def push(server: Server, payload: Any) -> None:
    status, _ = server.request("POST", "/api/v1/push", {"items": [{"queue": "q", "payload": payload}]})
    assert status == 201


def pop(server: Server) -> list[Any]:
    """The payloads that one pop takes."""
    status, answer = server.request("GET", "/api/v1/pop/queue/q?batch=100&autoAck=true")
    return [message["data"] for message in answer["messages"]] if status == 200 else []


def pop_spooled(server: Server, number: int) -> list[Any]:
    """So many payloads; some may have waited in the spool, for a worker that found out late that PostgreSQL is back."""
    got: list[Any] = []

    def all_are_here() -> bool:
        got.extend(pop(server))
        return len(got) >= number

    wait_until(all_are_here, f"{number} messages")
    return got


def park(server: Server, count: int = 3) -> list[http.client.HTTPConnection]:
    """Long polls on a queue that has nothing; each has been looked at once."""
    connections = [server.connection() for _ in range(count)]
    for number, connection in enumerate(connections):
        connection.request("GET", f"/api/v1/pop/queue/empty?wait=true&timeout=3000000&consumerGroup=g{number}")
    known = "SELECT count(*) FROM queen.consumer_groups_metadata WHERE name ~ '^g[0-9]$'"
    wait_until(lambda: query(server.dsn, known) == count, "the long polls have made their groups")
    return connections


def statuses(connections: list[http.client.HTTPConnection]) -> list[int]:
    try:
        return [connection.getresponse().status for connection in connections]
    finally:
        for connection in connections:
            connection.close()


@contextmanager
def half_a_request(server: Server) -> Iterator[None]:
    """A client that never sends the rest of its body; the worker has begun with it."""
    connection = server.connection()
    connection.putrequest("POST", "/api/v1/push")
    connection.putheader("Content-Length", "1000")
    connection.putheader("Expect", "100-continue")
    connection.endheaders()
    with connection.sock.makefile("rb") as answer:
        assert b"100 Continue" in answer.readline()
    try:
        yield
    finally:
        connection.close()


@contextmanager
def serving_over(postgres: EmbeddedPostgres) -> Iterator[Server]:
    """A healthy server that is given a database."""
    output = postgres.folder.path.parent / "out"
    port = free_port()
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "queen_command", "serve", "--port", str(port), "--dsn", postgres.dsn],
            cwd=ROOT,
            env=clean_environment(),
            stdout=file,
            stderr=file,
        )
    server = Server(process, port, postgres.folder.path, output)
    try:
        server.wait_until_healthy()
        yield server
    finally:
        end(server)


def only_line(result: subprocess.CompletedProcess[str]) -> str:
    """The one line of a command that failed."""
    assert result.returncode not in {0, None}
    assert "Traceback" not in result.stderr + result.stdout
    plain = [line for line in result.stderr.splitlines() if not line.startswith("{")]
    assert len(plain) == 1, result.stderr
    assert plain[0].startswith("error: ")
    return plain[0]


def python_for_nobody() -> str:
    """An interpreter that the user nobody may run, with our packages; skips the test if there is none."""
    candidates = [sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")]
    for python in filter(None, candidates):
        try:
            subprocess.run(
                [python, "-c", "import queen.server.supervisor, uvloop, falcon"],
                cwd=ROOT,
                env=clean_environment(PYTHONPATH=":".join(sys.path)),
                user=NOBODY.pw_uid,
                group=NOBODY.pw_gid,
                extra_groups=[],
                check=True,
                capture_output=True,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return str(python)
    pytest.skip("no interpreter with our packages is open to the user nobody")


def run_as_nobody(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python_for_nobody(), "-m", "queen_command", *arguments],
        cwd=ROOT,
        env=clean_environment(PYTHONPATH=":".join(sys.path)),
        user=NOBODY.pw_uid,
        group=NOBODY.pw_gid,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
