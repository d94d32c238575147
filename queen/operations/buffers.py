"""Shows the spool: ``GET /api/v1/status/buffers``."""

import os

import falcon.asgi
from msgspec import UNSET, Struct, UnsetType

from queen.engine.context import Context
from queen.engine.switches import failovers_of
from queen.http.access import READ_ONLY
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.databases import states_of
from queen.operations.server import Server
from queen.spool.held import Held
from queen.spool.state import SetAside, together

_NAMED_MAX = 100


class Buffers(Struct):
    """The answer of ``status/buffers``; ``pending`` counts messages; ``held`` and ``setAside`` have 100 at most.

    Attributes:
        databases: of an installation over several databases, each by its name: `connected` or `disconnected`.
    """

    pending: int
    failed: int
    dbHealthy: bool  # noqa: N815 - the interface's names
    worker: int
    spooling: bool
    requests: int
    bytes: int
    bytesMax: int  # noqa: N815
    oldestAgeSeconds: float  # noqa: N815
    replayRate: float  # noqa: N815
    heldPartitions: int  # noqa: N815
    heldAgeSeconds: float  # noqa: N815
    held: list[Held]
    setAside: list[SetAside]  # noqa: N815
    databases: dict[str, str] | UnsetType = UNSET


@operation(
    "GET",
    "/api/v1/status/buffers",
    "getBuffers",
    "Show the spool",
    access=READ_ONLY,
    answers=[Answer("Also available while PostgreSQL is not", Buffers)],
    errors=(503,),
)
async def get_buffers(server: Server, _req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """The state of the spool, also while PostgreSQL is unavailable."""
    answer(resp, await server.run(_buffers))


async def _buffers(context: Context) -> Buffers:
    failovers = failovers_of(context)
    state = together([each.spool.state() for each in failovers])
    held = sorted([held for each in failovers for held in each.spool.held_back.values()], key=lambda each: each.since)
    failed = [(each.spool, name) for each in failovers for name in each.spool.failed_files()]
    return Buffers(
        state.messages, state.failed, not any(each.unavailable for each in failovers), os.getpid(), state.spooling,
        state.requests, state.bytes, state.bytes_max, round(state.oldest_age_s, 3), round(state.replay_rate, 1),
        state.held_partitions, round(state.held_age_s, 3), held[:_NAMED_MAX],
        [spool.told_of_failed(name) for spool, name in failed[:_NAMED_MAX]],
        states_of([(name, not each.unavailable) for name, each in context.named()]),
    )  # fmt: skip
