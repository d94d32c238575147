"""Builds the engines of all shards of a worker, and the router before them."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from queen.config import Settings
from queen.core.errors import QueenError
from queen.core.job_type import JobType
from queen.core.placement import Shard, ShardList
from queen.engine.context import Context
from queen.engine.handle import Assembled, JobTaker
from queen.engine.job import Job
from queen.engine.job_specs import JobSpec
from queen.engine.lane_store import LaneStore
from queen.postgres import shard_list
from queen.postgres.dsn import Target, parse
from queen.shards.context import ShardedContext
from queen.shards.division import FIRST
from queen.shards.homes import Homes
from queen.shards.rerouting import Rerouting
from queen.shards.router import Router, Shards
from queen.shards.setup import REFRESH_S, newest, prepare, remember
from queen.spool import place

log = logging.getLogger("queen.shards")


class AssembleDatabase(Protocol):
    """Builds what a worker has for one database."""

    async def __call__(  # noqa: D102
        self, settings: Settings, answer: Callable[[Job, Any], None], shard: Shard | None
    ) -> Assembled: ...


def targets_of(settings: Settings) -> dict[str, Target]:
    """The databases by name. None is contacted here."""
    timeout_ms = settings.database.connect_timeout_ms
    return {name: parse(url, "queen", timeout_ms) for name, url in settings.database.shards}


class Workshop:
    """Builds what a worker has for each shard, also for those that are added while it runs.

    Args:
        settings: of the worker.
        assemble: builds what it has for one database.
        router: gets the answers.
        known: the list of shards.
    """

    def __init__(self, settings: Settings, assemble: AssembleDatabase, router: Router, known: ShardList) -> None:
        self._settings, self._assemble, self._router = settings, assemble, router
        self.spools = Path(settings.spool.folder)
        self.assembled: dict[int, Assembled] = {}
        self.contexts: dict[int, Context] = {}
        self.engines: dict[int, JobTaker] = {}
        self.homes = Homes(known, self.contexts, settings.engine.cached_partitions)
        self._lane_stores: dict[int, LaneStore] = {}
        self._problems: dict[int, str] = {}
        self._rerouting = Rerouting(self.homes, self._lane_stores)

    async def build(self, shard: Shard) -> None:
        """Builds what is needed for a shard.

        Raises:
            QueenError: its database cannot be used.
        """
        folder = self.spools / shard.name
        place.make(folder)
        settings = self._settings.of_shard(shard.name, str(folder))
        done = await self._assemble(settings, self._router.answered, shard)
        self.assembled[shard.slot] = done
        self.contexts[shard.slot], self.engines[shard.slot] = done.context, done.engine
        if done.lane_store is not None:
            self._lane_stores[shard.slot] = done.lane_store
            done.lane_store.elsewhere = self._rerouting.store

    async def build_missing(self, shards: ShardList) -> None:
        """Builds what a list has and this worker has not; called again and again, and logs each problem once."""
        for shard in shards.in_use:
            if shard.slot in self.assembled:
                continue
            problem = await self._try_to_build(shard)
            if problem and problem != self._problems.get(shard.slot):
                log.error("Database %s cannot be used yet: %s", shard.name, problem)
            self._problems[shard.slot] = problem

    async def _try_to_build(self, shard: Shard) -> str:
        """Why it could not be built; nothing if it was."""
        if shard.name not in dict(self._settings.database.shards):
            return "DATABASE_URLS of this server lacks it, and it is a shard now: restart the server with it"
        try:
            await self.build(shard)
        except QueenError as problem:
            return str(problem)
        return ""

    async def tell(self, known: ShardList, slots: Sequence[int]) -> None:
        """Stores the list in databases with an older one: they come from a backup, or a change goes on."""
        targets = targets_of(self._settings)
        for slot in slots:
            name = known.shards[slot].name
            try:
                await shard_list.store(targets[name], known, name)
            except QueenError as problem:
                log.warning("Database %s could not be told the list of databases: %s", name, problem)


async def _follow(workshop: Workshop) -> None:
    """Reads the list from time to time, and takes part in its changes."""
    while True:
        await asyncio.sleep(REFRESH_S)
        try:
            await _look(workshop)
        except Exception:
            log.exception("The list of databases could not be read; it is read again")


async def _look(workshop: Workshop) -> None:
    homes, lists = workshop.homes, await _lists(workshop.contexts)
    known = newest(list(lists.values()))
    if known is None:
        return
    await workshop.build_missing(known)
    if (known.version, known.opened) > (homes.shards.version, homes.shards.opened):
        homes.shards = known
        remember(workshop.spools, known)
    await workshop.tell(known, [slot for slot, each in lists.items() if each != known])
    await homes.refresh_moves()


async def _lists(contexts: Mapping[int, Context]) -> dict[int, ShardList]:
    """The list as each database has it that can be asked."""
    asked = {slot: context.administration.shards() for slot, context in contexts.items() if not context.unavailable}
    answers = await asyncio.gather(*asked.values(), return_exceptions=True)
    return {slot: answer for slot, answer in zip(asked, answers, strict=True) if isinstance(answer, ShardList)}


async def assemble_shards(
    settings: Settings,
    answer: Callable[[Job, Any], None],
    assemble: AssembleDatabase,
    specs: Mapping[JobType, JobSpec],
) -> Assembled:
    """The engines of all shards behind a router; the master has prepared databases and spools.

    A shard that was added since may be unavailable: it is built later. The first one cannot.
    """
    router = Router(answer)
    known = await prepare(targets_of(settings), Path(settings.spool.folder))
    workshop = Workshop(settings, assemble, router, known)
    await workshop.build(known.shards[FIRST])
    await workshop.build_missing(known)
    homes = workshop.homes
    await homes.refresh_moves()
    context = ShardedContext(workshop.contexts, homes)
    router.begin(Shards(workshop.engines, workshop.contexts, homes, lambda work: work(context), specs))
    following = asyncio.create_task(_follow(workshop))

    def receive_packet(packet: bytes) -> None:
        for each in workshop.assembled.values():
            each.receive_packet(packet)

    async def close() -> None:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        for each in workshop.assembled.values():
            await each.close()

    return Assembled(router, context, receive_packet, close)
