"""Polls of a deep and of a shallow simple-mq queue, side by side, over HTTP.

The HTTP interface limits queues to a million messages; the procedures do not, so they create and fill the deep queue.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from random import Random
from typing import Annotated
from uuid import UUID, uuid4

from msgspec import Struct
from typer import Option

from bench import database
from bench.http_client import AnswerError, Connection
from bench.load.target import started
from bench.messages import portions
from bench.scenario import Progress, Sample, Scenario, Target, percentiles
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from queen.simple_mq.requests import NewQueue, uuid7
from queen.simple_mq.storage import EnqueueColumns, SimpleMqAdministrationStore, SimpleMqStore

_HIDDEN_S = 600
#: Share of the progress for filling.
_FILLING = 0.9


class Settings(Struct, frozen=True):
    """The sizes; ``step``: messages per call when filling the queue."""

    messages: Annotated[int, Option(help="In the deep queue; the other has one.", min=1)] = 5_000_000
    polls: Annotated[int, Option(help="Of each queue in a run.", min=10)] = 1_000
    runs: Annotated[int, Option(help="Number of runs.", min=1)] = 5
    step: int = 10_000


async def measure(dsn: str, settings: Settings, progress: Progress) -> AsyncIterator[Sample]:
    """Fills one queue, then polls both in turns."""
    polls = settings.polls * settings.runs + settings.polls // 10
    if settings.messages < polls:
        raise AnswerError(
            f"{polls:,} polls take {polls:,} messages, and the deep queue has {settings.messages:,}: give more "
            "--messages, or fewer --polls or --runs"
        )
    async with database.scratch_database(dsn) as url:
        await prepare(url, database.CONNECT_TIMEOUT_MS)
        async with database.pool(url, 1) as pool:
            shallow, deep = [await _create(pool, settings.messages) for _ in range(2)]
            began = time.monotonic()
            await _fill(SimpleMqStore(pool), deep, settings, progress)
            filling_s = time.monotonic() - began
            await pool.fetch("VACUUM ANALYZE simple_mq.messages")
        with started(url, workers=1) as server:
            for sample in await asyncio.to_thread(
                _polls, server.url, {"shallow": shallow, "deep": deep}, settings, progress
            ):
                yield sample
            with Connection(server.url) as connection:
                depth = connection.json("GET", f"/api/queues/{deep}")["current_message_count"]
            yield Sample("filling", "deep", 0, {"s": filling_s, "messages at the end": float(depth)})


async def _create(pool: Pool, size: int) -> UUID:
    queue = uuid7(time.time_ns() // 1_000_000, secrets.randbits(74))
    settings = NewQueue(queue, "bench", max(size, 1), _HIDDEN_S, max_deliveries=3)
    await SimpleMqAdministrationStore(pool).create_queue(settings, 0)
    return queue


async def _fill(store: SimpleMqStore, queue: UUID, settings: Settings, progress: Progress) -> None:
    for numbers in portions(settings.messages, settings.step):
        n, data = len(numbers), [f"message {number} {'x' * 80}" for number in numbers]
        [answer] = await store.enqueue(EnqueueColumns(uuid4(), [queue], [1] * n, [None] * n, data))
        if answer.outcome != "stored":
            raise AnswerError(f"The queue could not be filled: {answer.outcome} at message {numbers.start:,}")
        progress("filling the queue", _FILLING * numbers.start / settings.messages)


def _polls(url: str, queues: dict[str, UUID], settings: Settings, progress: Progress) -> list[Sample]:
    """Acks each message, and adds one to the shallow queue before its poll."""
    random, found = Random(1), []
    with Connection(url) as connection:
        for number in range(-1, settings.runs):  # The first run warms up and does not count.
            progress("polling in turns", _FILLING + (1 - _FILLING) * max(number, 0) / settings.runs)
            times: dict[str, list[float]] = {side: [] for side in queues}
            for _ in range(settings.polls if number >= 0 else settings.polls // 10):
                connection.ask("POST", f"/api/queues/{queues['shallow']}/messages", {"data": "x" * 100}, 201)
                for side in random.sample(sorted(queues), 2):
                    times[side].append(_poll_and_ack(connection, f"/api/queues/{queues[side]}/messages"))
            if number >= 0:
                found += [Sample("poll", side, number, percentiles(times[side])) for side in queues]
    return found


def _poll_and_ack(connection: Connection, path: str) -> float:
    """The duration of the poll in milliseconds; acks the message afterwards."""
    began = time.perf_counter()
    message = connection.json("GET", path)["message"]
    took_ms = (time.perf_counter() - began) * 1000
    if message is None:
        raise AnswerError(f"A poll of {path} got nothing, although there are messages")
    connection.ask("DELETE", f"{path}/{message['message_id']}")
    return took_ms


SCENARIO = Scenario(
    "depth",
    "Polls of a simple-mq queue with one message and of one with millions, in turns, over HTTP.",
    "postgres",
    measure,
    Settings,
    smoke={"messages": 2_000, "polls": 20, "runs": 2, "step": 1_000},
    ratios=(("deep", "shallow"),),
    targets=(Target("poll", "median ms", "deep / shallow", "<= 1.2"),),
)
