"""The list of shards: made at the first start, stored in every database, and changed in two steps."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from queen.core.errors import ConflictError, DatabaseUnavailableError, SettingError
from queen.core.placement import ShardList, first_list
from queen.postgres import shard_list
from queen.postgres.dsn import UNREACHABLE, Target
from queen.postgres.setup import open_connection
from queen.postgres.shard_list import Stored

if TYPE_CHECKING:
    import asyncpg

log = logging.getLogger("queen.shards")

#: The list as this machine knew it last, in the folder of the spools: for a start while all databases are down.
_FILE = "shards.json"
#: How often a worker reads the list, in seconds.
REFRESH_S = 1.0
#: How long a change waits between its two steps, in seconds: all workers have read it then.
SETTLED_S = 5 * REFRESH_S
#: The advisory lock of commands.
_LOCK = 0x71_73_68_61_72_64  # "qshard"
_CLOSE_S = 5.0


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


def newest(lists: Sequence[ShardList | None]) -> ShardList | None:
    """The newest list among those of the databases."""
    known = [each for each in lists if each is not None]
    return max(known, key=lambda each: (each.version, each.opened), default=None)


async def prepare(targets: Mapping[str, Target], folder: Path) -> ShardList:
    """The list of shards, stored in each reachable database; it is made at the first start.

    Raises:
        SettingError: the names contradict the list.
        DatabaseUnavailableError: one is unreachable, and neither the others nor this machine know the list.
        DatabaseSetupError: a database is another shard than its name says.
    """
    stored, missing = await look(targets)
    found = newest([each.shards for each in stored.values()]) or (_remembered(folder) if missing else None)
    if found is None and missing:
        raise next(iter(missing.values()))
    known = found or first_list(list(targets), [name for name, each in stored.items() if each.populated])
    check_names(known, targets)
    for name in stored:
        try:
            await _store(known, {name: targets[name]})
        except DatabaseUnavailableError:
            if found is None:
                raise  # the first list must be in all of them; a later one is stored by workers when it is up again
    remember(folder, known)
    return known


async def change(
    targets: Mapping[str, Target],
    make: Callable[[ShardList], ShardList],
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> ShardList:
    """Changes the list in all databases; repeating it takes up a change that was interrupted.

    First every database learns the new list, and none makes a partition any more that the two lists place differently.
    When all workers know it too, an added database gets what the others know of queues, groups, streams and switches:
    from here on, workers change these there, too. Then the new list places partitions.

    Raises:
        SettingError: the change is not possible.
        DatabaseUnavailableError: a database is unreachable; nothing was changed.
        ConflictError: another command is under way.
    """
    async with alone(targets) as known:
        new = make(known) if known.opened == known.version else known
        check_names(new, targets)
        await _store(new, targets)
        await pause(SETTLED_S)
        for shard in new.shards:
            if shard.added_in == new.version > 1:
                await shard_list.copy_definitions(targets[new.shards[0].name], targets[shard.name])
        opened = structs.replace(new, opened=new.version)
        await _store(opened, targets)
        return opened


@asynccontextmanager
async def alone(targets: Mapping[str, Target]) -> AsyncIterator[ShardList]:
    """The list of shards, while no other command changes it or moves partitions.

    The first database has the lock: it is in every list.

    Raises:
        SettingError: there is no list, or the names lack a database of it.
        DatabaseUnavailableError: a database is unreachable.
        ConflictError: another command is under way.
    """
    first = targets[(await _known(targets)).shards[0].name]
    connection = await open_connection(first)
    try:
        if not await _locked(connection, first):
            raise ConflictError("Another `queen shards` command changes the list or moves partitions: wait for its end")
        yield await _known(targets)
    finally:
        await connection.close(timeout=_CLOSE_S)


async def _locked(connection: "asyncpg.Connection[Any]", target: Target) -> bool:
    try:
        await connection.execute("BEGIN")  # which ends with the connection; a pooler keeps both together
        return bool(await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", _LOCK))
    except UNREACHABLE as problem:
        raise DatabaseUnavailableError(f"PostgreSQL at {target.place} is unreachable: {problem}") from problem


async def _known(targets: Mapping[str, Target]) -> ShardList:
    stored, missing = await look(targets)
    if missing:
        raise next(iter(missing.values()))
    known = newest([each.shards for each in stored.values()])
    if known is None:
        raise SettingError("These databases are no shards yet: start a server with DATABASE_URLS once")
    check_names(known, targets)
    return known


async def _store(shards: ShardList, targets: Mapping[str, Target]) -> None:
    for name, target in targets.items():
        if shards.find(name) is not None:
            await shard_list.store(target, shards, name)


def check_names(shards: ShardList, names: Mapping[str, object]) -> None:
    """Raises SettingError if DATABASE_URLS lacks a database that may have partitions."""
    for shard in shards.in_use:
        if shard.name not in names:
            raise SettingError(
                f"DATABASE_URLS lacks {shard.name!r}, one of the databases of this installation: add it, as NAME=URL"
            )


def remember(folder: Path, known: ShardList) -> None:
    """Keeps the list on this machine, unless its disk is full; the workers do so at the same time."""
    if known == _remembered(folder):
        return
    new = folder / f"{_FILE}.{os.getpid()}"
    try:
        new.write_bytes(msgspec.json.encode(known))
        new.replace(folder / _FILE)
    except OSError as problem:
        log.warning("The list of databases could not be kept on this machine: %s", problem)
        with suppress(OSError):
            new.unlink()


def _remembered(folder: Path) -> ShardList | None:
    try:
        return msgspec.json.decode((folder / _FILE).read_bytes(), type=ShardList)
    except (OSError, msgspec.DecodeError):
        return None
