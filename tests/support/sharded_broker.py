"""Engines over several databases behind their router, as the model sees them."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

from queen.config import Settings
from queen.core.administration import Registration, Seek
from queen.core.errors import ConflictError
from queen.core.job_type import JobType
from queen.core.placement import first_list, lease_on
from queen.engine.context import Context, ignore_notification
from queen.engine.engine import Engine, Shares
from queen.engine.handlers.configuration import begin_everywhere
from queen.engine.handlers.consumer_groups import seek_group, update_subscription
from queen.engine.handlers.give_up import give_up
from queen.engine.handlers.pause import pause
from queen.engine.handlers.removal import delete_group_of_queues, delete_message
from queen.engine.handlers.streams import register_stream
from queen.engine.job import Job
from queen.engine.job_queue import JobQueue
from queen.engine.job_specs import JOB_SPECS
from queen.engine.metadata_cache import MetadataCache
from queen.engine.waiters import Waiters
from queen.jobs.jobs import Schedule, services_of
from queen.postgres import shard_list
from queen.postgres.administration import AdministrationStore
from queen.postgres.dsn import parse
from queen.postgres.maintenance import MaintenanceStore
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from queen.postgres.store import Store
from queen.shards.context import ShardedContext
from queen.shards.homes import Homes
from queen.shards.router import Router, Shards
from spec import model
from spec.model.state import Lane
from tests.support.broker import RETENTION_BATCH, Broker, at


class SpansError(Exception):
    """An operation that would have to be atomic over several databases was refused."""


class ShardedBroker(Broker):
    """A broker over several databases; they must be empty."""

    def __init__(self, databases: Mapping[str, str]) -> None:
        self._connections = 1
        self._runner = asyncio.Runner()
        self._run(self._open_all(databases))

    async def _open_all(self, databases: Mapping[str, str]) -> None:
        self.shards = first_list(list(databases), [])
        self._pools: list[Pool] = []
        for name, dsn in databases.items():
            await prepare(dsn, 5000)
            target = parse(dsn, "queen test", 5000)
            await shard_list.store(target, self.shards, name)
            self._pools.append(Pool(target, 1, 30))
        self._begin()

    def _begin(self) -> None:
        """New engines, which know nothing of what was before."""
        router = Router(_settle)
        contexts, engines = {}, {}
        for slot, pool in enumerate(self._pools):
            store = Store(pool)
            contexts[slot] = Context(
                store, AdministrationStore(pool), MetadataCache(store, 1000), ignore_notification, 5,
                new_lease=lambda slot=slot: lease_on(slot),
            )  # fmt: skip
            engines[slot] = _engine(contexts[slot], router)
            contexts[slot].notify = engines[slot].notify
        homes = Homes(self.shards, contexts, 1000)
        self._context: Any = ShardedContext(contexts, homes)
        self._contexts, self._router = contexts, router
        router.begin(Shards(engines, contexts, homes, lambda work: work(self._context), JOB_SPECS))

    def close(self) -> None:
        for pool in self._pools:
            self._run(pool.close())
        self._runner.close()

    def reset(self) -> None:
        self.query("DELETE FROM queen.queues")
        self.query("DELETE FROM queen.streams")
        self._streams = {}
        self._run(self._restart())

    async def _restart(self) -> None:
        self._begin()

    async def _set_clock(self, now: float) -> None:
        async with AsyncExitStack() as held:
            for pool in self._pools:
                connection = await held.enter_async_context(pool.connection())
                await connection.execute("SELECT set_config('queen.clock', $1, false)", at(now).isoformat())

    def query(self, sql: str, *arguments: object) -> list[Any]:
        """The rows of all databases."""
        return [row for pool in self._pools for row in self._run(pool.fetch(sql, *arguments))]

    def home(self, lane: Lane) -> str:
        """The database of a partition."""
        return self.shards.home(*lane)

    async def _ask(self, kind: JobType, request: Any) -> Any:
        job = Job(kind, request, asyncio.get_running_loop().create_future())
        self._router.accept([job])
        try:
            answer = await job.future
        except ConflictError as problem:
            raise SpansError from problem
        if "several databases" in (getattr(answer, "problem", None) or ""):
            raise SpansError
        return answer

    async def _part_id(self, queue: str, partition: str) -> int | None:
        context = await self._context.home(queue, partition)
        [(_queue_id, part_id)] = await context.database.resolve_partitions([(queue, partition)], create=False)
        return part_id  # type: ignore[no-any-return]

    async def _tidy(self, operation: model.RemoveExpired | model.EvictOverdue | model.RemoveIdle) -> model.Outcome:
        outcomes = [await self._tidy_one(pool, operation) for pool in self._pools]
        if isinstance(operation, model.EvictOverdue):
            # Eviction of a queue without a group lets queue mode begin, on that database only.
            await begin_everywhere(self._context, operation.queue, model.QUEUE_MODE)
        match outcomes[0]:
            case model.Removed():
                return model.Removed({name: offset for each in outcomes for name, offset in each.oldest.items()})  # type: ignore[union-attr]
            case model.Evicted():
                return model.Evicted(sum(each.count for each in outcomes))  # type: ignore[union-attr]
        return model.Cleaned(frozenset().union(*[each.partitions for each in outcomes]))  # type: ignore[union-attr]

    async def _tidy_one(self, pool: Pool, operation: Any) -> model.Outcome:
        self._pool = pool
        schedule = Schedule(1, RETENTION_BATCH, 1, RETENTION_BATCH, timedelta())
        self._services = {s.name: s for s in services_of(MaintenanceStore(pool), schedule)}
        return await super()._tidy(operation)

    async def _administer(self, operation: model.Operation) -> model.Outcome:
        context = self._context
        match operation:
            case model.DeleteMessage():
                return model.DeletedMessage(await delete_message(context, await self._key(operation)))
            case model.GiveUp():
                moved = await give_up(context, await self._key(operation), operation.group, operation.error)
                return model.GivenUp(moved.known, frozenset(moved.groups or ()) if moved.known else frozenset())
            case model.Seek():
                since = at(operation.since) if operation.since > float("-inf") else None
                seek = Seek(operation.group, operation.queue, operation.partition, operation.to_end, since)
                return model.SeekResult((await seek_group(context, seek)).updated)
            case model.UpdateSubscription():
                known = await context.everywhere(
                    lambda each: update_subscription(each, operation.queue, operation.group, at(operation.since))
                )
                return model.UpdatedSubscription(any(known))
            case model.DeleteGroup():
                name, group, subscription = operation.queue, operation.group, operation.subscription
                return model.DeletedGroup(await delete_group_of_queues(context, group, name, subscription=subscription))
            case model.Pause():
                return model.Paused(await pause(context, operation.queue, operation.group, paused=operation.paused))
        raise AssertionError(operation)

    async def _register(self, operation: model.Register) -> model.Registered:
        registration = Registration(operation.stream, "source", operation.chain, reset=operation.reset)
        registered = await register_stream(self._context, registration)
        self._streams[operation.stream] = registered.stream
        return model.Registered(registered.fresh, registered.conflict)


def _engine(context: Context, router: Router) -> Engine:
    settings = Settings()
    return Engine(
        context,
        lambda kind: JobQueue(settings.policy(kind), settings.limiter(kind)),
        Waiters(100, 1000),
        Shares(1, 1, 1000),
        router.answered,
    )


def _settle(job: Job, result: Any) -> None:
    if isinstance(result, BaseException):
        job.future.set_exception(result)
    else:
        job.future.set_result(result)
