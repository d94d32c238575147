"""Prepares the databases and their spools before the first worker starts."""

import asyncio
import logging
from pathlib import Path

import msgspec

from queen.config import Settings
from queen.core.errors import DatabaseUnavailableError
from queen.main import prepare_spool
from queen.postgres.setup import DatabaseInfo, prepare
from queen.shards import setup
from queen.shards.assembly import targets_of
from queen.spool import place

log = logging.getLogger("queen.databases")


async def prepare_shards(settings: Settings) -> tuple[DatabaseInfo, Path]:
    """Prepares the reachable ones of several databases; what is known of one of them, and the folder of the spools.

    Raises:
        DatabaseUnavailableError: one is unreachable that was never used on this machine, or all at the first start.
        QueenError: one cannot be used.
    """
    timeout_ms = settings.database.connect_timeout_ms
    found = await asyncio.gather(
        *[_prepared(name, url, timeout_ms) for name, url in settings.database.shards], return_exceptions=False
    )
    infos = dict(zip(dict(settings.database.shards), found, strict=True))
    folder = Path(settings.spool.folder) if settings.spool.folder else place.default_parent(settings.server.data_dir)
    place.make(folder)
    known = await setup.prepare(targets_of(settings), folder)
    for shard in known.in_use:
        await _prepare_spool(settings, folder, shard.name, infos[shard.name])
    reached = [info for info in infos.values() if isinstance(info, DatabaseInfo)]
    if not reached:
        return DatabaseInfo("unknown", "several databases, none of them reachable", pooled=False), folder
    places = "; ".join(f"{name}: {info.place}" for name, info in infos.items() if isinstance(info, DatabaseInfo))
    return msgspec.structs.replace(reached[0], place=places, pooled=any(info.pooled for info in reached)), folder


async def _prepared(name: str, url: str, timeout_ms: int) -> DatabaseInfo | DatabaseUnavailableError:
    try:
        return await prepare(url, timeout_ms)
    except DatabaseUnavailableError as problem:
        log.warning("Database %s is unavailable: %s", name, problem)
        return problem


async def _prepare_spool(
    settings: Settings, folder: Path, name: str, info: DatabaseInfo | DatabaseUnavailableError
) -> None:
    place.make(folder / name)
    if isinstance(info, DatabaseInfo):
        await prepare_spool(settings.of_shard(name, str(folder / name)))
    elif place.installation_of(folder / name) is None:
        raise info
