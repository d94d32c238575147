"""The run: one queue is filled through the procedures, and polls of both are timed over HTTP, in turns.

The interface keeps queues to a million messages; the procedures know no such limit, and so the deep queue is made and
filled by them.
"""

import asyncio
import contextlib
import http.client
import json
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from queen.core.errors import QueenError
from queen.core.simple_mq import NewQueue, uuid7
from queen.db.dsn import connect, parse
from queen.db.pool import Pool
from queen.db.setup import prepare
from queen.db.simple_mq import SimpleMqAdministrationStore, SimpleMqStore
from queen.engine.ports import EnqueueColumns
from queen_bench import database, machine
from queen_bench.depth.results import Profile, Report, Run
from queen_bench.load.target import started

#: Is told what comes next, and how much of the whole is done.
Progress = Callable[[str, float], None]

_CALL_TIMEOUT_S = 120.0
_HIDDEN_S = 600
#: Of the time, filling takes so much.
_FILLING = 0.9


class DepthError(QueenError):
    """The server did not answer as it should."""

    code = "bench_depth"


async def run(dsn: str, profile: Profile, progress: Progress, *, embedded: bool) -> Report:
    """Measures everything in a database of its own.

    Raises:
        QueenError: the server cannot be used, or answers wrongly.
        DepthError: the deep queue would be empty before the end.
    """
    polls = profile.polls * profile.runs + profile.polls // 10
    if profile.messages < polls:
        raise DepthError(
            f"{polls:,} polls take {polls:,} messages, and the deep queue has {profile.messages:,}: give more "
            "--messages, or fewer --polls or --runs"
        )
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    facts = machine.describe()
    async with database.scratch_database(dsn) as url:
        await prepare(url, database.CONNECT_TIMEOUT_MS)
        target = parse(url, "queen bench", database.CONNECT_TIMEOUT_MS)
        pool = Pool(target, 1, _CALL_TIMEOUT_S)
        try:
            shallow, deep = [await _create(pool, profile.messages) for _ in range(2)]
            began = time.monotonic()
            await _fill(SimpleMqStore(pool), deep, profile, progress)
            filling_s = time.monotonic() - began
            await pool.fetch("VACUUM ANALYZE simple_mq.messages")
        finally:
            await pool.close()
        with started(url, workers=1) as server:
            runs, depth = await asyncio.to_thread(_measure, server.url, shallow, deep, profile, progress)
        connection = await connect(target)
        try:
            postgres = await database.describe(connection, embedded=embedded)
        finally:
            await connection.close()
    return Report(started_at, profile, facts, postgres, filling_s, depth, runs)


async def _create(pool: Pool, size: int) -> UUID:
    queue = uuid7(time.time_ns() // 1_000_000, secrets.randbits(74))
    settings = NewQueue(queue, "bench", max(size, 1), _HIDDEN_S, max_deliveries=3)
    await SimpleMqAdministrationStore(pool).create_queue(settings, 0)
    return queue


async def _fill(store: SimpleMqStore, queue: UUID, profile: Profile, progress: Progress) -> None:
    for stored in range(0, profile.messages, profile.step):
        number = min(profile.step, profile.messages - stored)
        data = [f"message {stored + each} {'x' * 80}" for each in range(number)]
        columns = EnqueueColumns(uuid4(), [queue], [1] * number, [None] * number, data)
        [answer] = await store.enqueue(columns)
        if answer.outcome != "stored":
            raise DepthError(f"The queue could not be filled: {answer.outcome} at message {stored:,}")
        progress("filling the queue", _FILLING * stored / profile.messages)


def _measure(url: str, shallow: UUID, deep: UUID, profile: Profile, progress: Progress) -> tuple[list[Run], int]:
    random, runs = Random(1), []
    with contextlib.closing(_Client(url)) as client:
        for number in range(-1, profile.runs):  # The first run warms up, and counts for nothing.
            progress("polling in turns", _FILLING + (1 - _FILLING) * max(number, 0) / profile.runs)
            times: dict[UUID, list[float]] = {shallow: [], deep: []}
            for _ in range(profile.polls if number >= 0 else profile.polls // 10):
                client.ask("POST", shallow, "", {"data": "x" * 100}, 201)
                for queue in random.sample((shallow, deep), 2):
                    times[queue].append(client.poll_and_ack(queue))
            if number >= 0:
                runs.append(Run(times[shallow], times[deep]))
        return runs, client.depth(deep)


class _Client:
    """One connection that stays open."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=_CALL_TIMEOUT_S)

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def ask(self, method: str, queue: UUID, path: str, body: object, status: int) -> Any:  # noqa: ANN401 - JSON
        """The answer to a request about a queue's messages; raises DepthError unless it has that status."""
        return self._ask(method, f"/api/queues/{queue}/messages{path}", body, status)

    def _ask(self, method: str, path: str, body: object, status: int) -> Any:  # noqa: ANN401 - JSON
        encoded = None if body is None else json.dumps(body)
        self._connection.request(method, path, encoded, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        told = answer.read()
        if answer.status != status:
            raise DepthError(f"{method} {path} was answered {answer.status}: {told[:200]!r}")
        return json.loads(told)

    def poll_and_ack(self, queue: UUID) -> float:
        """Milliseconds of the poll; the message is acked afterwards."""
        began = time.perf_counter()
        message = self.ask("GET", queue, "", None, 200)["message"]
        took_ms = (time.perf_counter() - began) * 1000
        if message is None:
            raise DepthError(f"A poll of queue {queue} got nothing, and there is something")
        self.ask("DELETE", queue, f"/{message['message_id']}", None, 200)
        return took_ms

    def depth(self, queue: UUID) -> int:
        """How many messages a queue holds."""
        return int(self._ask("GET", f"/api/queues/{queue}", None, 200)["current_message_count"])
