"""The composition root: settings, database, spool, engine and HTTP put together."""

import logging
import os
import resource
from collections.abc import AsyncIterator, Callable, Container, Hashable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import uvloop

from queen.config import Settings, share
from queen.core.errors import QueenError, SettingError
from queen.core.limits import FILES_BESIDE_WAITERS, LOCK_WAIT_S, REPLAY_CALL_S, REPLAY_LANES
from queen.db.administration import AdministrationStore
from queen.db.dsn import Target, parse
from queen.db.maintenance import MaintenanceStore
from queen.db.notices import PostgresTransport
from queen.db.pool import Pool
from queen.db.pulse import Pulse
from queen.db.simple_mq import SimpleMqAdministrationStore, SimpleMqStore
from queen.db.spool_store import SpoolStore
from queen.db.store import Store
from queen.engine.context import Context, SimpleMq, tell_nobody
from queen.engine.directory import Directory
from queen.engine.engine import Engine, Shares
from queen.engine.failover import Failover
from queen.engine.handlers.configuration import go_on_with_begun
from queen.engine.handlers.simple_mq import announce_routed
from queen.engine.job import Job
from queen.engine.lane import Lane
from queen.engine.meter import Gauges
from queen.engine.notices import NoticesEverywhere
from queen.engine.ports import Notice, Transport
from queen.engine.push_options import keep_for_spool
from queen.engine.replay import Replay
from queen.engine.reporter import Reporter
from queen.engine.switches import copy_switches
from queen.engine.tally import Tally
from queen.engine.thread import Assemble, Assembled, EngineThread
from queen.engine.waiters import Waiters
from queen.http.app import QueenApp, create_app
from queen.peers.http import HttpTransport
from queen.peers.siblings import SiblingsTransport, folder_of
from queen.peers.udp import UdpTransport
from queen.security.keyring import Keyring
from queen.services.services import Chore, Schedule, Services
from queen.spool import place
from queen.spool.folder import DiskFolder
from queen.spool.spool import Limits, Spool

log = logging.getLogger("queen.spool")


#: How often what nobody needs any more is removed.
_TIDY_S = 15.0


def _target(settings: Settings) -> Target:
    """The database. Nobody asks it anything here: a worker has to start also while it is away."""
    url = settings.database_url
    if not url:
        raise SettingError("No PostgreSQL: set DATABASE_URL or PG_HOST, or use `queen serve`, which brings its own")
    target = parse(url, "queen", settings.connect_timeout_ms)
    return msgspec.structs.replace(target, pooled=settings.pooler == "yes")


def open_spool(settings: Settings, path: Path, installation: UUID) -> Spool:
    """The spool in a folder that is ready."""
    limits = Limits(bytes_max=settings.spool_max_bytes, file_requests_max=settings.spool_file_requests)
    return Spool(DiskFolder(path), installation, limits)


async def _spool(settings: Settings, administration: AdministrationStore) -> Spool:
    """The spool of a worker. gunicorn's configuration has made it ready; then PostgreSQL may be away."""
    path = Path(settings.spool_dir)
    installation = place.installation_of(path) if settings.spool_dir else None
    if installation is None:
        installation = await administration.installation()
        path = place.claim(settings.spool_dir, settings.data_dir, installation)
    return open_spool(settings, path, installation)


def _pools(target: Target, settings: Settings) -> tuple[Pool, Pool, Pool, Pool]:
    """The connections of a worker: for messages, for everything else, for the replay of the spool, for the services."""
    timeout_s = settings.statement_timeout_ms / 1000
    return (
        Pool(target, share(settings.hot_connections, settings.workers), timeout_s, LOCK_WAIT_S),
        Pool(target, share(settings.cold_connections, settings.workers), timeout_s),
        Pool(target, REPLAY_LANES, min(timeout_s, REPLAY_CALL_S)),
        Pool(msgspec.structs.replace(target, application_name="queen services"), 1, timeout_s),
    )


def _spool_store(pool: Pool, target: Target) -> SpoolStore:
    """The procedures of the replay. A pooler takes no limit for a connection, so each call names it."""
    return SpoolStore(pool, REPLAY_CALL_S if target.pooled else None)


@asynccontextmanager
async def _pool(target: Target, size: int, settings: Settings) -> AsyncIterator[Pool]:
    pool = Pool(target, size, min(settings.statement_timeout_ms / 1000, REPLAY_CALL_S))
    try:
        yield pool
    finally:
        await pool.close()


async def prepare_spool(settings: Settings) -> Path:
    """Makes the spool ready, and stores what it holds, before there is any traffic; returns its folder.

    Raises:
        SettingError: the folder cannot be used.
        DatabaseUnavailableError: PostgreSQL is away.
    """
    async with _pool(_target(settings), REPLAY_LANES, settings) as pool:
        store, administration = Store(pool), AdministrationStore(pool)
        installation = await administration.installation()
        path = place.claim(settings.spool_dir, settings.data_dir, installation)
        spool = open_spool(settings, path, installation)
        try:
            spool.recover()
        except OSError as problem:
            raise SettingError(
                f"The spool in {path} cannot be made whole ({problem}): repair the disk or make room on it, then start "
                "again"
            ) from problem
        failover = Failover(spool)
        directory = Directory(store, settings.cached_partitions)
        context = Context(
            store,
            administration,
            directory,
            tell_nobody,
            settings.patience_ms / 1000,
            failover,
            keys=_keys(settings),
            limit_s=settings.statement_timeout_ms / 1000,
        )
        await copy_switches(context)
        await keep_for_spool(context)
        if failover.spooling and not failover.maintenance:
            waiting = spool.state()
            log.warning("storing what the spool holds", extra={"messages": waiting.messages, "bytes": waiting.bytes})
            try:
                await Replay(context, failover, _spool_store(pool, _target(settings)), settings.spool_batch, 0).drain()
            except (QueenError, OSError) as problem:
                log.error("The spool is not empty yet: %s", problem)  # noqa: TRY400 - it explains itself
    return path


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


