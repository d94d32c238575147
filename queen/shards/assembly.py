"""Builds the engines of all shards of a worker, and the router before them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from queen.config import Settings
from queen.core.job_type import JobType
from queen.engine.handle import Assembled
from queen.engine.job import Job
from queen.engine.job_specs import JobSpec
from queen.postgres.dsn import Target, parse
from queen.shards.context import ShardedContext
from queen.shards.homes import Homes
from queen.shards.router import Router, Shards
from queen.shards.setup import prepare


class AssembleDatabase(Protocol):
    """Builds what a worker has for one database."""

    async def __call__(self, settings: Settings, answer: Callable[[Job, Any], None], shard: str) -> Assembled: ...


def targets_of(settings: Settings) -> dict[str, Target]:
    """The databases by name. None is contacted here."""
    timeout_ms = settings.database.connect_timeout_ms
    return {name: parse(url, "queen", timeout_ms) for name, url in settings.database.shards}


async def assemble_shards(
    settings: Settings,
    answer: Callable[[Job, Any], None],
    assemble: AssembleDatabase,
    specs: dict[JobType, JobSpec],
) -> Assembled:
    """The engines of all shards behind a router; the master has prepared databases and spools."""
    spools = Path(settings.spool.folder)
    known = await prepare(targets_of(settings), spools)
    router = Router(answer)
    assembled = {
        shard.slot: await assemble(settings.of_shard(shard.name, str(spools / shard.name)), router.answered, shard.name)
        for shard in known.shards.shards
    }
    contexts = {slot: each.context for slot, each in assembled.items()}
    homes = Homes(known.shards, contexts, settings.engine.cached_partitions)
    context = ShardedContext(contexts, homes)
    router.begin(
        Shards(
            {slot: each.engine for slot, each in assembled.items()}, contexts, homes, lambda work: work(context), specs
        )
    )

    def receive_packet(packet: bytes) -> None:
        for each in assembled.values():
            each.receive_packet(packet)

    async def close() -> None:
        for each in assembled.values():
            await each.close()

    return Assembled(router, context, receive_packet, close)
