"""Servers on a PostgreSQL that is already there."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from tests.support.processes import PYTHON, ROOT, Server, clean_environment, end, free_port


def database_url(dsn: str, database: str) -> str:
    """The same server, another database."""
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{database}"))


async def create_database(dsn: str) -> str:
    """Makes an empty database; its connection string."""
    name = f"queen_test_{uuid4().hex[:12]}"
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
    finally:
        await connection.close()
    return database_url(dsn, name)


async def drop_database(dsn: str, url: str) -> None:
    """Removes a database, and ends the connections to it."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f"DROP DATABASE {urlsplit(url).path.lstrip('/')} WITH (FORCE)")
    finally:
        await connection.close()


def start_on_database(
    dsn: str, folder: Path, *options: str, root: Path = ROOT, port: int = 0, **environment: str
) -> Server:
    """Starts a server on the database without waiting for it; on a free port if none is given.

    ``folder`` takes its output, behind that of an earlier one, and ``root`` is the tree that it runs from.
    """
    port = port or free_port()
    output = folder / f"{port}.out"
    environment = {"QUEEN_DATA_DIR": str(folder / f"{port}-data"), **environment}
    with output.open("ab") as file:
        process = subprocess.Popen(
            [*PYTHON, "serve", "--port", str(port), *options],
            cwd=root,
            env=clean_environment(DATABASE_URL=dsn, **environment),
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    return Server(process, port, folder, output)


@contextmanager
def serving_database(dsn: str, folder: Path, *options: str, root: Path = ROOT, **environment: str) -> Iterator[Server]:
    """A healthy server on the database; ``folder`` takes its output, and ``root`` is the tree that it runs from."""
    server = start_on_database(dsn, folder, *options, root=root, **environment)
    try:
        server.wait_until_healthy()
        yield server
    finally:
        end(server)
