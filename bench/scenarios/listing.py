"""Listings and status of a large queue, over HTTP. It is filled through the procedures."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import psutil
from msgspec import Struct
from typer import Option

from bench import database, meter
from bench.http_client import Connection
from bench.load.target import started
from bench.messages import MessageSource, portions
from bench.scenario import Progress, Sample, Scenario, Target
from bench.segments import Segments

_QUEUE, _GROUP = "bench", "group"
#: Share of the progress for filling.
_FILLING = 0.9


class Settings(Struct, frozen=True):
    """The sizes; ``step``: messages per push."""

    partitions: Annotated[int, Option(help="Of the queue.", min=100)] = 100_000
    messages: Annotated[int, Option(help="In the queue, each a segment of its own.", min=100)] = 1_000_000
    runs: Annotated[int, Option(help="Requests per operation.", min=1)] = 9
    step: int = 1_000


async def measure(dsn: str, settings: Settings, progress: Progress) -> AsyncIterator[Sample]:
    """Each operation, several times, against a server with one worker."""
    async with database.scratch_database(dsn) as url:
        async with database.pool(url, 2) as pool:
            await _fill(Segments(pool, url), settings, progress)
            await pool.fetch("VACUUM ANALYZE")
        async with database.connection(url) as connection:
            postmaster = await meter.postmaster(connection)
        with started(url, workers=1) as server:
            processes = server.server_processes()
            for sample in await asyncio.to_thread(_all, server.url, settings, progress, processes, postmaster):
                yield sample


async def _fill(store: Segments, settings: Settings, progress: Progress) -> None:
    """Pushes one message to each partition in turn; a group consumes a part of them."""
    await store.set_up()
    await store.make_partitions(_QUEUE, settings.partitions)
    await store.subscribe(_QUEUE, _GROUP)
    source = MessageSource()
    for numbers in portions(settings.messages, settings.step):
        await store.push(_QUEUE, source.one_each(number % settings.partitions for number in numbers))()
        progress("filling the queue", _FILLING * numbers.stop / settings.messages)
    for _ in range(settings.partitions // 100):
        await store.pop_and_ack(_QUEUE, _GROUP, 3)


def _all(
    url: str, settings: Settings, progress: Progress, server: list[psutil.Process], postmaster: psutil.Process | None
) -> list[Sample]:
    with Connection(url) as connection:
        paths = [f"GET {path}" for path in _paths(connection)]
        measured = _Measured(connection, server, postmaster)
        found = []
        # First refresh the statistics, which some listings show.
        for place, operation in enumerate(["POST /api/v1/stats/refresh", *paths]):
            progress(operation.partition("?")[0], _FILLING + (1 - _FILLING) * place / len(paths))
            found += [Sample(operation, "server", number, measured(operation)) for number in range(settings.runs)]
        return found


class _Measured:
    """Measures operations: time, and CPU on all cores."""

    def __init__(self, connection: Connection, server: list[psutil.Process], postmaster: psutil.Process | None) -> None:
        self._connection, self._server, self._postmaster = connection, server, postmaster

    def __call__(self, operation: str) -> dict[str, float]:
        method, _, path = operation.partition(" ")
        before, began = self._cpu_ms(), time.perf_counter()
        answer = self._connection.ask(method, path)
        ms, after = (time.perf_counter() - began) * 1000, self._cpu_ms()
        cpu = {} if before is None or after is None else {"CPU ms": after - before}
        return {"ms": ms, **cpu, "answer KiB": len(answer) / 1024}

    def _cpu_ms(self) -> float | None:
        """Of server and PostgreSQL; ``None``: PostgreSQL runs elsewhere."""
        postgres = meter.postgres_seconds(self._postmaster)
        return None if postgres is None else 1000 * (meter.cpu_seconds(self._server) + postgres)


def _paths(connection: Connection) -> Iterator[str]:
    """Every listing and status operation, with common parameters."""
    messages: dict[str, Any] = connection.json("GET", f"/api/v1/messages?queue={_QUEUE}&limit=1")
    newest = messages["messages"][0]
    own = f"{newest['partitionId']}/{newest['transactionId']}"
    past = datetime.fromisoformat(newest["createdAt"]).replace(second=0, microsecond=0)
    earlier = f"to={datetime.fromtimestamp(past.timestamp() - 60, UTC):%Y-%m-%dT%H:%M:%SZ}"
    of = f"messages?queue={_QUEUE}"
    states = [f"{of}&status={state}" for state in ("pending", "processing", "completed", "dead_letter")]
    yield from (f"/api/v1/{path}" for path in (
        "resources/overview", "resources/queues", f"resources/queues/{_QUEUE}",
        f"resources/queues/{_QUEUE}?limit=1000&offset=99000", f"resources/queues/{_QUEUE}/depth?group={_GROUP}",
        f"resources/partitions?queue={_QUEUE}", "resources/namespaces", "resources/tasks", "messages",
        of, f"{of}&offset=5000", f"{of}&{earlier}",
        *states, f"{of}&partition=77", f"messages/{own}", f"dlq?queue={_QUEUE}", "consumer-groups",
        f"consumer-groups/{_GROUP}", f"consumer-groups/{_GROUP}?limit=1000&offset=99000",
        "consumer-groups/lagging?minLagSeconds=0", f"traces/{own}", "traces/names", "status", "status/queues",
        f"status/queues/{_QUEUE}", f"status/queues/{_QUEUE}/messages", "status/analytics", "analytics/system-metrics",
        "analytics/worker-metrics", "analytics/queue-lag", "analytics/queue-ops", "analytics/queue-parked-replicas",
        "analytics/retention", "analytics/postgres-stats",
    ))  # fmt: skip
    yield "/metrics"


SCENARIO = Scenario(
    "listing",
    "Every listing and status operation of a large queue, over HTTP.",
    "postgres",
    measure,
    Settings,
    smoke={"partitions": 200, "messages": 1_000, "runs": 2, "step": 100},
    targets=(Target("GET *", "ms", "server", "< 300"),),
)
