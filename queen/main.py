"""The composition root: settings, database, engine and HTTP put together."""

import os
import resource
from collections.abc import Callable
from typing import Any

import uvloop

from queen.config import Settings
from queen.core.errors import SettingError
from queen.db.administration import AdministrationStore
from queen.db.dsn import Target, parse
from queen.db.notices import PostgresTransport
from queen.db.pool import Pool
from queen.db.setup import probe_pooler
from queen.db.store import Store
from queen.engine.context import Context
from queen.engine.directory import Directory
from queen.engine.engine import Engine, Shares
from queen.engine.job import Job
from queen.engine.lane import Lane
from queen.engine.notices import NoticesEverywhere
from queen.engine.ports import Notice, Transport
from queen.engine.thread import Assemble, Assembled, EngineThread
from queen.engine.waiters import Waiters
from queen.http.app import QueenApp, create_app
from queen.peers.http import HttpTransport
from queen.peers.siblings import SiblingsTransport, folder_of
from queen.peers.udp import UdpTransport

#: Open files that are not long polls: listeners, connections to PostgreSQL, requests that do not wait.
FILES_BESIDE_WAITERS = 512


def share(total: int, workers: int) -> int:
    """Connections of one worker when ``total`` are split over all; at least one."""
    return max(1, total // workers)


async def _target(settings: Settings) -> Target:
    url = settings.database_url
    if not url:
        raise SettingError("No PostgreSQL: set DATABASE_URL or PG_HOST, or use `queen serve`, which brings its own")
    return await probe_pooler(parse(url, "queen", settings.connect_timeout_ms))


def _notices(settings: Settings, target: Target) -> NoticesEverywhere:
    """Every way to other workers and instances that the settings and the database allow."""
    secret, interval_s = settings.sync_secret.encode(), settings.notify_interval_ms / 1000
    siblings = SiblingsTransport(folder_of(os.getppid()))
    ways: list[Transport] = [siblings]
    if not target.pooled:
        ways.append(PostgresTransport(target, interval_s))
    if settings.udp_peers:
        ways.append(UdpTransport((settings.host, settings.udp_port), settings.udp_peers, secret))
    if settings.http_peers:
        ways.append(HttpTransport(settings.http_peers, secret, interval_s))
    return NoticesEverywhere(ways, relays=[siblings])


def _waiters_max(settings: Settings) -> int:
    """Long polls that this worker may hold, each of which is an open file."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return settings.waiters_max or max(1, files - FILES_BESIDE_WAITERS)


def assembly(settings: Settings) -> Assemble:
    """How the engine of a worker is made, in its own loop."""

    async def assemble(answer: Callable[[Job, Any], None]) -> Assembled:
        target = await _target(settings)
        timeout_s = settings.statement_timeout_ms / 1000
        hot = Pool(target, share(settings.hot_connections, settings.workers), timeout_s)
        cold = Pool(target, share(settings.cold_connections, settings.workers), timeout_s)
        store = Store(hot)
        notices = _notices(settings, target)

        def heard(notice: Notice) -> None:
            engine.heard(notice)
            notices.publish(notice)

        def hear(sheet: bytes) -> None:
            notices.hear(sheet, relay=True)

        directory = Directory(store, settings.cached_partitions)
        context = Context(store, AdministrationStore(cold), directory, heard, settings.patience_ms / 1000)
        # Where nobody tells of other instances, each place has to look for itself at its own pace.
        checks_per_s = settings.checks_per_s if not target.pooled else 0
        waiters = Waiters(settings.poll_initial_ms, settings.poll_max_ms, checks_per_s)
        shares = Shares(hot.size, cold.size, _waiters_max(settings))
        engine = Engine(
            context, lambda kind: Lane(settings.policy(kind), settings.limiter(kind)), waiters, shares, answer
        )
        await notices.start(engine.heard, engine.missed)

        async def close() -> None:
            await notices.stop()
            await hot.close()
            await cold.close()

        return Assembled(engine, hear, close)

    return assemble


def create(settings: Settings) -> QueenApp:
    """The ASGI application of a worker process."""
    return create_app(settings, EngineThread(assembly(settings), uvloop.new_event_loop))
