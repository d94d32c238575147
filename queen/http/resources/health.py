"""``GET /health`` for people and dashboards; ``/health/live`` and ``/health/ready`` for an orchestrator."""

import asyncio
import os
from importlib.metadata import version

import falcon
import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core.operations import JobType
from queen.engine.context import Context
from queen.engine.switches import known_switches
from queen.engine.thread import EngineThread
from queen.http.answers import stamp
from queen.http.problems import RETRY_AFTER_S
from queen.spool.state import SpoolState

VERSION = version("queen-for-python")
#: Without an answer of the engine for so long, the worker is stuck.
_STUCK_S = 5.0


class SharedState(Struct):
    """The switches of the installation, where the published clients and dashboards look for them."""

    maintenance_mode: bool
    pop_maintenance_mode: bool


class Clock(Struct):
    """What there is to say of PostgreSQL's clock: see ``queen.core.metrics.ClockState``."""

    steps: int
    last_step_s: float | None
    last_step_at: str | None
    distrusted_s: float
    repairing: bool


class Health(Struct):
    """The answer of ``/health``.

    Attributes:
        status: ``healthy``; ``degraded``: PostgreSQL answers, but all pushes go to the spool, or those to some
            partitions do, or its clock has stepped and nobody has accepted that; ``unhealthy``: it does not answer.
        clock: what there is to say of PostgreSQL's clock.
    """

    status: str
    database: str
    server: str
    version: str
    worker_id: int
    shared_state: SharedState
    spool: SpoolState | None
    clock: Clock


class Readiness(Struct):
    """The answer of ``/health/ready``: ``ready``, ``spooling`` (pushes only) or ``unavailable``."""

    status: str
    database: str
    spool: SpoolState | None


async def _look(context: Context) -> Health:
    failover = context.failover
    connected = await context.database_answers()
    spool = failover.spool.state() if failover else None
    clock = context.clock()
    held = spool is not None and (spool.spooling or spool.held_partitions > 0)
    degraded = held or clock.repairing or (clock.steps > 0 and clock.distrusted_s > 0)
    switches = known_switches(failover) if failover else None
    return Health(
        "unhealthy" if not connected else "degraded" if degraded else "healthy",
        "connected" if connected else "disconnected",
        "Queen for Python",
        VERSION,
        os.getpid(),
        SharedState(bool(switches and switches.maintenance), bool(switches and switches.pop_maintenance)),
        spool,
        Clock(clock.steps, clock.last_step_s, stamp(clock.last_step_at), round(clock.distrusted_s, 3), clock.repairing),
    )


async def _look_whether_ready(context: Context) -> Readiness:
    health, failover = await _look(context), context.failover
    spooling = health.spool is not None and health.spool.spooling
    connected = health.status != "unhealthy"
    room = connected or (failover is not None and await failover.has_room())
    status = "unavailable" if not room else "spooling" if spooling or not connected else "ready"
    return Readiness(status, health.database, health.spool)


def _answer(resp: falcon.asgi.Response, well: bool, body: Struct) -> None:
    resp.status = 200 if well else 503
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(body)
    if not well:
        resp.set_header("Retry-After", RETRY_AFTER_S)


class HealthResource:
    """Whether the server can do its work."""

    def __init__(self, engine: EngineThread) -> None:
        self._engine = engine

    async def on_get(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """200 when the database answers, else 503."""
        health: Health = await self._engine.submit(JobType.CUSTOM, _look).future
        _answer(resp, health.status != "unhealthy", health)

    async def on_get_ready(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """200 when pushes are taken, be it by the spool; 503 when nothing can be done for a client."""
        readiness: Readiness = await self._engine.submit(JobType.CUSTOM, _look_whether_ready).future
        _answer(resp, readiness.status != "unavailable", readiness)

    async def on_get_live(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """200 when this worker does its work, whatever PostgreSQL does: else it should be started anew."""
        try:
            async with asyncio.timeout(_STUCK_S):
                await self._engine.beat()
        except TimeoutError:
            resp.status = 503
            resp.content_type = falcon.MEDIA_JSON
            resp.data = b'{"status":"stuck"}'
            return
        resp.content_type = falcon.MEDIA_JSON
        resp.data = b'{"status":"live"}'
