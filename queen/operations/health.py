"""``GET /health`` for people and dashboards; ``/health/live`` and ``/health/ready`` for an orchestrator."""

import asyncio
import os

import falcon.asgi
from msgspec import UNSET, Struct, UnsetType

from queen.core.version import VERSION
from queen.engine.context import Context
from queen.engine.switches import known_to_any
from queen.http.access import PUBLIC
from queen.http.answers import StatusOnly, answer, stamp
from queen.http.operation import Answer, operation
from queen.http.problems import RETRY_AFTER_S
from queen.http.request import QueenRequest
from queen.operations.databases import DISCONNECTED, state_of, states_of
from queen.operations.server import Server
from queen.spool.state import SpoolState, together

#: If the engine does not answer for this long, the worker is stuck.
_STUCK_S = 5.0


class SharedState(Struct):
    """The switches of all servers, in the fields that published clients and dashboards read."""

    maintenance_mode: bool
    pop_maintenance_mode: bool


class Clock(Struct):
    """The state of PostgreSQL's clock: see ``queen.core.statistics.ClockState``."""

    steps: int
    last_step_s: float | None
    last_step_at: str | None
    distrusted_s: float
    repairing: bool


class Health(Struct):
    """The answer of ``/health``.

    Attributes:
        status: ``healthy``; ``degraded``: PostgreSQL is available, but pushes (all, or to some partitions) go to the
            spool, or its clock stepped and was not accepted since; ``unhealthy``: PostgreSQL is unavailable.
        clock: the state of PostgreSQL's clock.
        databases: of an installation over several databases, each by its name: `connected` or `disconnected`. It is
            `degraded` while some of them are unavailable, and `unhealthy` while all are.
    """

    status: str
    database: str
    server: str
    version: str
    worker_id: int
    shared_state: SharedState
    spool: SpoolState | None
    clock: Clock
    databases: dict[str, str] | UnsetType = UNSET


class Readiness(Struct):
    """The answer of ``/health/ready``: ``ready``, ``spooling`` (pushes only) or ``unavailable``.

    With several databases `spooling` says that some are unavailable: their partitions take pushes only.
    """

    status: str
    database: str
    spool: SpoolState | None
    databases: dict[str, str] | UnsetType = UNSET


@operation(
    "GET",
    "/health",
    "getHealth",
    "Check whether the server can serve requests",
    access=PUBLIC,
    answers=[Answer("PostgreSQL is available", Health), Answer("PostgreSQL is unavailable", Health, 503)],
    errors=(),
)
async def get_health(server: Server, _req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """200 if PostgreSQL is available, else 503."""
    health = await server.run(_look)
    _answer(resp, health.status != "unhealthy", health)


@operation(
    "GET",
    "/health/ready",
    "getReadiness",
    "Check whether pushes are accepted",
    access=PUBLIC,
    answers=[
        Answer("`ready`, or `spooling`: only pushes are accepted", Readiness),
        Answer("No requests can be served", Readiness, 503),
    ],
    errors=(),
)
async def get_readiness(server: Server, _req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """200 if pushes are accepted, at least by the spool; 503 if no requests can be served."""
    readiness = await server.run(_look_whether_ready)
    _answer(resp, readiness.status != "unavailable", readiness)


@operation(
    "GET",
    "/health/live",
    "getLiveness",
    "Check whether this worker is alive",
    access=PUBLIC,
    answers=[
        Answer("The worker is alive, whether or not PostgreSQL is available", StatusOnly),
        Answer("The worker is stuck: restart it", StatusOnly, 503),
    ],
    errors=(),
)
async def get_liveness(server: Server, _req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """200 if this worker is alive, whether or not PostgreSQL is available; otherwise it should be restarted."""
    try:
        async with asyncio.timeout(_STUCK_S):
            await server.engine.beat()
    except TimeoutError:
        answer(resp, StatusOnly("stuck"), 503)
    else:
        answer(resp, StatusOnly("live"))


def _answer(resp: falcon.asgi.Response, well: bool, body: Struct) -> None:
    answer(resp, body, 200 if well else 503)
    if not well:
        resp.set_header("Retry-After", RETRY_AFTER_S)


async def _look(context: Context) -> Health:
    failovers = [each.failover for _, each in context.named() if each.failover is not None]
    answers = await asyncio.gather(*[each.database_answers() for _, each in context.named()])
    up = [(name, answered) for (name, _), answered in zip(context.named(), answers, strict=True)]
    spool = together([failover.spool.state() for failover in failovers]) if failovers else None
    switches, clock = known_to_any(failovers), context.clock()
    connected = any(answers)
    degraded = clock.is_in_doubt or (spool is not None and spool.takes_pushes) or not all(answers)
    return Health(
        "unhealthy" if not connected else "degraded" if degraded else "healthy",
        state_of(connected),
        "Queen for Python",
        VERSION,
        os.getpid(),
        SharedState(switches.maintenance, switches.pop_maintenance),
        spool,
        Clock(clock.steps, clock.last_step_s, stamp(clock.last_step_at), round(clock.distrusted_s, 3), clock.repairing),
        states_of(up),
    )


async def _look_whether_ready(context: Context) -> Readiness:
    health = await _look(context)
    spooling = health.spool is not None and health.spool.spooling
    connected = health.status != "unhealthy"
    partly = health.databases is not UNSET and DISCONNECTED in health.databases.values()
    room = connected or await _has_room(context)
    status = "unavailable" if not room else "spooling" if spooling or partly or not connected else "ready"
    return Readiness(status, health.database, health.spool, health.databases)


async def _has_room(context: Context) -> bool:
    """Whether a spool takes pushes."""
    for _, each in context.named():
        if each.failover is not None and await each.failover.has_room():
            return True
    return False
