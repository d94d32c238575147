"""Pushes with SQL: the time from commit to consumer, and how many a PostgreSQL takes, beside pgmq's ``send_batch``."""

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event, Thread
from typing import Annotated, Any

import asyncpg
from msgspec import Struct
from typer import Option

from bench import database
from bench.http_client import Connection
from bench.load.target import started
from bench.scenario import MismatchError, Progress, Sample, Scenario, Target, in_turn, percentiles

_QUIET = {"LOG_LEVEL": "warning"}
_PAYLOAD = "x" * 100
_BATCH = 100
_POP, _OK = "/api/v1/pop/queue/latency?batch=100&wait=true&autoAck=true", 200
_WAITING = "SELECT (SELECT coalesce(sum(n), 0) FROM queen.outbox) + (SELECT count(*) FROM queen.outbox_held)"


class Settings(Struct, frozen=True):
    """The sizes.

    Attributes:
        clients: connections that push, one call after the other.
        partitions: of the queue; each call pushes to one.
    """

    rate: Annotated[float, Option(help="Messages per second whose way to the consumer is measured.", min=1)] = 100.0
    latency_s: Annotated[float, Option(help="How long that is measured.", min=1)] = 20.0
    seconds: Annotated[float, Option(help="Of pushes in batches of 100, per side.", min=1)] = 60.0
    runs: Annotated[int, Option(help="Number of runs.", min=1)] = 1
    pgmq: Annotated[Path | None, Option(help="pgmq's SQL file, for comparison.", exists=True)] = None
    clients: int = 4
    partitions: int = 16


async def measure(dsn: str, settings: Settings, progress: Progress) -> AsyncIterator[Sample]:
    """The latency; then the sides in turns, in one database."""
    async with database.scratch_database(dsn) as url:
        with started(url, 1, _QUIET) as server:
            await asyncio.to_thread(_configure, server.url)
            for number in range(settings.runs):
                progress("latency", 0.0)
                yield Sample(_LATENCY, "queen", number, await _latency(url, server.url, settings))
                for side in in_turn(("queen", "pgmq") if settings.pgmq else ("queen",), number):
                    progress(f"batches: {side}", 0.5)
                    figures = await (_Queen(url, settings) if side == "queen" else _Pgmq(url, settings)).measure()
                    yield Sample(_BATCHES, side, number, figures)


def _configure(url: str) -> None:
    with Connection(url) as http:
        for queue in ("latency", "batches"):
            http.json("POST", "/api/v1/configure", {"queue": queue})


async def _latency(url: str, server: str, settings: Settings) -> dict[str, float]:
    """From the answer to the commit until the consumer has the message."""
    received: dict[int, float] = {}
    async with database.connection(url) as connection:
        await connection.execute("SELECT queen.push('latency', '-1')")
    await asyncio.to_thread(_warm_up, server)
    done = Event()
    consumer = Thread(target=_consume, args=(server, received, done))
    consumer.start()
    committed: dict[int, float] = {}
    try:
        async with database.connection(url) as connection:
            begin = time.perf_counter()
            for number in range(int(settings.rate * settings.latency_s)):
                await asyncio.sleep(begin + number / settings.rate - time.perf_counter())
                await connection.execute("SELECT queen.push('latency', to_jsonb($1::int))", number)
                committed[number] = time.perf_counter()
    finally:
        done.set()
        await asyncio.to_thread(consumer.join)
    if len(received) != len(committed):
        raise MismatchError(f"{len(committed)} messages were pushed, and {len(received)} popped")
    return percentiles([1000 * (received[number] - at) for number, at in committed.items()])


def _warm_up(server: str) -> None:
    """The worker that moves has begun, and the consumer is known."""
    with Connection(server) as http:
        while http.request("GET", f"{_POP}&timeout=30000")[0] != _OK:
            pass


def _consume(server: str, received: dict[int, float], done: Event) -> None:
    with Connection(server) as http:
        while True:
            was_done = done.is_set()
            status, body = http.request("GET", f"{_POP}&timeout=1000")
            at = time.perf_counter()
            messages = json.loads(body)["messages"] if status == _OK else []
            received |= {message["data"]: at for message in messages}
            if was_done and not messages:
                return


class _Side(ABC):
    """Clients that push batches of 100 for as long as they are let."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._url, self._settings = url, settings
        self._pushed = 0

    async def measure(self) -> dict[str, float]:
        """Pushes for the time; messages per second, and how many wait half-way and in the end."""
        await self.set_up()
        begin = time.perf_counter()
        clients = [asyncio.ensure_future(self._until(number, begin)) for number in range(self._settings.clients)]
        await asyncio.sleep(self._settings.seconds / 2)
        half = await self.waiting()
        await asyncio.gather(*clients)
        seconds = time.perf_counter() - begin
        figures = {"messages/s": self._pushed / seconds, "waiting half-way": half, "waiting": await self.waiting()}
        await self.clean_up()
        return figures

    async def _until(self, number: int, begin: float) -> None:
        async with database.connection(self._url) as connection:
            while time.perf_counter() < begin + self._settings.seconds:
                await self.push(connection, f"p{number % self._settings.partitions}")
                number += self._settings.clients
                self._pushed += _BATCH

    @abstractmethod
    async def set_up(self) -> None:
        """Makes what the pushes need."""

    @abstractmethod
    async def push(self, connection: "asyncpg.Connection[Any]", partition: str) -> None:
        """Pushes a batch."""

    @abstractmethod
    async def waiting(self) -> float:
        """Messages that are not where consumers find them."""

    async def clean_up(self) -> None:
        """Waits until nothing of the run is under way."""
        while await self.waiting():  # noqa: ASYNC110 - a server empties it
            await asyncio.sleep(0.1)


class _Queen(_Side):
    async def set_up(self) -> None:
        """The queue is there."""

    async def push(self, connection: "asyncpg.Connection[Any]", partition: str) -> None:
        await connection.execute(
            "SELECT queen.push_many('batches', $1::jsonb[], array_fill($2::text, ARRAY[$3::int]))",
            [json.dumps({"data": _PAYLOAD})] * _BATCH, partition, _BATCH,
        )  # fmt: skip

    async def waiting(self) -> float:
        async with database.connection(self._url) as connection:
            return float(await connection.fetchval(_WAITING))


class _Pgmq(_Side):
    async def set_up(self) -> None:
        assert self._settings.pgmq is not None
        script = await asyncio.to_thread(self._settings.pgmq.read_text)
        async with database.connection(self._url) as connection:
            if not await connection.fetchval("SELECT to_regnamespace('pgmq') IS NOT NULL"):
                await connection.execute(script)
                await connection.execute("SELECT pgmq.create('batches')")

    async def push(self, connection: "asyncpg.Connection[Any]", partition: str) -> None:
        del partition
        await connection.execute(
            "SELECT pgmq.send_batch('batches', $1::jsonb[])", [json.dumps({"data": _PAYLOAD})] * _BATCH
        )

    async def waiting(self) -> float:
        return 0.0


_LATENCY, _BATCHES = "one message per transaction, commit to consumer", "100 messages per transaction"
SCENARIO = Scenario(
    name="outbox",
    about="Pushes with SQL: from commit to consumer, and beside pgmq.",
    needs="postgres",
    measure=measure,
    settings=Settings,
    smoke={"latency_s": 1.0, "seconds": 1.0},
    ratios=(("queen", "pgmq"),),
    targets=(Target(_LATENCY, "median ms", "queen", "<= 3"),),
)
