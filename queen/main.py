"""The composition root: combines settings, database, spool, engine and HTTP."""

import logging
import os
import resource
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import uvloop

from queen.catalogue import routes
from queen.config import Settings
from queen.core.errors import QueenError, SettingError
from queen.core.job_type import JobType
from queen.core.limits import (
    ADMINISTRATION_LOCK_WAIT_S,
    BACKGROUND_LOCK_WAIT_S,
    CHECKS_PER_S,
    FILES_BESIDE_WAITERS,
    LOCK_WAIT_S,
    REPLAY_CALL_S,
)
from queen.core.metrics import WorkerState
from queen.core.placement import Shard, lease_on
from queen.engine.context import Context, ignore_notification
from queen.engine.engine import Engine, Shares
from queen.engine.failover import Failover
from queen.engine.handle import Assemble, Assembled, EngineHandle
from queen.engine.handlers.configuration import go_on_with_begun
from queen.engine.job import Job
from queen.engine.job_queue import JobQueue
from queen.engine.job_specs import JOB_SPECS
from queen.engine.metadata_cache import MetadataCache
from queen.engine.notifications import NotificationHub, new_origin
from queen.engine.outbox import Outbox
from queen.engine.ports import Notification, Notify, Transport
from queen.engine.prefetch import Prefetch
from queen.engine.prefetched_leases import LEASES_OF_WORKERS
from queen.engine.push_options import keep_for_spool
from queen.engine.replay import Replay
from queen.engine.schedules import Schedules
from queen.engine.statistics_writer import StatisticsWriter
from queen.engine.switches import copy_switches
from queen.engine.timers import Timers
from queen.engine.waiters import Waiters
from queen.http.app import QueenApp, create_app
from queen.jobs.jobs import Chore, Schedule, Services
from queen.peers.siblings import SiblingsTransport, folder_of
from queen.peers.udp import UdpTransport
from queen.postgres.administration import AdministrationStore
from queen.postgres.dsn import Target, parse
from queen.postgres.health_probe import HealthProbe
from queen.postgres.maintenance import MaintenanceStore
from queen.postgres.notifications import PostgresTransport
from queen.postgres.outbox_store import OutboxStore
from queen.postgres.pool import Pool
from queen.postgres.spool_store import SpoolStore
from queen.postgres.store import Store
from queen.postgres.timers import DueTimersStore, SchedulesStore
from queen.security.keyring import Keyring
from queen.shards.assembly import assemble_shards
from queen.simple_mq import sqs_spool
from queen.simple_mq.background_jobs import background_jobs
from queen.simple_mq.interface import SimpleMq, Sqs
from queen.simple_mq.job_specs import SIMPLE_MQ_SPECS
from queen.simple_mq.sqs_storage import SqsSpoolStore
from queen.spool import place
from queen.spool.folder import DiskFolder
from queen.spool.spool import Limits, Spool

log = logging.getLogger("queen.spool")

#: All kinds of jobs.
SPECS = {**JOB_SPECS, **SIMPLE_MQ_SPECS}


#: How long an empty wait list stays, with several databases: consumers come back to all, and most have nothing.
LINGER_S = 2.0
#: Pause of a worker that does not lead, or could not move timers or fire schedules.
_TIMERS_S = 1.0


def _target(settings: Settings) -> Target:
    """The database. It is not contacted here, because a worker must also start while PostgreSQL is unavailable."""
    url = settings.database.url
    if not url:
        raise SettingError("No PostgreSQL: set DATABASE_URL or PG_HOST, or use `queen serve`, which includes one")
    target = parse(url, "queen", settings.database.connect_timeout_ms)
    return msgspec.structs.replace(target, pooled=settings.database.pooler == "yes")


def open_spool(settings: Settings, path: Path, installation: UUID) -> Spool:
    """The spool in a prepared folder."""
    limits = Limits(bytes_max=settings.spool.bytes_max, file_requests_max=settings.spool.file_requests)
    return Spool(DiskFolder(path), installation, limits)


