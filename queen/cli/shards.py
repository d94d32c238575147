"""``queen shards``: the databases of an installation that has several (docs/shards.md). Needs no server."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer
from msgspec import Struct

from queen.cli.client.showing import Listing, document
from queen.cli.errors import FailedError
from queen.cli.output import Json, out
from queen.config import Settings, from_environment
from queen.core.errors import DatabaseUnavailableError, SettingError
from queen.core.placement import Shard, ShardList, with_added, with_drained, with_retired
from queen.postgres.dsn import Target
from queen.postgres.setup import prepare
from queen.postgres.shard_list import Stored
from queen.server import logs
from queen.shards.assembly import targets_of
from queen.shards.moving import Moved, Wanted, move
from queen.shards.setup import change, look, newest

shards = typer.Typer(
    name="shards", help="Show and change the databases of an installation that has several.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="Name of the database in DATABASE_URLS.")]


class Row(Struct, frozen=True, rename="camel"):
    """A database.

    Attributes:
        state: ``active``: takes new partitions; ``drained``: keeps those that it has; ``retired``: has none; ``new``:
            no shard yet.
        partitions: how many it has; ``None``: it is unavailable.
        queues: how many queues of simple-mq and SQS it has.
        version: the version of the list that it knows.
    """

    name: str
    slot: int | None
    state: str
    partitions: int | None
    queues: int | None
    version: int | None
    place: str


@shards.callback()
def _shards() -> None:
    """Show and change the databases of an installation that has several (DATABASE_URLS)."""


@shards.command("list")
def list_(json: Json = False) -> None:
    """List the databases, with what each is used for.

    --json prints an array.
    """
    rows = asyncio.run(_rows(_targets()))
    if json:
        document(rows)
        return
    listing = Listing(
        "name",
        "slot",
        "state",
        "partitions",
        "queues",
        "version",
        "place",
        right=("slot", "partitions", "queues", "version"),
    )
    for row in rows:
        partitions = "unavailable" if row.partitions is None else row.partitions
        listing.add(row.name, row.slot, row.state, partitions, row.queues, row.version, row.place)
    listing.show()


@shards.command("add")
def add(name: Name, json: Json = False) -> None:
    """Place new partitions on one more database, too. Existing ones stay where they are.

    First restart every server with DATABASE_URLS that names it. All databases must be available.
    """
    _change(name, partial(with_added, name=name), f"{name} takes new partitions now", json=json)


@shards.command("drain")
def drain(name: Name, json: Json = False) -> None:
    """Place no more partitions on a database. It keeps those that it has, and serves them."""
    _change(name, partial(with_drained, name=name), f"{name} takes no new partitions any more", json=json)


@shards.command("retire")
def retire(name: Name, json: Json = False) -> None:
    """Give up a drained database that has no partitions any more. Then DATABASE_URLS need not name it."""
    _change(name, partial(with_retired, name=name), f"{name} is not used any more", json=json, empty=name)


@shards.command("move")
def move_(
    queue: Annotated[
        str | None, typer.Argument(help="Only partitions of this queue, and of those that share its databases.")
    ] = None,
    partition: Annotated[str | None, typer.Argument(help="Only partitions of this name.")] = None,
    source: Annotated[str | None, typer.Option("--from", help="Only partitions of this database.")] = None,
    json: Json = False,
) -> None:
    """Move partitions to the databases where new ones of their names would be made.

    They keep their messages, groups and leases. Servers go on; all databases must be available. A command that was
    interrupted is repeated, and ends what was begun.
    """
    moved = asyncio.run(move(_targets(), Wanted(queue, partition, source), _tell(json=json)))
    if json:
        document(moved)
    else:
        out.print(f"{moved.partitions} partitions with {moved.messages} messages were moved", markup=False)
    if moved.left:
        first = moved.left[0]
        raise FailedError(
            f"{len(moved.left)} partitions were not moved. The first: {first.partition} of {first.queue}: "
            f"{first.reason}. docs/shards.md says what to do; then repeat the command"
        )


def _tell(*, json: bool) -> Callable[[Moved], None]:
    def tell(moved: Moved) -> None:
        if not json:
            out.print(f"{moved.partitions} partitions so far", markup=False)

    return tell


def _change(
    name: str, make: Callable[[ShardList], ShardList], done: str, *, json: bool, empty: str | None = None
) -> None:
    targets = _targets()
    if name not in targets:
        raise SettingError(f"DATABASE_URLS does not name {name!r}: it names {', '.join(targets)}")
    changed = asyncio.run(_changed(targets, make, empty))
    if json:
        document(changed)
    else:
        out.print(f"{done} (version {changed.version} of the list)", markup=False)


async def _changed(targets: dict[str, Target], make: Callable[[ShardList], ShardList], empty: str | None) -> ShardList:
    if empty is not None:
        [row] = [row for row in await _rows(targets) if row.name == empty]
        if row.partitions is None or row.partitions > 0:
            number = "an unknown number of" if row.partitions is None else row.partitions
            raise FailedError(f"{empty} has {number} partitions: `queen shards move --from {empty}` first")
        if row.queues:
            raise FailedError(f"{empty} has {row.queues} queues of simple-mq or SQS: delete them first")
    return await change(targets, make)


async def _rows(targets: dict[str, Target]) -> list[Row]:
    stored, _ = await look(targets)
    known = newest([each.shards for each in stored.values()])
    found = {shard.name: shard for shard in known.shards} if known is not None else {}
    names = [*found, *(name for name in targets if name not in found)]
    return [_row(name, found.get(name), stored.get(name), targets.get(name)) for name in names]


def _row(name: str, shard: Shard | None, stored: Stored | None, target: Target | None) -> Row:
    version = stored.shards.version if stored is not None and stored.shards is not None else None
    return Row(
        name, None if shard is None else shard.slot, _state(shard), None if stored is None else stored.partitions,
        None if stored is None else stored.queues, version, "" if target is None else target.place,
    )  # fmt: skip


def _state(shard: Shard | None) -> str:
    if shard is None:
        return "new"
    return "retired" if shard.retired else "drained" if shard.drained_in is not None else "active"


def _targets() -> dict[str, Target]:
    """The databases, with the schema of this version."""
    settings = from_environment()
    logs.configure(settings.server.log_level)
    if not settings.database.shards:
        raise SettingError("Set DATABASE_URLS to the databases of the installation: NAME=URL of each, in one text")
    asyncio.run(_prepare(settings))
    return targets_of(settings)


async def _prepare(settings: Settings) -> None:
    found = await asyncio.gather(
        *[prepare(url, settings.database.connect_timeout_ms) for _, url in settings.database.shards],
        return_exceptions=True,
    )
    for problem in found:
        if isinstance(problem, BaseException) and not isinstance(problem, DatabaseUnavailableError):
            raise problem