def _simple_mq(hot: Pool, cold: Pool) -> SimpleMq:
    queues = SimpleMqAdministrationStore(cold)
    return SimpleMq(SimpleMqStore(hot), queues, Tally(queues.count_outcomes))


def _simple_mq_chores(settings: Settings, context: Context, maintenance: MaintenanceStore) -> list[Chore]:
    """What simple-mq does by itself."""
    queues = context.simple_mq.administration

    async def sweep() -> None:
        announce_routed(context, await queues.sweep())

    async def tidy() -> None:
        await queues.tidy(maintenance.not_after)

    chores = [Chore("clean-up of simple-mq", _TIDY_S, tidy)]
    if settings.smq_sweep_interval_ms:
        chores.append(Chore("dead letters of simple-mq", settings.smq_sweep_interval_ms / 1000, sweep))
    return chores


def assembly(settings: Settings) -> Assemble:
    """How the engine of a worker is made, in its own loop."""

    async def assemble(answer: Callable[[Job, Any], None]) -> Assembled:
        target = _target(settings)
        pools = hot, cold, replaying, sweeping = _pools(target, settings)
        store, administration = Store(hot, settings.pop_bytes_max), AdministrationStore(cold)
        failover = Failover(await _spool(settings, administration))
        notices = _notices(settings, target)

        def heard(notice: Notice, besides: Container[Hashable] = ()) -> None:
            engine.heard(notice, besides)
            notices.publish(notice)

        def hear(sheet: bytes) -> None:
            notices.hear(sheet, relay=True)

        def lost(reason: str) -> None:
            failover.away = True
            for pool in pools:
                pool.suspend(reason)

        def found() -> None:
            failover.away = False
            for pool in pools:
                pool.resume()

        directory = Directory(store, settings.cached_partitions)
        simple_mq = _simple_mq(hot, cold)
        context = Context(
            store,
            administration,
            directory,
            heard,
            settings.patience_ms / 1000,
            failover,
            keys=_keys(settings),
            limit_s=settings.statement_timeout_ms / 1000,
            simple_mq=simple_mq,
        )
        # Where nobody tells of other instances, each place has to look for itself at its own pace.
        checks_per_s = settings.checks_per_s if not target.pooled else 0
        waiters = Waiters(settings.poll_initial_ms, settings.poll_max_ms, checks_per_s)
        shares = Shares(hot.size, cold.size, _waiters_max(settings))
        engine = Engine(
            context, lambda kind: Lane(settings.policy(kind), settings.limiter(kind)), waiters, shares, answer
        )
        pulse = Pulse(target, lost, found, lambda: max(pool.answered_at for pool in pools))
        interval_s = settings.spool_interval_ms / 1000
        replay = Replay(context, failover, _spool_store(replaying, target), settings.spool_batch, interval_s)
        await notices.start(engine.heard, engine.missed)
        pulse.start()
        replay.start()

        def gauges() -> Gauges:
            return Gauges(hot.open + cold.open, hot.idle + cold.idle, engine.queued, engine.waiting_by_queue())

        context.gauges, context.database_answers = gauges, pulse.answers
        keep = timedelta(days=settings.metrics_days)
        reporter = Reporter(context.meter, administration.metrics, gauges, settings.metrics_interval_ms / 1000, keep)
        context.clock = lambda: reporter.clock
        reporter.start()
        services = _services(sweeping, settings, context)
        services.start()

        async def close() -> None:
            await services.stop()
            await reporter.stop()
            await simple_mq.tally.close()
            await replay.stop()
            await pulse.stop()
            await notices.stop()
            failover.close()
            for pool in pools:
                await pool.close()

        return Assembled(engine, hear, close)

    return assemble


def _keys(settings: Settings) -> Keyring | None:
    return Keyring.from_settings(settings.encryption_key, settings.encryption_old_keys)


def _services(pool: Pool, settings: Settings, context: Context) -> Services:
    """The background services, with how often they run and how much each of their transactions does."""
    schedule = Schedule(
        settings.retention_interval_ms / 1000, settings.retention_batch, settings.eviction_interval_ms / 1000,
        settings.eviction_batch, timedelta(days=settings.partition_cleanup_days),
    )  # fmt: skip
    maintenance = MaintenanceStore(pool)
    going_on = Chore("clean-up", schedule.retention_interval_s, partial(go_on_with_begun, context))
    return Services(maintenance, schedule, [going_on, *_simple_mq_chores(settings, context, maintenance)])


def create(settings: Settings) -> QueenApp:
    """The ASGI application of a worker process."""
    own_loop = uvloop.new_event_loop if settings.engine_home == "thread" else None
    if settings.telemetry_on:
        # An optional extra, which nobody pays for who does not use it.
        from queen.telemetry.app import create_traced_app  # noqa: PLC0415
        from queen.telemetry.engine import TracedEngine  # noqa: PLC0415

        return create_traced_app(settings, TracedEngine(assembly(settings), own_loop))
    return create_app(settings, EngineThread(assembly(settings), own_loop))
