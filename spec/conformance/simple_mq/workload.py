"""The randomised workload of simple-mq: producers and consumers that crash, one queue, and a history of it all.

At the end all clients become reliable, and what the queue and its dead-letter queue hold is read: what is then missing
is lost. Every choice comes from the seed; what the server makes of it does not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from ...simple_mq_history import Left, Record, SimpleMqHistory
from ..http import Server
from ..lab import RefutedError
from .client import Client

_PAUSE_S = 0.02
#: How much later than its timeout a message is looked for.
_VISIBLE_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything; `timeout_s`: visibility timeout; `crash`: the chance that a consumer forgets an ack."""

    producers: int
    consumers: int
    messages: int
    timeout_s: int = 2
    deliveries: int = 4
    crash: float = 0.1


@dataclass
class Workload:
    """One run.

    Attributes:
        server: what is judged.
        size: how much of everything.
        seed: of all choices.
        made: gets the ids of the queues that it makes.
        strict: whether a call without an answer ends the run; otherwise it is recorded as unknown and repeated.
    """

    server: Server
    size: Size
    seed: int
    made: list[str] = field(default_factory=list)
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    strict: bool = True
    records: list[Record] = field(default_factory=list)
    sent: int = 0

    async def run(self) -> SimpleMqHistory:
        """Produce, consume, and read what is left."""
        calm = self._client(strict=True)
        size = self.size
        queue = await calm.create(size=max(1, size.messages * 2), hidden_s=size.timeout_s, deliveries=size.deliveries)
        random = Random(self.seed)  # noqa: S311 - repeatable, not secret
        producing = [self._produce(queue, size.messages // size.producers) for _ in range(size.producers)]
        done = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            seeds = [random.random() for _ in range(size.consumers)]
            consumers = [group.create_task(self._consume(queue, Random(seed), done)) for seed in seeds]  # noqa: S311
            await asyncio.gather(*producing)
            done.set()
            await asyncio.gather(*consumers)
        return await self._finish(calm, queue)

    def _client(self, *, strict: bool) -> Client:
        return Client(self.server, self.statuses, strict=strict, made=self.made, records=self.records)

    async def _produce(self, queue: str, messages: int) -> None:
        client = self._client(strict=self.strict)
        for _ in range(messages):
            self.sent += 1
            data = f"message-{self.sent}"
            while (await client.enqueue(queue, data)).outcome != "ok":
                await asyncio.sleep(_PAUSE_S)
                # Sent again it is another message, and has another text.
                self.sent += 1
                data = f"message-{self.sent}"

    async def _consume(self, queue: str, random: Random, done: asyncio.Event) -> None:
        """Polls and acks until the producers are done; crashes on the way."""
        client = self._client(strict=self.strict)
        while not done.is_set():
            poll = await client.poll(queue)
            if not poll.message_id:
                await asyncio.sleep(_PAUSE_S)
            elif random.random() >= self.size.crash:
                await self._ack(client, queue, poll.message_id)

    async def _ack(self, client: Client, queue: str, message_id: str) -> None:
        while (await client.ack(queue, message_id)).outcome == "unknown":  # noqa: ASYNC110 - until the server answers
            await asyncio.sleep(_PAUSE_S)

    async def _finish(self, calm: Client, queue: str) -> SimpleMqHistory:
        """Drains half of what is left, first what crashed consumers had taken, and reads the rest."""
        # Time that has to pass: a client cannot see when the last hidden message is visible again without taking it.
        await asyncio.sleep(self.size.timeout_s + _VISIBLE_AGAIN_S)
        for _ in range(await calm.count(queue) // 2):
            poll = await calm.poll(queue)
            if not poll.message_id:
                break
            await calm.ack(queue, poll.message_id)
        dlq = (await calm.describe(queue))["dlq_id"]
        dead: list[str] = []
        if dlq:
            self.made.append(dlq)
            dead = [str(message["message_id"]) for message in await calm.peek(dlq)]
            if len(dead) != await calm.count(dlq):
                raise RefutedError(f"the dead-letter queue counts {await calm.count(dlq)} messages and has {len(dead)}")
        left = tuple(str(message["message_id"]) for message in await calm.peek(queue))
        self.records.append(Left(queue=queue, count=await calm.count(queue), message_ids=left))
        return SimpleMqHistory(tuple(self.records), self.size.timeout_s, self.size.deliveries, frozenset(dead))
