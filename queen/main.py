"""The composition root: settings, database, engine and HTTP put together."""

from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from queen.config import Settings
from queen.core.errors import SettingError
from queen.db.administration import AdministrationStore
from queen.db.dsn import Target, parse
from queen.db.notices import PostgresNotices
from queen.db.pool import Pool
from queen.db.setup import probe_pooler
from queen.db.store import Store
from queen.engine.context import Context
from queen.engine.directory import Directory
from queen.engine.engine import Engine
from queen.engine.job import Job
from queen.engine.ports import Notice
from queen.engine.thread import EngineThread
from queen.engine.waiters import Waiters
from queen.http.app import QueenApp, create_app

#: How long a call is repeated while PostgreSQL is away, before its sender is told so.
PATIENCE_S = 5.0


def share(total: int, workers: int) -> int:
    """Connections of one worker when ``total`` are split over all; at least one."""
    return max(1, total // workers)


async def _target(settings: Settings) -> Target:
    url = settings.database_url
    if not url:
        raise SettingError("No PostgreSQL: set DATABASE_URL or PG_HOST, or use `queen serve`, which brings its own")
    return await probe_pooler(parse(url, "queen", settings.connect_timeout_ms))


def assembly(
    settings: Settings,
) -> Callable[[Callable[[Job, Any], None]], Awaitable[tuple[Engine, Callable[[], Awaitable[None]]]]]:
    """How the engine of a worker is made, in its own loop."""

    async def assemble(answer: Callable[[Job, Any], None]) -> tuple[Engine, Callable[[], Awaitable[None]]]:
        target = await _target(settings)
        timeout_s = settings.statement_timeout_ms / 1000
        hot = Pool(target, share(settings.hot_connections, settings.workers), timeout_s)
        cold = Pool(target, share(settings.cold_connections, settings.workers), timeout_s)
        store = Store(hot)
        notices = None if target.pooled else PostgresNotices(target, settings.notify_interval_ms / 1000)

        def heard(notice: Notice) -> None:
            engine.heard(notice)
            if notices is not None:
                notices.publish(notice)

        directory = Directory(store, settings.cached_partitions)
        context = Context(store, AdministrationStore(cold), directory, heard, PATIENCE_S)
        waiters = Waiters(settings.poll_initial_ms, settings.poll_max_ms)
        engine = Engine(context, settings.policy, waiters, answer)
        if notices is not None:
            await notices.start(engine.heard)

        async def close() -> None:
            if notices is not None:
                await notices.stop()
            await hot.close()
            await cold.close()

        return engine, close

    return assemble


def create(settings: Settings) -> QueenApp:
    """The ASGI application of a worker process."""
    return create_app(settings, EngineThread(assembly(settings), uvloop.new_event_loop))
