"""``queen init``: creates or upgrades the schema."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack

from queen.cli.client.showing import document
from queen.cli.database import ONLY, document_of, fail_where, label, on_each
from queen.cli.options import DataDir, Dsn, environment_with, settings_from
from queen.cli.output import Json, out
from queen.config import Settings
from queen.core.errors import QueenError
from queen.postgres.setup import DatabaseInfo, prepare
from queen.server import logs
from queen.server.supervisor import embedded_postgres


def init(dsn: Dsn = None, data_dir: DataDir = None, json: Json = False) -> None:
    """Create or upgrade the schema in the database, and exit. `queen serve` does the same at its start.

    --json prints an object with the database and the migrations that were applied; an array of several (DATABASE_URLS).
    """
    settings = settings_from(environment_with(DATABASE_URL=dsn, QUEEN_DATA_DIR=data_dir), data_dir)
    logs.configure(settings.server.log_level)
    prepared, problems = _prepare(settings)
    if json:
        document(document_of(prepared))
    else:
        for name, info in prepared.items():
            done = f"applied {', '.join(info.applied)}" if info.applied else "the schema was up to date"
            out.print(f"{label(name)}PostgreSQL {info.version} at {info.place}: {done}", markup=False)
    fail_where(problems)


def _prepare(settings: Settings) -> tuple[Mapping[str, DatabaseInfo], Mapping[str, QueenError]]:
    with ExitStack() as stack:
        urls = dict(settings.database.shards)
        if not urls:
            urls[ONLY] = settings.database.url or stack.enter_context(embedded_postgres(settings)).dsn
        return on_each(urls, lambda url: asyncio.run(prepare(url, settings.database.connect_timeout_ms)))