async def _spool(settings: Settings, administration: AdministrationStore) -> Spool:
    """The spool of a worker. gunicorn's configuration has prepared it, because PostgreSQL may be unavailable here."""
    path = Path(settings.spool.folder)
    installation = place.installation_of(path) if settings.spool.folder else None
    if installation is None:
        installation = await administration.installation()
        path = place.claim(settings.spool.folder, settings.server.data_dir, installation)
    return open_spool(settings, path, installation)


def _pools(target: Target, settings: Settings) -> tuple[Pool, Pool, Pool, Pool]:
    """The pools of a worker: for messages, for administration, for the replay of the spool, for background jobs."""
    timeout_s, sizes = settings.database.statement_timeout_ms / 1000, settings.pool_sizes
    background = msgspec.structs.replace(target, application_name="queen background jobs")
    return (
        Pool(target, sizes.messages, timeout_s, LOCK_WAIT_S),
        Pool(target, sizes.rest, timeout_s, ADMINISTRATION_LOCK_WAIT_S, lock_turns=True),
        Pool(target, sizes.replay, min(timeout_s, REPLAY_CALL_S)),
        Pool(background, 1, timeout_s, BACKGROUND_LOCK_WAIT_S),
    )


def _store(pool: Pool, settings: Settings) -> Store:
    return Store(pool, settings.requests.pop_bytes_max, settings.policy(JobType.PUSH).items_max)


def _replay(
    settings: Settings, context: Context, failover: Failover, pool: Pool, target: Target, interval_s: float
) -> Replay:
    """The replay. Connections of a pooler have no time limit of their own, so each call sets it."""
    limit_s = REPLAY_CALL_S if target.pooled else None
    kinds = {sqs_spool.KIND: sqs_spool.SpooledSends(context, SqsSpoolStore(pool, limit_s))}
    return Replay(context, failover, SpoolStore(pool, limit_s), settings.spool.batch, interval_s, kinds)


@asynccontextmanager
async def _pool(target: Target, settings: Settings) -> AsyncIterator[Pool]:
    pool = Pool(target, settings.pool_sizes.replay, min(settings.database.statement_timeout_ms / 1000, REPLAY_CALL_S))
    try:
        yield pool
    finally:
        await pool.close()


async def peer_secret(settings: Settings) -> str:
    """The secret of the instances of a prepared database. Raises DatabaseUnavailableError."""
    async with _pool(_target(settings), settings) as pool:
        return await AdministrationStore(pool).peer_secret()


async def prepare_spool(settings: Settings) -> Path:
    """Prepares the spool and replays it before there is any traffic; returns its folder.

    Raises:
        SettingError: the folder cannot be used.
        DatabaseUnavailableError: PostgreSQL is unavailable.
    """
    async with _pool(_target(settings), settings) as pool:
        store, administration = Store(pool), AdministrationStore(pool)
        installation = await administration.installation()
        path = place.claim(settings.spool.folder, settings.server.data_dir, installation)
        spool = open_spool(settings, path, installation)
        try:
            spool.recover()
        except OSError as problem:
            raise SettingError(
                f"The spool in {path} cannot be recovered ({problem}). Repair the disk or free some space on "
                "it, then start again"
            ) from problem
        failover = Failover(spool)
        context = _context(settings, store, administration, failover, ignore_notification)
        await copy_switches(context)
        await keep_for_spool(context)
        if failover.spooling and not failover.maintenance:
            waiting = spool.state()
            log.warning("replaying the spool", extra={"messages": waiting.messages, "bytes": waiting.bytes})
            try:
                await _replay(settings, context, failover, pool, _target(settings), 0).drain()
            except (QueenError, OSError) as problem:
                log.error("The spool is not empty yet: %s", problem)  # noqa: TRY400 - it explains itself
    return path


