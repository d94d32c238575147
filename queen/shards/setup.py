"""Prepares the databases of DATABASE_URLS at the start: their list, and where the spool of each is."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from queen.core.errors import DatabaseUnavailableError, SettingError
from queen.core.placement import ShardList, first_list
from queen.postgres import shard_list
from queen.postgres.dsn import Target
from queen.postgres.shard_list import Stored

#: The list as this machine knew it last, in the folder of the spools: for a start while all databases are down.
_FILE = "shards.json"


class Known(Struct, frozen=True):
    """The list of shards, and the version that places partitions."""

    shards: ShardList
    opened: int


async def look(targets: Mapping[str, Target]) -> tuple[dict[str, Stored], dict[str, DatabaseUnavailableError]]:
    """What each database knows; and the unreachable ones."""
    answers = await asyncio.gather(*[_read(target) for target in targets.values()])
    pairs = list(zip(targets, answers, strict=True))
    return (
        {name: answer for name, answer in pairs if isinstance(answer, Stored)},
        {name: answer for name, answer in pairs if isinstance(answer, DatabaseUnavailableError)},
    )


async def _read(target: Target) -> Stored | DatabaseUnavailableError:
    try:
        return await shard_list.read(target)
    except DatabaseUnavailableError as problem:
        return problem


def newest(stored: Mapping[str, Stored]) -> Known | None:
    """The newest list among those of the databases."""
    known = [Known(each.shards, each.opened) for each in stored.values() if each.shards is not None]
    return max(known, key=lambda each: (each.shards.version, each.opened), default=None)


async def prepare(targets: Mapping[str, Target], folder: Path) -> Known:
    """The list of shards, stored in each reachable database; it is made at the first start.

    Raises:
        SettingError: the names contradict the list.
        DatabaseUnavailableError: none is reachable and this machine does not know the list, or it is the first start
            and one is unreachable.
        DatabaseSetupError: a database is another shard than its name says.
    """
    stored, missing = await look(targets)
    known = newest(stored) or (_remembered(folder) if len(missing) == len(targets) else None)
    if known is None:
        if missing:
            raise next(iter(missing.values()))
        shards = first_list(list(targets), [name for name, each in stored.items() if each.populated])
        known = Known(shards, shards.version)
    check_names(known.shards, list(targets))
    for name in stored:
        if known.shards.slot(name) is not None:
            await shard_list.store(targets[name], known.shards, name, known.opened)
    remember(folder, known)
    return known


def check_names(shards: ShardList, names: Sequence[str]) -> None:
    """Raises SettingError if DATABASE_URLS lacks a database that has messages."""
    for shard in shards.shards:
        if shard.name not in names:
            raise SettingError(
                f"DATABASE_URLS lacks {shard.name!r}, one of the databases of this installation: add it, as NAME=URL"
            )


def remember(folder: Path, known: Known) -> None:
    """Keeps the list on this machine."""
    new = folder / f"{_FILE}.new"
    new.write_bytes(msgspec.json.encode(known))
    new.rename(folder / _FILE)


def _remembered(folder: Path) -> Known | None:
    try:
        return msgspec.json.decode((folder / _FILE).read_bytes(), type=Known)
    except (OSError, msgspec.DecodeError):
        return None
