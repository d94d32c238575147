"""Shows the current state of the answering worker, as JSON: ``GET /metrics``."""

import falcon.asgi
import psutil
from msgspec import Struct

from queen.engine.context import Context
from queen.http.access import PUBLIC
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.server import Server


class Rate(Struct):
    """A count since the start of the worker, and the rate per second."""

    total: int
    rate: float


class DatabaseMetrics(Struct, rename="camel"):
    """Open connections, idle ones, and requests that wait for a connection."""

    pool_size: int
    idle_connections: int
    waiting_requests: int


class MemoryMetrics(Struct, rename="camel"):
    """Memory of the process in bytes. All but ``rss`` are parts of a JavaScript heap: 0, as in the original."""

    rss: int
    heap_total: int
    heap_used: int
    external: int
    array_buffers: int


class CpuMetrics(Struct):
    """CPU time of the process, in microseconds."""

    user: int
    system: int


class MetricsAnswer(Struct):
    """Metrics of one worker; ``uptime`` in seconds."""

    uptime: int
    requests: Rate
    messages: Rate
    database: DatabaseMetrics
    memory: MemoryMetrics
    cpu: CpuMetrics


def _rate(total: int, seconds: float) -> Rate:
    return Rate(total, round(total / seconds, 3) if seconds else 0.0)


async def _metrics(context: Context) -> MetricsAnswer:
    each_counters, state = [each.counters for _, each in context.named()], context.state()
    process = psutil.Process()
    memory, cpu = process.memory_info(), process.cpu_times()
    seconds = context.counters.age_s
    return MetricsAnswer(
        int(seconds),
        _rate(sum(counters.requests for counters in each_counters), seconds),
        _rate(sum(counters.messages for counters in each_counters), seconds),
        DatabaseMetrics(state.pool_size, state.pool_idle, state.queued),
        MemoryMetrics(memory.rss, 0, 0, 0, 0),
        CpuMetrics(int(cpu.user * 1e6), int(cpu.system * 1e6)),
    )


@operation(
    "GET",
    "/metrics",
    "getMetrics",
    "Show the current state of the answering worker",
    access=PUBLIC,
    answers=[Answer("Counters since its start, connections, memory, CPU", MetricsAnswer)],
    errors=(503,),
)
async def get_metrics(server: Server, _req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """All workers of an instance share a port: any of them answers."""
    answer(resp, await server.run(_metrics))
