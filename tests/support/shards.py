"""A server over several databases."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import Server, end
from tests.support.servers import start_on_database


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