def _context(
    settings: Settings,
    store: Store,
    administration: AdministrationStore,
    failover: Failover,
    notify: Notify,
    interfaces: Sequence[object] = (),
    prefetch: Prefetch | None = None,
    new_lease: Callable[[], UUID] = uuid4,
) -> Context:
    return Context(
        store,
        administration,
        MetadataCache(store, settings.engine.cached_partitions),
        notify,
        settings.database.retry_timeout_ms / 1000,
        failover,
        keys=Keyring.from_settings(settings.security.encryption_key, settings.security.encryption_old_keys),
        limit_s=settings.database.statement_timeout_ms / 1000,
        interfaces=interfaces,
        prefetch=prefetch,
        new_lease=new_lease,
    )


def _notifications(settings: Settings, target: Target, shard: str) -> tuple[NotificationHub, SiblingsTransport]:
    """All transports that the settings and the database allow; and the one to siblings."""
    secret, interval_s = settings.peers.secret.encode(), settings.peers.interval_ms / 1000
    origin = new_origin()
    siblings = SiblingsTransport(folder_of(os.getppid(), shard), origin)
    transports: list[Transport] = [siblings]
    if not target.pooled:
        transports.append(PostgresTransport(target, interval_s))
    if settings.peers.udp:
        transports.append(UdpTransport((settings.server.host, settings.peers.udp_port), settings.peers.udp, secret))
    if settings.peers.http:
        from queen.peers.http import HttpTransport  # noqa: PLC0415 - httpx takes a tenth of a start

        transports.append(HttpTransport(settings.peers.http, secret, interval_s))
    return NotificationHub(transports, relays=[siblings], origin=origin), siblings


def _health_probe(target: Target, failover: Failover, pools: Sequence[Pool]) -> HealthProbe:
    """Suspends the pools while PostgreSQL is unavailable."""

    def lost(reason: str) -> None:
        failover.unavailable = True
        for pool in pools:
            pool.suspend(reason)

    def found() -> None:
        failover.unavailable = False
        for pool in pools:
            pool.resume()

    return HealthProbe(target, lost, found, lambda: max(pool.answered_at for pool in pools))


