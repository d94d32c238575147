"""Producers and consumers that live through faults, and what they saw."""

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg
import httpx

_PAUSE_S = 0.05
#: Ends what hangs.
_PATIENCE_S = 240
#: With so many messages waiting producers are slow: consumers, who are slower, have to end within the patience.
_MANY_WAITING, _SLOW_S = 3_000, 0.5


@dataclass
class Journal:
    """What clients were told.

    Attributes:
        answered: transaction ids whose push was answered as stored, by partition, in the order of the answers.
        completed: messages whose ack was answered as carried out, and how many there were before.
        delivered: how often each message was delivered, and at which offset.
        redelivered: messages that came in answer to a pop that was sent after their completion had been answered.
        statuses: answers other than those of a quiet day.
        buffered: messages that went through the spool.
    """

    answered: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    completed: dict[str, int] = field(default_factory=dict)
    delivered: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    redelivered: list[str] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    buffered: int = 0


class Traffic:
    """One queue under load: each producer owns a partition, so that its order can be judged.

    ``urls`` may change while it runs: each request goes to any of the instances. A producer rests ``rest_s`` after each
    push, or longer while many messages wait.
    """

    def __init__(self, url: str, queue: str, seed: int, rest_s: float = 0.0) -> None:
        self.urls, self.queue, self.journal = [url], queue, Journal()
        self._rest_s = rest_s
        self._random = random.Random(seed)
        self.stop_producing, self.stop_consuming = asyncio.Event(), asyncio.Event()

    async def request(self, client: httpx.AsyncClient, method: str, path: str, **arguments: Any) -> httpx.Response:
        """The answer, however often the connection breaks or the server asks to come again."""
        while True:
            try:
                response = await client.request(method, self._random.choice(self.urls) + path, **arguments)
            except httpx.TransportError:
                self.journal.statuses[0] += 1
            else:
                if response.status_code < 500:
                    return response
                self.journal.statuses[response.status_code] += 1
            await asyncio.sleep(_PAUSE_S)

    async def produce(self, partition: str) -> None:
        """Pushes numbered messages one request after the other, repeating each until it is answered."""
        number = 0
        async with httpx.AsyncClient(timeout=_PATIENCE_S) as client:
            while not self.stop_producing.is_set():
                number_of_items = self._random.randint(1, 5)
                ids = [str(UUID(int=self._random.getrandbits(128), version=4)) for _ in range(number_of_items)]
                items = [
                    {"queue": self.queue, "partition": partition, "payload": number + place, "transactionId": text}
                    for place, text in enumerate(ids)
                ]
                number += len(ids)
                response = await self.request(client, "POST", "/api/v1/push", json={"items": items})
                assert response.status_code == 201, response.text
                statuses = {item["status"] for item in response.json()}
                assert statuses <= {"queued", "duplicate", "buffered"}, response.text
                self.journal.buffered += len(ids) * ("buffered" in statuses)
                self.journal.answered[partition] += ids
                waiting = sum(map(len, self.journal.answered.values())) - len(self.journal.completed)
                await asyncio.sleep(self._rest_s if waiting < _MANY_WAITING else _SLOW_S)

    async def consume(self, shape: str) -> None:
        """Pops and acks until told to stop; now and then it acks only some."""
        async with httpx.AsyncClient(timeout=_PATIENCE_S) as client:
            while not self.stop_consuming.is_set():
                path = f"/api/v1/pop/queue/{self.queue}?{shape}&wait=true&timeout=500"
                completed = len(self.journal.completed)
                response = await self.request(client, "GET", path)
                if response.status_code == 200:
                    await self._work(client, response.json()["messages"], completed)

    async def ack_and_pop(self) -> None:
        """Goes through partitions message by message, each ack with the next pop, until told to stop."""
        pop = {"queue": self.queue, "batch": 1, "wait": True, "timeout": 500}
        async with httpx.AsyncClient(timeout=_PATIENCE_S) as client:
            messages: list[dict[str, Any]] = []
            while not self.stop_consuming.is_set():
                completed = len(self.journal.completed)
                answer = await self._ack(client, messages, {"pop": pop})
                messages = answer["pop"]["messages"] if answer["pop"] else []
                self._note_delivered(messages, completed)
            await self._ack(client, messages, {})

    async def _work(self, client: httpx.AsyncClient, messages: list[dict[str, Any]], completed: int) -> None:
        """Acks messages of a pop; so many were completed when it was sent."""
        self._note_delivered(messages, completed)
        # A message that is left alone comes again when its lease ends, and those behind it wait.
        some = self._random.random() < (0.2 if len(messages) > 1 else 0.001)
        done = messages[: len(messages) // 2] if some else messages
        if done:
            await self._ack(client, done, {})

    def _note_delivered(self, messages: list[dict[str, Any]], completed: int) -> None:
        for message in messages:
            if self.journal.completed.get(message["transactionId"], completed) < completed:
                self.journal.redelivered.append(message["transactionId"])
            self.journal.delivered[message["transactionId"]] += 1

    async def _ack(self, client: httpx.AsyncClient, messages: list[dict[str, Any]], more: dict[str, Any]) -> Any:
        """Acks messages, and notes which of them are completed; returns the answer."""
        fields = ("transactionId", "partitionId", "leaseId")
        acks = [{name: message[name] for name in fields} for message in messages]
        body = json.dumps({"acknowledgments": acks, **more})
        response = await self.request(client, "POST", "/api/v1/ack/batch", content=body)
        assert response.status_code == 200, response.text
        answer = response.json()
        results = answer["acknowledgments"] if more else answer
        for message, result in zip(messages, results, strict=True):
            if result["success"]:
                self.journal.completed.setdefault(message["transactionId"], len(self.journal.completed))
        return answer

    async def progress(self, more: int) -> None:
        """Returns when so many more messages were completed."""
        goal = len(self.journal.completed) + more
        async with asyncio.timeout(_PATIENCE_S):
            while len(self.journal.completed) < goal:
                await asyncio.sleep(0.02)

    async def all_completed(self) -> None:
        """Returns when everything that was answered as stored has been completed."""
        async with asyncio.timeout(_PATIENCE_S):
            everything = {text for texts in self.journal.answered.values() for text in texts}
            while not everything <= self.journal.completed.keys():
                await asyncio.sleep(0.05)

    async def run(
        self,
        disturb: Callable[[], Awaitable[None]],
        partitions: Sequence[str] = ("p0", "p1", "p2", "p3"),
        consumers: int = 3,
    ) -> None:
        """Keeps it running while ``disturb`` does its work, and until all that was stored is completed."""
        async with asyncio.TaskGroup() as group:
            producing = [group.create_task(self.produce(partition)) for partition in partitions]
            # One works message by message: for that one the server prefetches.
            shapes = ["batch=1", *["batch=20&partitions=3"] * (consumers - 1)]
            consuming = [group.create_task(self.consume(shape)) for shape in shapes]
            consuming.append(group.create_task(self.ack_and_pop()))
            await self.progress(150)
            await disturb()
            await self.progress(150)
            self.stop_producing.set()
            await asyncio.gather(*producing)
            await self.all_completed()
            self.stop_consuming.set()
            await asyncio.gather(*consuming)

    async def judge(self, *dsns: str) -> None:
        """Compares what the clients were told with what is stored: nothing lost, doubled, reordered, or come again."""
        rows = [row for dsn in dsns for row in await self._stored(dsn)]
        print(f"{len(rows)} messages, answers beside the usual: {dict(self.journal.statuses)}")
        stored: dict[str, list[Any]] = defaultdict(list)
        for row in rows:
            stored[row["partition"]].append(row)
        for partition, answered in self.journal.answered.items():
            log = stored[partition]
            assert [row["off"] for row in log] == list(range(len(log))), "a gap"
            assert [row["number"] for row in log] == list(range(len(log))), "lost, doubled or reordered"
            texts = [row["transaction_id"] for row in log]
            assert texts[: len(answered)] == answered, "what was answered is not what is stored"
        assert self.journal.redelivered == [], "completed messages came again"

    async def _stored(self, dsn: str) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetch(
                "SELECT partition, off, transaction_id, payload::text::int AS number FROM queen.messages"
                " WHERE queue = $1 ORDER BY partition, off",
                self.queue,
            )
        finally:
            await connection.close()
