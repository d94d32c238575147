"""A server over several databases."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.processes import Server, end
from tests.support.servers import create_database, drop_database, start_on_database

#: The usual names of several databases.
NAMES = ("a", "b", "c")


def urls(databases: Mapping[str, str]) -> str:
    """The value of DATABASE_URLS."""
    return " ".join(f"{name}={url}" for name, url in databases.items())


@contextmanager
def serving_shards(databases: Mapping[str, str], folder: Path, *options: str, **environment: str) -> Iterator[Server]:
    """A healthy server over the databases; ``folder`` takes its output and its data."""
    folder.mkdir(exist_ok=True)
    server = start_on_database("", folder, *options, **{"DATABASE_URLS": urls(databases), **environment})
    try:
        server.wait_until_healthy()
        yield server
    finally:
        end(server)


@contextmanager
def new_databases(dsn: str, names: Sequence[str] = NAMES) -> Iterator[dict[str, str]]:
    """Empty databases on one PostgreSQL, by name: their connection strings."""
    with ExitStack() as stack:
        databases = {}
        for name in names:
            databases[name] = asyncio.run(create_database(dsn))
            stack.callback(lambda url: asyncio.run(drop_database(dsn, url)), databases[name])
        yield databases
