"""Shows statistics of PostgreSQL: ``GET /api/v1/analytics/postgres-stats``."""

from datetime import datetime

import falcon.asgi
import msgspec
from msgspec import Raw, Struct

from queen.core.errors import NotFoundError
from queen.engine.context import Context
from queen.http import parameters, queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer, text
from queen.http.operation import Answer, Parameter, operation
from queen.http.request import QueenRequest
from queen.operations.server import Server


class PostgresAnswer(Struct, rename="camel"):
    """Statistics of PostgreSQL: see ``queen.postgres_statistics_v1``."""

    timestamp: str
    database: str
    database_cache: dict[str, str | int | float]
    table_cache: list[dict[str, str | int | float]]
    index_cache: list[dict[str, str | int | float]]
    cache_summary: dict[str, dict[str, int | float]]
    dead_tuples: list[dict[str, str | int | float | None]]
    hot_updates: list[dict[str, str | int | float | None]]
    active_queries: list[dict[str, str | int | float | None]]
    autovacuum_status: list[dict[str, str | int | float | None]]
    buffer_config: dict[str, str]
    buffer_usage: list[Raw]
    table_sizes: list[dict[str, str | int]]


_decoder = msgspec.json.Decoder(PostgresAnswer)


def render(statistics: str) -> PostgresAnswer:
    """The answer, with what the procedure leaves out: the time as text, and sizes as ``pg_size_pretty`` writes them."""
    found = _decoder.decode(statistics)
    found.timestamp = text(datetime.fromisoformat(found.timestamp))
    for table in found.table_sizes:
        for name in ("totalSize", "tableSize", "indexSize"):
            table[name] = _pretty(int(table[f"{name}Bytes"]))
    return found


def _pretty(size: int) -> str:
    if size < 10 * 1024:
        return f"{size} bytes"
    halves = size >> 9
    for unit in ("kB", "MB", "GB"):
        if halves < 20 * 1024 - 1:
            return f"{(halves + 1) // 2} {unit}"
        halves >>= 10
    return f"{(halves + 1) // 2} TB"


def _named(context: Context, name: str | None) -> Context:
    """The context of a database by its name."""
    databases = dict(context.named())
    if name is None:
        return next(iter(databases.values()))
    if name not in databases:
        raise NotFoundError(f"There is no database of this name: {name}")
    return databases[name]


@operation(
    "GET",
    "/api/v1/analytics/postgres-stats",
    "getPostgresStatistics",
    "Show statistics of PostgreSQL",
    access=READ_ONLY,
    answers=[Answer("Caches, dead rows, sizes and active queries", PostgresAnswer)],
    errors=(400, 404, 503),
    parameters=[
        Parameter(
            "database", "Name of one of several databases (`DATABASE_URLS`); by default the first", parameters.NAME
        )
    ],
)
async def get_postgres_statistics(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Caches, dead rows, sizes and active queries."""
    name = queries.name(req, "database")
    found = await server.ask(lambda context: _named(context, name).administration.statistics.postgres())
    answer(resp, render(found))
