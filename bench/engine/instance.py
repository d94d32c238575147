"""An engine on a PostgreSQL, without HTTP: requests are calls here, with the same parsing and rendering."""

import asyncio
from collections.abc import Container, Hashable
from contextlib import suppress
from typing import Any

import msgspec

from queen.config import Settings
from queen.core.operations import QUEUE_MODE, Ack, Buffered, JobType, Pop, Popped
from queen.db.administration import AdministrationStore
from queen.db.dsn import parse
from queen.db.pool import Pool
from queen.db.store import Store
from queen.engine.context import Context
from queen.engine.directory import Directory
from queen.engine.engine import Engine, Shares
from queen.engine.failover import Failover
from queen.engine.job import Job
from queen.engine.lane import Lane
from queen.engine.ports import Notice
from queen.engine.waiters import Waiters
from queen.http.parsing import parse_push_items, to_push
from queen.http.rendering import render_ack, render_buffered, render_pop, render_push
from queen.http.resources.ack import AckBatchBody, to_ack_items
from queen_bench.database import CONNECT_TIMEOUT_MS
from queen_bench.errors import MismatchError

#: As those of a server with one worker.
SETTINGS = Settings()
_CALL_TIMEOUT_S = 120.0
_PATIENCE_S = 5.0
_STORED = "SELECT coalesce(sum(next_off), 0)::int8 AS stored FROM queen.log_ends"
_acks = msgspec.json.Decoder(AckBatchBody)


class Instance:
    """One engine in this loop, with connections of its own; requests come as bodies and are answered as bodies.

    Args:
        url: a database that is set up.
        connections: for messages.
        failover: where pushes go while PostgreSQL is said to be away; ``None``: nowhere.
    """

    def __init__(self, url: str, connections: int, failover: Failover | None = None) -> None:
        self._pool = Pool(parse(url, "queen bench", CONNECT_TIMEOUT_MS), connections, _CALL_TIMEOUT_S)
        self.store = Store(self._pool)
        directory = Directory(self.store, SETTINGS.cached_partitions)
        administration = AdministrationStore(self._pool)
        self.context = Context(self.store, administration, directory, self._heard, _PATIENCE_S, failover)
        self.engine = Engine(
            self.context, lambda kind: Lane(SETTINGS.policy(kind), SETTINGS.limiter(kind)),
            Waiters(SETTINGS.poll_initial_ms, SETTINGS.poll_max_ms), Shares(connections, 1, 1000), _answer,
        )  # fmt: skip

    async def close(self) -> None:
        """Waits for what is under way, and closes the connections."""
        await self.engine.stop()
        await self._pool.close()

    async def push(self, body: bytes) -> bytes:
        """What the server does for a push, but for HTTP itself."""
        items = parse_push_items(body)
        push = to_push(items)
        pushed = await self._submit(JobType.PUSH, push)
        return render_buffered(items) if isinstance(pushed, Buffered) else render_push(items, push.lots, pushed)

    async def pop(self, pop: Pop) -> tuple[Popped, bytes]:
        """The same for a pop: what came, and the body of the answer; that is empty if nothing came."""
        popped: Popped = await self._submit(JobType.POP, pop)
        return popped, render_pop(popped, pop.group) if popped.claims else b""

    async def ack(self, body: bytes) -> bytes:
        """The same for a batch of acks."""
        batch = _acks.decode(body)
        group = batch.consumerGroup or QUEUE_MODE
        items = to_ack_items(batch.acknowledgments, group)
        acked = await self._submit(JobType.ACK, Ack(items))
        return render_ack(items, acked.results)

    def calls(self, kind: JobType) -> tuple[int, int]:
        """Jobs of a kind and the calls that they were fused into, so far."""
        [lane] = [each for each in self.engine.status().lanes if each.kind is kind]
        return lane.jobs, lane.calls

    async def check(self, pushed: int) -> None:
        """Raises MismatchError unless exactly so many messages were ever stored."""
        [row] = await self._pool.fetch(_STORED)
        if row["stored"] != pushed:
            raise MismatchError(f"{pushed} messages were pushed, and {row['stored']} are stored")

    def _heard(self, notice: Notice, besides: Container[Hashable] = ()) -> None:
        self.engine.heard(notice, besides)

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
