"""The background jobs of a worker: each runs at its interval while the worker leads."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from msgspec import Struct

from queen.core.errors import DatabaseUnavailableError, TooSlowError
from queen.jobs.leadership import RENEWAL_S, Leadership
from queen.jobs.ports import Maintenance
from queen.jobs.sweep import Pacer, Service, sweep

log = logging.getLogger("queen.jobs")

#: Interval of checks of PostgreSQL's clock: a step that is undone within it may go unnoticed.
CLOCK_S = 1.0
#: Pause between two rounds of counting full queues.
COUNT_S = 1.0


class Schedule(Struct, frozen=True):
    """Intervals of the background jobs, and sizes of their transactions.

    Attributes:
        retention_batch, eviction_batch: maximum of messages per transaction.
        partition_idle: time from the last push to the removal of an empty partition.
    """

    retention_interval_s: float
    retention_batch: int
    eviction_interval_s: float
    eviction_batch: int
    partition_idle: timedelta


def services_of(database: Maintenance, schedule: Schedule) -> list[Service]:
    """All services."""

    def removing(name: str, interval_s: float) -> Service:
        return Service(
            name, interval_s, database.find_expired,
            lambda queue_id, places, wait: database.remove_expired(queue_id, places, schedule.retention_batch, wait),
        )  # fmt: skip

    return [
        removing("retention", schedule.retention_interval_s),
        removing("expiry", schedule.eviction_interval_s),
        Service(
            "eviction", schedule.eviction_interval_s, database.find_overdue,
            lambda queue_id, places, wait: database.evict_overdue(queue_id, places, schedule.eviction_batch, wait),
        ),
        Service(
            "clean-up", schedule.retention_interval_s,
            lambda queue_id, after, limit: database.find_idle(queue_id, after, limit, schedule.partition_idle),
            lambda queue_id, places, _wait: database.remove_idle(queue_id, places, schedule.partition_idle),
        ),
    ]  # fmt: skip


class Chore(Struct, frozen=True):
    """Another job of the leader; safe to run twice at once. ``interval_s`` is the pause between two runs."""

    name: str
    interval_s: float
    run: Callable[[], Awaitable[None]]


class Services:
    """Runs the background jobs in the engine's loop, on a connection of its own.

    Args:
        database: the procedures.
        schedule: intervals and sizes.
        chores: other jobs of the leader, on the caller's connections.
        clock: monotonic, in seconds.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        database: Maintenance,
        schedule: Schedule,
        chores: Sequence[Chore] = (),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._database = database
        self._clock, self._sleep = clock, sleep
        self.leadership = Leadership(database, clock)
        watching = Chore("clock", CLOCK_S, self._watch_clock)
        forgetting = Chore("clean-up", schedule.retention_interval_s, database.forget_fenced_flushes)
        purging = Chore("clean-up", schedule.retention_interval_s, self._purge)
        sweeping = map(self._sweeping, services_of(database, schedule))
        counting = Chore("count of full queues", COUNT_S, self._count)
        self._chores = [watching, *sweeping, forgetting, purging, counting, *chores]
        self._tasks: Sequence[asyncio.Task[None]] = ()

    def start(self) -> None:
        """Starts the jobs; they run in this loop until ``stop``."""
        loop = asyncio.get_running_loop()
        leading = self._repeat(Chore("leadership", RENEWAL_S, self.leadership.renew), first_s=0.0)
        chores = [self._repeat(self._if_leading(chore), chore.interval_s) for chore in self._chores]
        self._tasks = [loop.create_task(work) for work in (leading, *chores)]

    async def stop(self) -> None:
        """Stops the jobs, so that another worker can take over."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self.leadership.resign()
        except (DatabaseUnavailableError, TooSlowError) as problem:
            log.info("The lease on the background jobs could not be released and expires by itself: %s", problem)

    async def _purge(self) -> None:
        """Removes the rest of interrupted deletions."""
        while self.leadership.held and await self._database.purge_partitions():
            pass

    async def _count(self) -> None:
        """Counts queues that were too large to count during a push; for at most a quarter of the time."""
        more = True
        while more and self.leadership.held:
            began = self._clock()
            more = await self._database.count_backlog()
            await self._sleep(3 * (self._clock() - began))

    async def _watch_clock(self) -> None:
        step = await self.leadership.look_at_clock()
        pacer = Pacer(self._clock, self._sleep, CLOCK_S)
        more = step.repairs
        while more and self.leadership.held:
            began = self._clock()
            more = await self._database.repair_times()
            await pacer.rest(began)
        if step.repairs and not more:
            log.warning("Times that the clock had left in the future were repaired")

    def _sweeping(self, service: Service) -> Chore:
        async def run() -> None:
            queue_ids = await self._database.find_queues(service.name)
            pacer = Pacer(self._clock, self._sleep, service.interval_s)
            total = await sweep(service, queue_ids, pacer, lambda: self.leadership.held)
            if total:
                log.info("%s", service.name, extra={"count": total})

        return Chore(service.name, service.interval_s, run)

    def _if_leading(self, chore: Chore) -> Chore:
        async def run() -> None:
            if self.leadership.held:
                await chore.run()

        return Chore(chore.name, chore.interval_s, run)

    async def _repeat(self, chore: Chore, first_s: float) -> None:
        """Runs a job at its interval; a failure is logged, and the next run tries again."""
        await self._sleep(first_s)
        while True:
            try:
                await chore.run()
            except (DatabaseUnavailableError, TooSlowError) as problem:
                log.warning("%s could not run: %s", chore.name, problem)
            except Exception:
                log.exception("%s failed", chore.name)
            await self._sleep(chore.interval_s)
