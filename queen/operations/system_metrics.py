"""Shows CPU, memory and connections of workers: ``GET /api/v1/analytics/system-metrics``."""

from collections.abc import Sequence

import falcon.asgi
from msgspec import Struct

from queen.core.administration import WorkerLevelsRow
from queen.engine.context import Context
from queen.http import parameters, queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.buckets import DEFAULT_PERIOD, TimeRange, bucket_name, time_range
from queen.operations.server import Server

#: Default limit for points of all workers: a point has about a kibibyte.
_POINTS = 900


class Leaf(Struct):
    """What was measured once a second, over a bucket."""

    avg: float
    min: float
    max: float
    last: float


class Cpu(Struct):
    """CPU in percent of a core, times 100."""

    user_us: Leaf
    system_us: Leaf


class Memory(Struct):
    """Memory of a worker."""

    rss_bytes: Leaf
    virtual_bytes: Leaf


class DatabasePool(Struct):
    """Connections of a worker."""

    pool_size: Leaf
    pool_idle: Leaf
    pool_active: Leaf


class ThreadPool(Struct):
    """Jobs that wait for a call to PostgreSQL."""

    pool_size: Leaf
    queue_size: Leaf


class ThreadPools(Struct):
    """``db``: calls of the engine; ``system``: the engine itself, which is one thread without a queue."""

    db: ThreadPool
    system: ThreadPool


class Registries(Struct):
    """Waiting long polls."""

    response: Leaf


class SystemFigures(Struct):
    """Metrics of a worker in a bucket."""

    cpu: Cpu
    memory: Memory
    database: DatabasePool
    threadpool: ThreadPools
    registries: Registries
    shared_state: dict[str, Leaf]


class SystemPoint(Struct, rename="camel"):
    """A bucket of a worker; ``sampleCount``: how many seconds were measured."""

    timestamp: str
    sample_count: int
    metrics: SystemFigures


class Replica(Struct, rename="camel"):
    """A worker with its series; ``port``: of its server, null if that listens on none."""

    hostname: str
    port: int | None
    worker_id: int
    time_series: list[SystemPoint]


class SystemMetricsAnswer(Struct, rename="camel"):
    """Metrics of workers in a time range: a page, last seen first; ``replicaCount`` is the number of workers."""

    time_range: TimeRange
    replicas: list[Replica]
    replica_count: int
    bucket_minutes: int
    point_count: int
    pagination: queries.Pagination


_ONE, _NONE = Leaf(1, 1, 1, 1), Leaf(0, 0, 0, 0)


def _system_point(row: WorkerLevelsRow) -> SystemPoint:
    user, system, *others = map(Leaf, row.averages, row.lows, row.highs, row.lasts)
    resident, virtual, size, idle, active, queued, waiting = others
    figures = SystemFigures(
        Cpu(_hundredfold(user), _hundredfold(system)),
        Memory(resident, virtual),
        DatabasePool(size, idle, active),
        ThreadPools(ThreadPool(size, queued), ThreadPool(_ONE, _NONE)),
        Registries(waiting),
        {},
    )
    return SystemPoint(bucket_name(row.bucket), row.seconds, figures)


def _hundredfold(leaf: Leaf) -> Leaf:
    return Leaf(*[round(value * 100) for value in (leaf.avg, leaf.min, leaf.max, leaf.last)])


def _replicas(rows: Sequence[WorkerLevelsRow]) -> list[Replica]:
    replicas: dict[tuple[str, int], Replica] = {}
    for row in rows:
        key = row.hostname, row.worker_id
        replica = replicas.setdefault(key, Replica(row.hostname, row.port, row.worker_id, []))
        replica.time_series.append(_system_point(row))
    return list(replicas.values())


@operation(
    "GET",
    "/api/v1/analytics/system-metrics",
    "getSystemMetrics",
    "Show CPU, memory and connections of workers",
    access=READ_ONLY,
    answers=[
        Answer(
            "One series per worker, the last seen first; `replicaCount` is the number of workers", SystemMetricsAnswer
        )
    ],
    errors=(400, 503),
    parameters=[
        *parameters.PERIOD,
        parameters.HOSTNAME,
        parameters.WORKER,
        *parameters.series(
            f"Maximum of workers; by default as many as give {_POINTS} points in the time range, at most 10,000"
        ),
    ],
)
async def get_system_metrics(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Newest bucket first."""
    period = queries.period(req, DEFAULT_PERIOD)
    wanted, page = queries.worker_filter(req), queries.page_of_series(req, period, _POINTS)

    async def look(context: Context) -> tuple[int, list[WorkerLevelsRow]]:
        metrics = context.reads.statistics
        found = await metrics.find_workers(period, wanted, page.limit, page.offset)
        return found.total, await metrics.worker_levels(period, period.bucket_minutes, found.names)

    total, rows = await server.ask(look)
    replicas, points = _replicas(rows), len({row.bucket for row in rows})
    answer(resp, SystemMetricsAnswer(time_range(period), replicas, total, period.bucket_minutes, points, page))
