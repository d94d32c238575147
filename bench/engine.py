"""An engine on a PostgreSQL, without HTTP: requests are function calls, with the same parsing and rendering."""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from bench.database import CONNECT_TIMEOUT_MS
from bench.scenario import MismatchError
from queen.config import Settings
from queen.core.job_type import JobType
from queen.engine.context import Context
from queen.engine.engine import Engine, Shares
from queen.engine.failover import Failover
from queen.engine.job import Job
from queen.engine.job_queue import JobQueue
from queen.engine.metadata_cache import MetadataCache
from queen.engine.ports import Notification
from queen.engine.waiters import Waiters
from queen.http.acks import to_ack_items
from queen.http.parsing import to_push
from queen.http.rendering import render_ack, render_buffered, render_pop, render_push
from queen.log.requests import QUEUE_MODE, Ack, Buffered, Pop, Popped
from queen.operations.acknowledge import AckBatchBody
from queen.operations.push import parse_push_items
from queen.postgres.administration import AdministrationStore
from queen.postgres.dsn import parse
from queen.postgres.pool import Pool
from queen.postgres.store import Store

#: Like those of a server with one worker.
SETTINGS = Settings()
_CONNECTIONS, _CALL_TIMEOUT_S = 8, 600.0
_PATIENCE_S = 5.0
_STORED = "SELECT coalesce(sum(next_off), 0)::int8 AS stored FROM queen.log_ends"
_acks = msgspec.json.Decoder(AckBatchBody)


class Instance:
    """One engine in this loop, with connections of its own; requests and answers are HTTP bodies.

    Args:
        url: a prepared database.
        failover: where pushes go while PostgreSQL is marked as unavailable; ``None``: nowhere.
    """

    def __init__(self, url: str, failover: Failover | None = None) -> None:
        self._pool = Pool(parse(url, "queen bench", CONNECT_TIMEOUT_MS), _CONNECTIONS, _CALL_TIMEOUT_S)
        self.store = Store(self._pool)
        cache = MetadataCache(self.store, SETTINGS.engine.cached_partitions)
        administration = AdministrationStore(self._pool)
        self.context = Context(self.store, administration, cache, self._heard, _PATIENCE_S, failover)
        self.engine = Engine(
            self.context, lambda kind: JobQueue(SETTINGS.policy(kind), SETTINGS.limiter(kind)),
            Waiters(SETTINGS.delivery.poll_initial_ms, SETTINGS.delivery.poll_max_ms),
            Shares(_CONNECTIONS, 1, 1000), _answer,
        )  # fmt: skip

    async def close(self) -> None:
        """Waits for calls in flight, and closes the connections."""
        await self.engine.stop()
        await self._pool.close()

    async def push(self, body: bytes) -> bytes:
        """All that the server does for a push, except HTTP itself."""
        items = parse_push_items(body)
        push = to_push(items)
        pushed = await self._submit(JobType.PUSH, push)
        return render_buffered(items) if isinstance(pushed, Buffered) else render_push(items, push.batches, pushed)

    async def pop(self, pop: Pop) -> tuple[Popped, bytes]:
        """The same for a pop: the messages, and the body of the answer, which is empty if there are none."""
        popped: Popped = await self._submit(JobType.POP, pop)
        return popped, render_pop(popped, pop.group) if popped.claims else b""

    async def ack(self, body: bytes) -> bytes:
        """The same for a batch of acks."""
        batch = _acks.decode(body)
        group = batch.consumerGroup or QUEUE_MODE
        items = to_ack_items(batch.acknowledgments, group)
        acked = await self._submit(JobType.ACK, Ack(items))
        return render_ack(items, acked.results)

    def calls(self, kind: JobType) -> int:
        """Calls so far for the jobs of a type."""
        return next(job_queue.calls for job_queue in self.engine.metrics().job_queues if job_queue.kind is kind)

    async def check(self, pushed: int) -> None:
        """Raises MismatchError unless exactly this many messages were ever stored."""
        [row] = await self._pool.fetch(_STORED)
        if row["stored"] != pushed:
            raise MismatchError(f"{pushed} messages were pushed, and {row['stored']} are stored")

    def _heard(self, notification: Notification) -> None:
        self.engine.notify(notification)

    async def _submit(self, kind: JobType, request: object) -> Any:  # noqa: ANN401 - any operation's result
        job = Job(kind, request, asyncio.get_running_loop().create_future())
        self.engine.accept([job])
        return await job.future


def _answer(job: Job, result: Any) -> None:  # noqa: ANN401 - a result or an exception
    with suppress(asyncio.InvalidStateError):
        if isinstance(result, BaseException):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)
