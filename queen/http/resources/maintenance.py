"""``/api/v1/system/maintenance``, ``/api/v1/system/maintenance/pop`` and ``GET /api/v1/status/buffers``."""

import os

import falcon
import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core.errors import SpoolError
from queen.core.operations import JobType
from queen.engine.context import Context
from queen.engine.failover import Failover
from queen.engine.switches import MAINTENANCE_MODE, POP_MAINTENANCE_MODE, known_switches, set_switch
from queen.engine.thread import EngineThread
from queen.http.parsing import decode
from queen.http.request import QueenRequest, read_body
from queen.spool.held import Held
from queen.spool.state import SetAside, SpoolState

_BODY_BYTES_MAX = 4096
_NAMED_MAX = 100


class SwitchBody(Struct):
    """What a mode is to be.

    Attributes:
        enabled: whether it is to be on.
    """

    enabled: bool


_decoder = msgspec.json.Decoder(SwitchBody)
_REQUIRED = "enabled (boolean) is required"


class FailedFiles(Struct):
    """Files that were set aside."""

    count: int
    failoverCount: int  # noqa: N815 - the interface's names
    qos0Count: int  # noqa: N815
    totalBytes: int  # noqa: N815
    totalMB: float  # noqa: N815


class BufferStats(Struct):
    """The spool, as dashboards read it."""

    pendingCount: int  # noqa: N815
    failedCount: int  # noqa: N815
    dbHealthy: bool  # noqa: N815
    failedFiles: FailedFiles  # noqa: N815


class Maintenance(Struct, omit_defaults=True):
    """The answer of the push maintenance routes."""

    maintenanceMode: bool  # noqa: N815
    bufferedMessages: int  # noqa: N815
    bufferHealthy: bool  # noqa: N815
    popMaintenanceMode: bool | None = None  # noqa: N815
    bufferStats: BufferStats | None = None  # noqa: N815
    message: str = ""


class PopMaintenance(Struct):
    """The answer of the pop maintenance routes."""

    popMaintenanceMode: bool  # noqa: N815
    message: str


class Buffers(Struct):
    """The answer of ``status/buffers``; ``pending`` counts messages; ``held`` and ``setAside`` name at most 100."""

    pending: int
    failed: int
    dbHealthy: bool  # noqa: N815
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


def _failover(context: Context) -> Failover:
    if context.failover is None:
        raise SpoolError("This server has no spool")
    return context.failover


def _stats(failover: Failover, state: SpoolState) -> BufferStats:
    size = sum(failover.spool.size(name) for name in failover.spool.failed_files())
    files = FailedFiles(state.failed, state.failed, 0, size, round(size / (1 << 20), 2))
    return BufferStats(state.messages, state.failed, not failover.away, files)


async def _maintenance(context: Context) -> Maintenance:
    failover = _failover(context)
    state, switches = failover.spool.state(), known_switches(failover)
    return Maintenance(
        switches.maintenance, state.messages, not state.full, switches.pop_maintenance, _stats(failover, state)
    )


async def _pop_maintenance(context: Context) -> bool:
    return _failover(context).pop_maintenance


async def _buffers(context: Context) -> Buffers:
    failover = _failover(context)
    spool, state = failover.spool, failover.spool.state()
    held = sorted(spool.held_back.values(), key=lambda each: each.since)
    return Buffers(
        state.messages, state.failed, not failover.away, os.getpid(), state.spooling, state.requests, state.bytes,
        state.bytes_max, round(state.oldest_age_s, 3), round(state.replay_rate, 1), state.held_partitions,
        round(state.held_age_s, 3), held[:_NAMED_MAX],
        [spool.told_of_failed(name) for name in spool.failed_files()[:_NAMED_MAX]],
    )  # fmt: skip


def _pop_message(on: bool) -> str:
    return "Pops get no messages until the mode is switched off" if on else "Pops get messages"


class MaintenanceResource:
    """Switches: pushes to the spool on purpose, and pops that get nothing."""

    def __init__(self, engine: EngineThread) -> None:
        self._engine = engine

    async def on_get(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """Both modes, and what waits."""
        _send(resp, await self._engine.submit(JobType.CUSTOM, _maintenance).future)

    async def on_post(self, req: QueenRequest, resp: falcon.asgi.Response) -> None:
        """Switches push maintenance on or off, for the whole installation."""
        on = await _wanted(req)

        async def switch(context: Context) -> Maintenance:
            await set_switch(context, MAINTENANCE_MODE, on)
            state = _failover(context).spool.state()
            message = "Pushes wait in the spool until the mode is switched off" if on else "The spool is being stored"
            return Maintenance(on, state.messages, not state.full, message=message)

        _send(resp, await self._engine.submit(JobType.CUSTOM, switch).future)

    async def on_get_pop(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """Pop maintenance."""
        on: bool = await self._engine.submit(JobType.CUSTOM, _pop_maintenance).future
        _send(resp, PopMaintenance(on, _pop_message(on)))

    async def on_post_pop(self, req: QueenRequest, resp: falcon.asgi.Response) -> None:
        """Switches pop maintenance on or off, for the whole installation."""
        on = await _wanted(req)

        async def switch(context: Context) -> None:
            await set_switch(context, POP_MAINTENANCE_MODE, on)

        await self._engine.submit(JobType.CUSTOM, switch).future
        _send(resp, PopMaintenance(on, _pop_message(on)))


class BuffersResource:
    """The spool in figures."""

    def __init__(self, engine: EngineThread) -> None:
        self._engine = engine

    async def on_get(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """What waits, also while PostgreSQL is away."""
        _send(resp, await self._engine.submit(JobType.CUSTOM, _buffers).future)


async def _wanted(req: QueenRequest) -> bool:
    return decode(_decoder, await read_body(req, _BODY_BYTES_MAX), {"enabled": _REQUIRED}).enabled


def _send(resp: falcon.asgi.Response, body: Struct) -> None:
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(body)
