"""Lists the databases of an installation over several: ``GET /api/v1/status/databases``."""

import asyncio

import falcon.asgi
from msgspec import Struct

from queen.core.errors import QueenError
from queen.core.placement import ShardList
from queen.engine.context import Context
from queen.http.access import READ_ONLY
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.server import Server
from queen.spool.state import SpoolState


class DatabaseElement(Struct, rename="camel"):
    """A database of several.

    Attributes:
        slot: the first two hexadecimal digits of the ids of its partitions, as a number; null while no database says.
        state: `active`: takes new partitions; `drained`: keeps those that it has; `unknown` while no database says.
        version: the version of the list of databases that it knows; null while it is unavailable.
        spool: the spool of this server for its partitions.
    """

    name: str
    connected: bool
    slot: int | None
    state: str
    version: int | None
    spool: SpoolState | None


@operation(
    "GET",
    "/api/v1/status/databases",
    "listDatabases",
    "List the databases",
    access=READ_ONLY,
    answers=[Answer("Those of `DATABASE_URLS` with their spools; empty if there is one only", list[DatabaseElement])],
    errors=(503,),
)
async def list_databases(server: Server, _req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """The state of each of several databases, also while it is unavailable."""
    answer(resp, await server.run(_databases))


async def _databases(context: Context) -> list[DatabaseElement]:
    named = context.named()
    if len(named) < 2:
        return []
    lists = await asyncio.gather(*[_list_of(each) for _, each in named])
    newest = max((each for each in lists if each is not None), key=lambda each: each.version, default=None)
    return [_element(*pair, known, newest) for pair, known in zip(named, lists, strict=True)]


async def _list_of(one: Context) -> ShardList | None:
    """The list of databases as one of them knows it."""
    if one.unavailable:
        return None
    try:
        return await one.administration.shards()
    except QueenError:
        return None


def _element(name: str, context: Context, known: ShardList | None, newest: ShardList | None) -> DatabaseElement:
    shard = None if newest is None else newest.find(name)
    state = "unknown" if shard is None else "active" if shard.drained_in is None else "drained"
    slot, version = None if shard is None else shard.slot, None if known is None else known.version
    spool = None if context.failover is None else context.failover.spool.state()
    return DatabaseElement(name, known is not None, slot, state, version, spool)
