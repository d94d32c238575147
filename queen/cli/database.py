"""The database of commands that work on it directly."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from queen.config import Settings
from queen.embedded.server import dsn_of_running
from queen.server.supervisor import embedded_postgres
from queen.system.errors import FolderInUseError


@contextmanager
def database(settings: Settings) -> Iterator[str]:
    """The DSN of the database; starts the embedded PostgreSQL for the block if it is not running."""
    if settings.database.url:
        yield settings.database.url
        return
    embedded = embedded_postgres(settings)
    try:
        embedded.start()
    except FolderInUseError:
        if not (running := dsn_of_running(Path(settings.server.data_dir))):
            raise
        yield running
        return
    try:
        yield embedded.dsn
    finally:
        embedded.stop()
