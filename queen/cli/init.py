"""``queen init``: creates or upgrades the schema."""

import asyncio
from contextlib import ExitStack

from queen.cli.client.showing import document
from queen.cli.options import DataDir, Dsn, environment_with, settings_from
from queen.cli.output import Json, out
from queen.config import Settings
from queen.postgres.setup import DatabaseInfo, prepare
from queen.server import logs
from queen.server.supervisor import embedded_postgres


def init(dsn: Dsn = None, data_dir: DataDir = None, json: Json = False) -> None:
    """Create or upgrade the schema in the database, and exit. `queen serve` does the same at its start.

    --json prints an object with the database and the migrations that were applied.
    """
    settings = settings_from(environment_with(DATABASE_URL=dsn, QUEEN_DATA_DIR=data_dir), data_dir)
    logs.configure(settings.server.log_level)
    database = _prepare(settings)
    if json:
        document(database)
        return
    done = f"applied {', '.join(database.applied)}" if database.applied else "the schema was up to date"
    out.print(f"PostgreSQL {database.version} at {database.place}: {done}", markup=False)


def _prepare(settings: Settings) -> DatabaseInfo:
    with ExitStack() as stack:
        url = settings.database.url or stack.enter_context(embedded_postgres(settings)).dsn
        return asyncio.run(prepare(url, settings.database.connect_timeout_ms))
