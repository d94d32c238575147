"""The maintenance modes: pushes go to the spool, pops get no messages. ``/api/v1/system/maintenance``, ``…/pop``."""

from collections.abc import Sequence

import falcon.asgi
import msgspec
from msgspec import Struct

from queen.engine.context import Context
from queen.engine.failover import Failover
from queen.engine.switches import MAINTENANCE_MODE, POP_MAINTENANCE_MODE, failovers_of, known_to_any, set_switch
from queen.http.access import ADMIN
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.parsing import decode
from queen.http.request import QueenRequest, read_body
from queen.operations.server import Server
from queen.spool.state import SpoolState, together

_PATH = "/api/v1/system/maintenance"
_BODY_BYTES_MAX = 4096


class SwitchBody(Struct):
    """The new state of a mode.

    Attributes:
        enabled: whether to switch it on.
    """

    enabled: bool


_decoder = msgspec.json.Decoder(SwitchBody)
_REQUIRED = "enabled (boolean) is required"


class FailedFiles(Struct):
    """Spool files that could not be replayed and were set aside."""

    count: int
    failoverCount: int  # noqa: N815 - the interface's names
    qos0Count: int  # noqa: N815
    totalBytes: int  # noqa: N815
    totalMB: float  # noqa: N815


class BufferStats(Struct):
    """The spool, in the fields that dashboards read."""

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


@operation(
    "GET",
    _PATH,
    "getMaintenance",
    "Show both maintenance modes and the spool",
    access=ADMIN,
    answers=[Answer("The current state", Maintenance)],
    errors=(503,),
)
async def get_maintenance(server: Server, _req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Both modes, and the spool."""
    answer(resp, await server.run(_maintenance))


@operation(
    "POST",
    _PATH,
    "setMaintenance",
    "Switch maintenance mode: pushes go to the spool",
    access=ADMIN,
    answers=[Answer("Applies to all servers", Maintenance)],
    errors=(400, 413, 503),
    body=SwitchBody,
    audited=True,
)
async def set_maintenance(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Switches push maintenance on or off, for all servers."""
    on = await switch_wanted(req)

    async def switch(context: Context) -> Maintenance:
        await context.everywhere(lambda each: set_switch(each, MAINTENANCE_MODE, on))
        states = [failover.spool.state() for failover in failovers_of(context)]
        message = (
            "Pushes are written to the spool until the mode is switched off" if on else "The spool is being replayed"
        )
        return Maintenance(on, together(states).messages, not any(state.full for state in states), message=message)

    answer(resp, await server.run(switch))


@operation(
    "GET",
    f"{_PATH}/pop",
    "getPopMaintenance",
    "Show whether pops are paused",
    access=ADMIN,
    answers=[Answer("The current state", PopMaintenance)],
    errors=(503,),
)
async def get_pop_maintenance(server: Server, _req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Pop maintenance."""
    answer(resp, _pop_answer(await server.run(_pop_maintenance)))


@operation(
    "POST",
    f"{_PATH}/pop",
    "setPopMaintenance",
    "Switch pop maintenance mode: pops get no messages",
    access=ADMIN,
    answers=[Answer("Applies to all servers", PopMaintenance)],
    errors=(400, 413, 503),
    body=SwitchBody,
    audited=True,
)
async def set_pop_maintenance(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Switches pop maintenance on or off, for all servers."""
    on = await switch_wanted(req)
    await server.run(lambda context: context.everywhere(lambda each: set_switch(each, POP_MAINTENANCE_MODE, on)))
    answer(resp, _pop_answer(on))


async def switch_wanted(req: QueenRequest) -> bool:
    """Whether a request switches something on."""
    return decode(_decoder, await read_body(req, _BODY_BYTES_MAX), {"enabled": _REQUIRED}).enabled


async def _maintenance(context: Context) -> Maintenance:
    failovers = failovers_of(context)
    states, switches = [each.spool.state() for each in failovers], known_to_any(failovers)
    return Maintenance(
        switches.maintenance,
        together(states).messages,
        not any(state.full for state in states),
        switches.pop_maintenance,
        _stats(failovers, together(states)),
    )


def _stats(failovers: Sequence[Failover], state: SpoolState) -> BufferStats:
    size = sum(each.spool.size(name) for each in failovers for name in each.spool.failed_files())
    files = FailedFiles(state.failed, state.failed, 0, size, round(size / (1 << 20), 2))
    return BufferStats(state.messages, state.failed, not any(each.unavailable for each in failovers), files)


async def _pop_maintenance(context: Context) -> bool:
    return known_to_any(failovers_of(context)).pop_maintenance


def _pop_answer(on: bool) -> PopMaintenance:
    return PopMaintenance(on, "Pops get no messages until the mode is switched off" if on else "Pops get messages")
