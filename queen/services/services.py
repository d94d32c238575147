"""The services of a worker: each sweeps at its interval, while the worker leads."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from msgspec import Struct

from queen.core.errors import DatabaseUnavailableError
from queen.services.leadership import RENEWAL_S, Leadership
from queen.services.ports import Maintenance
from queen.services.sweep import Pacer, Service, sweep

log = logging.getLogger("queen.services")


class Schedule(Struct, frozen=True):
    """How often the services run, and how much each of their transactions does.

    Attributes:
        retention_batch, eviction_batch: messages.
        partition_idle: how long after its last push an empty partition is removed.
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
            lambda queue_id, places, wait: database.remove_expired(
                queue_id, places, schedule.retention_batch, wait=wait
            ),
        )  # fmt: skip

    return [
        removing("retention", schedule.retention_interval_s),
        removing("expiry", schedule.eviction_interval_s),
        Service(
            "eviction", schedule.eviction_interval_s, database.find_overdue,
            lambda queue_id, places, wait: database.evict_overdue(queue_id, places, schedule.eviction_batch, wait=wait),
        ),
        Service(
            "clean-up", schedule.retention_interval_s,
            lambda queue_id, after, limit: database.find_idle(queue_id, after, limit, schedule.partition_idle),
            lambda queue_id, places, _wait: database.remove_idle(queue_id, places, schedule.partition_idle),
        ),
    ]  # fmt: skip


class Services:
    """Runs in the engine's loop, on a connection of its own.

    Args:
        database: the procedures.
        schedule: what runs when.
        clock: seconds, never set back.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        database: Maintenance,
        schedule: Schedule,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._database = database
        self._services = services_of(database, schedule)
        self._retention_interval_s = schedule.retention_interval_s
        self._pacer, self._sleep = Pacer(clock, sleep), sleep
        self.leadership = Leadership(database, clock)
        self._tasks: Sequence[asyncio.Task[None]] = ()

    def start(self) -> None:
        """Begins; the services run in this loop until ``stop``."""
        loop = asyncio.get_running_loop()
        forgetting = self._if_leading(self._database.forget_fenced_flushes)
        self._tasks = [
            loop.create_task(self._repeat("leadership", RENEWAL_S, self.leadership.renew, first_s=0.0)),
            loop.create_task(self._repeat("clean-up", self._retention_interval_s, forgetting)),
            *[
                loop.create_task(self._repeat(service.name, service.interval_s, self._sweeping(service)))
                for service in self._services
            ],
        ]  # fmt: skip

    async def stop(self) -> None:
        """Ends the services, and lets another worker take over."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self.leadership.resign()
        except DatabaseUnavailableError as problem:
            log.info("The lead of the services ends by itself: %s", problem)

    def _sweeping(self, service: Service) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            queue_ids = await self._database.find_queues(service.name)
            total = await sweep(service, queue_ids, self._pacer, lambda: self.leadership.held)
            if total:
                log.info("%s", service.name, extra={"count": total})

        return self._if_leading(run)

    def _if_leading(self, work: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            if self.leadership.held:
                await work()

        return run

    async def _repeat(
        self, name: str, interval_s: float, work: Callable[[], Awaitable[None]], first_s: float | None = None
    ) -> None:
        """Does the work at its interval; a failure is logged, and the next turn tries again."""
        await self._sleep(interval_s if first_s is None else first_s)
        while True:
            try:
                await work()
            except DatabaseUnavailableError as problem:
                log.warning("%s could not run: %s", name, problem)
            except Exception:
                log.exception("%s failed", name)
            await self._sleep(interval_s)
