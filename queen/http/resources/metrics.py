"""``GET /metrics``: the worker that answers, at this moment, as JSON."""

import falcon
import falcon.asgi
import psutil
from msgspec import Struct

from queen.engine.context import Context
from queen.http.answers import Administrative, answer


class Rate(Struct):
    """How many since the worker has started, and how many a second."""

    total: int
    rate: float


class DatabaseFigures(Struct, rename="camel"):
    """Connections that are open, those without a call, and requests that wait for one."""

    pool_size: int
    idle_connections: int
    waiting_requests: int


class MemoryFigures(Struct, rename="camel"):
    """Memory of the process, in bytes. Python has no heap of a size of its own: the names are the interface's."""

    rss: int
    heap_total: int
    heap_used: int
    external: int
    array_buffers: int


class CpuFigures(Struct):
    """Time of the process, in microseconds."""

    user: int
    system: int


class MetricsAnswer(Struct):
    """Figures of one worker; ``uptime`` in seconds."""

    uptime: int
    requests: Rate
    messages: Rate
    database: DatabaseFigures
    memory: MemoryFigures
    cpu: CpuFigures


def _rate(total: int, seconds: float) -> Rate:
    return Rate(total, round(total / seconds, 3) if seconds else 0.0)


class MetricsResource(Administrative):
    """Real figures of the worker that happens to answer."""

    async def on_get(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """Its counts since the start, connections, memory and CPU."""
        answer(resp, await self.run(_figures))


async def _figures(context: Context) -> MetricsAnswer:
    meter, gauges = context.meter, context.gauges()
    process = psutil.Process()
    memory, cpu = process.memory_info(), process.cpu_times()
    seconds = meter.age_s
    return MetricsAnswer(
        int(seconds),
        _rate(meter.requests, seconds),
        _rate(meter.messages, seconds),
        DatabaseFigures(gauges.pool_size, gauges.pool_idle, gauges.queued),
        MemoryFigures(memory.rss, memory.vms, memory.rss, 0, 0),
        CpuFigures(int(cpu.user * 1e6), int(cpu.system * 1e6)),
    )