def _waiters_max() -> int:
    """Maximum of long polls of this worker; each is an open file."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, files - FILES_BESIDE_WAITERS)


async def assemble_database(
    settings: Settings, answer: Callable[[Job, Any], None], shard: Shard | None = None
) -> Assembled:
    """Builds what a worker has for one database, in its own loop; ``shard``: which one, if there are several.

    Raises:
        QueenError: the database cannot be used; nothing stays open.
    """
    async with AsyncExitStack() as opened:
        return await _assemble_database(settings, answer, shard, opened)


async def _assemble_database(
    settings: Settings, answer: Callable[[Job, Any], None], shard: Shard | None, opened: AsyncExitStack
) -> Assembled:
    """The same; ``opened`` takes what is to be ended, and is left to the result."""
    target = _target(settings)
    pools = hot, cold, replaying, sweeping = _pools(target, settings)
    for pool in pools:
        opened.push_async_callback(pool.close)
    store, administration = _store(hot, settings), AdministrationStore(cold)
    failover = Failover(await _spool(settings, administration))
    opened.callback(failover.close)
    notifications, siblings = _notifications(settings, target, shard.name if shard else "")

    def notify(notification: Notification) -> None:
        engine.notify(notification)
        notifications.publish(notification)

    def receive_packet(packet: bytes) -> None:
        notifications.receive_packet(packet, relay=True)

    simple_mq, new_lease = SimpleMq.over(hot, cold), partial(lease_on, shard.slot) if shard else uuid4
    prefetch = Prefetch(LEASES_OF_WORKERS.mine, new_lease=new_lease)
    context = _context(
        settings,
        store,
        administration,
        failover,
        notify,
        [simple_mq, Sqs.over(hot, cold)],
        prefetch,
        new_lease,
    )
    # Behind a pooler there are no notifications of other instances, so each wait list needs its own checks.
    checks_per_s = CHECKS_PER_S if not target.pooled else 0
    delivery = settings.delivery
    linger_s = LINGER_S if shard else 0
    waiters = Waiters(delivery.poll_initial_ms, delivery.poll_max_ms, checks_per_s, siblings.set_waiting, linger_s)
    shares = Shares(hot.size, cold.size, _waiters_max())
    engine = Engine(
        context,
        lambda kind: JobQueue(settings.policy(kind), settings.limiter(kind)),
        waiters,
        shares,
        answer,
        SPECS,
    )
    siblings.receive_datagram = engine.lend_through(siblings)
    probe = _health_probe(target, failover, pools)
    interval_s = settings.spool.interval_ms / 1000
    replay = _replay(settings, context, failover, replaying, target, interval_s)
    await notifications.start(engine.notify, engine.missed)
    opened.push_async_callback(notifications.stop)
    probe.start()
    opened.push_async_callback(probe.stop)
    replay.start()
    opened.push_async_callback(replay.stop)
    opened.push_async_callback(simple_mq.outcomes.close)

    def state() -> WorkerState:
        return WorkerState(
            hot.open + cold.open, hot.idle + cold.idle, engine.queued, engine.waiting, engine.waiting_by_queue,
            engine.connected,
        )  # fmt: skip

    context.state, context.database_answers = state, probe.answers
    keep = timedelta(days=settings.jobs.metrics_days)
    statistics_writer = StatisticsWriter(
        context.counters, administration.statistics, state, settings.jobs.metrics_interval_ms / 1000, keep
    )
    context.clock, context.report = lambda: statistics_writer.clock, statistics_writer.report
    statistics_writer.start()
    opened.push_async_callback(statistics_writer.stop)
    services = _services(sweeping, replaying, settings, context)
    services.start()
    opened.push_async_callback(services.stop)
    outbox = Outbox(context, OutboxStore(replaying), engine, lambda: services.leadership.held)
    outbox.start()
    opened.push_async_callback(outbox.stop)
    return Assembled(engine, context, receive_packet, opened.pop_all().aclose, replay.store)


def assembly(settings: Settings) -> Assemble:
    """Builds the engine of a worker, in its own loop; with several databases, one for each."""

    async def assemble(answer: Callable[[Job, Any], None]) -> Assembled:
        if settings.database.shards:
            assembled = await assemble_shards(settings, answer, assemble_database, SPECS)
        else:
            assembled = await assemble_database(settings, answer)
        assembled.engine.take_over(LEASES_OF_WORKERS.take_left())
        return assembled

    return assemble


def _services(pool: Pool, moving: Pool, settings: Settings, context: Context) -> Services:
    """The background jobs, with their intervals and batch sizes; ``moving`` has connections for timers."""
    jobs = settings.jobs
    schedule = Schedule(
        jobs.retention_interval_ms / 1000, jobs.retention_batch, jobs.eviction_interval_ms / 1000,
        jobs.eviction_batch, timedelta(days=jobs.partition_cleanup_days),
    )  # fmt: skip
    maintenance = MaintenanceStore(pool)
    timers = Timers(context, DueTimersStore(moving), lambda: services.leadership.held)
    schedules = Schedules(SchedulesStore(moving), lambda: services.leadership.held)
    chores = [
        Chore("clean-up", schedule.retention_interval_s, partial(go_on_with_begun, context)),
        Chore("timers", _TIMERS_S, timers.run),
        Chore("schedules", _TIMERS_S, schedules.run),
        *background_jobs(context, maintenance, settings),
    ]
    services = Services(maintenance, schedule, chores)
    return services


def create(settings: Settings) -> QueenApp:
    """The ASGI application of a worker process."""
    own_loop = uvloop.new_event_loop if settings.engine.home == "thread" else None
    if settings.telemetry.on:
        # Optional; costs nothing when off.
        from queen.telemetry.app import create_traced_app  # noqa: PLC0415
        from queen.telemetry.engine import TracedEngine  # noqa: PLC0415

        return create_traced_app(settings, TracedEngine(assembly(settings), own_loop))
    return create_app(settings, EngineHandle(assembly(settings), own_loop), routes)
