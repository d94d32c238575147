"""``/api/v1/analytics/postgres-stats``: what PostgreSQL says of itself."""

import falcon
import falcon.asgi
import msgspec
from msgspec import Raw, Struct

from queen.http.answers import Administrative, answer


class PostgresAnswer(Struct, rename="camel"):
    """What PostgreSQL says of itself: see ``queen.postgres_statistics_v1``."""

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


_postgres_decoder = msgspec.json.Decoder(PostgresAnswer)


class PostgresResource(Administrative):
    """What PostgreSQL says of itself."""

    async def on_get(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """Caches, dead rows, sizes and what runs now."""
        found = await self.ask(lambda context: context.administration.metrics.postgres())
        answer(resp, _postgres_decoder.decode(found))
