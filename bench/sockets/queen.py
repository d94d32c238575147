"""Queen's side: sockets that take and ack, and pushes over HTTP."""

import asyncio
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from bench.sockets.http import Http
from bench.sockets.journal import Entry
from bench.sockets.ledger import Ledger
from bench.sockets.message import Payload, body_of, now
from bench.sockets.settings import Settings
from bench.sockets.websocket import WebSocket

_PATH, _PROTOCOL = "/api/v1/subscribe", "queen.v1"
_STEP = 1000
_LEASE_S = 60
_BATCH, _ACKED = b'{"type":"batch"', b'{"type":"acked"'


class _Message(Struct):
    transactionId: str  # noqa: N815 - the interface's names
    partitionId: str  # noqa: N815
    partition: str
    offset: int
    data: Payload


class _Batch(Struct):
    leaseId: str  # noqa: N815
    messages: list[_Message]


class _Acked(Struct):
    ref: int
    refused: list[dict[str, object]]


class _Other(Struct):
    type: str
    partitions: int = 0


_decode_batch = msgspec.json.Decoder(_Batch).decode
_decode_acked = msgspec.json.Decoder(_Acked).decode
_decode_other = msgspec.json.Decoder(_Other).decode


class Queen:
    """A server, a queue of this run, and its consumers."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._settings, self._ledger = settings, ledger
        place = urlsplit(settings.url)
        self._host, self._port = place.hostname or "127.0.0.1", place.port or 80
        self._http = Http(self._host, self._port, settings.token)
        self._consumers: list[_Consumer] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._entries: list[Entry] = []

    async def prepare(self) -> None:
        """Connects, and makes the queue."""
        options = {"queue": self._settings.queue, "options": {"leaseTime": _LEASE_S}}
        await self._ask("configure", "POST", "/configure", msgspec.json.encode(options))
        for number in range(self._settings.sockets):
            consumer = _Consumer(number + 1, self._settings, self._ledger)
            await consumer.socket.open(self._host, self._port, _PATH, _PROTOCOL, self._settings.token)
            self._consumers.append(consumer)

    async def fill(self, count: int) -> None:
        """Stores this many messages, a thousand per request and partition."""
        for first in range(0, count, _STEP):
            numbers = range(first, min(first + _STEP, count))
            partition = self._partition(first // _STEP)
            await self._ask("push", "POST", "/push", self._items(numbers, partition, 0))
            self._ledger.stored[partition] += numbers
            self._ledger.prepared += len(numbers)

    async def subscribe(self) -> None:
        """Starts all consumers."""
        await asyncio.gather(*[consumer.subscribe() for consumer in self._consumers])

    def push(self, number: int, due: int) -> None:
        """Sends a message that is due."""
        task = asyncio.create_task(self._push(number, due))
        self._tasks.add(task)
        task.add_done_callback(self._pushed)

    def _pushed(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        task.result()  # a push that failed ends the load

    async def _push(self, number: int, due: int) -> None:
        partition = self._partition(number)
        await self._ask("push", "POST", "/push", self._items([number], partition, due))
        self._ledger.stored[partition].append(number)
        self._ledger.pushes.append((due, now()))

    async def stop(self) -> None:
        """Stops the consumers, after all their messages are acked."""
        await asyncio.gather(*[consumer.stop() for consumer in self._consumers])

    async def close(self) -> None:
        """Deletes the queue, unless it should be kept, and closes all connections."""
        for consumer in self._consumers:
            consumer.socket.close()
        if not self._settings.keep:
            await self._ask("delete", "DELETE", f"/resources/queues/{self._settings.queue}", b"")
        self._http.close()

    def entries(self) -> list[Entry]:
        """The calls of the journal."""
        return self._entries + [entry for consumer in self._consumers for entry in consumer.entries()]

    def _partition(self, number: int) -> str:
        return f"p{number % self._settings.partitions}"

    def _items(self, numbers: Sequence[int], partition: str, due: int) -> bytes:
        head = b'{"queue":"%b","partition":"%b","payload":' % (self._settings.queue.encode(), partition.encode())
        return b'{"items":[%b]}' % b",".join([head + body_of(number, due) + b"}" for number in numbers])

    async def _ask(self, op: str, method: str, path: str, body: bytes) -> None:
        sent = now()
        status, answer = await self._http.ask(method, "/api/v1" + path, body)
        if self._settings.journal:
            self._entries.append(Entry(op, 0, sent, now(), status, body, answer))
        if not 200 <= status < 300:
            raise ConnectionError(f"{method} {path} was answered {status}: {answer.decode(errors='replace')}")


class _Consumer:
    """One socket; the number of an ack is its ``ref``."""

    def __init__(self, number: int, settings: Settings, ledger: Ledger) -> None:
        self._number, self._settings, self._ledger = number, settings, ledger
        self.socket = WebSocket(self._texts)
        self._answer: asyncio.Future[_Other] | None = None
        self._subscribed, self._partitions = 0, 0
        self._delivered = 0
        self._sent: list[int] = []
        self._answered = 0
        self._all_answered = asyncio.Event()
        # For the journal: batches with their messages, acks, and their answers.
        self._batches: list[tuple[int, int, bytes]] = []
        self._frames: list[bytes] = []
        self._answers: dict[int, tuple[int, bytes]] = {}

    async def subscribe(self) -> None:
        """Starts to consume."""
        wanted = {"type": "subscribe", "queue": self._settings.queue, "credit": self._settings.credit}
        self._subscribed = now()
        self._partitions = (await self._ask(wanted)).partitions

    async def stop(self) -> None:
        """Stops to consume, after all messages are acked."""
        await self._ask({"type": "credit", "messages": 0})
        if self._answered < len(self._sent):
            await self._all_answered.wait()

    async def _ask(self, frame: dict[str, object]) -> _Other:
        self._answer = asyncio.get_running_loop().create_future()
        self.socket.send([msgspec.json.encode(frame)])
        return await self._answer

    def _texts(self, texts: Sequence[bytes], came: int) -> None:
        acks: list[bytes] = []
        for text in texts:
            if text.startswith(_BATCH):
                acks += self._batch(text, came)
            elif text.startswith(_ACKED):
                self._acked(text, came)
            else:
                self._other(text)
        if acks:
            self._sent += [now()] * len(acks)
            self.socket.send(acks)
            self._all_answered.clear()
            if self._settings.journal:
                self._frames += acks

    def _batch(self, text: bytes, came: int) -> Iterator[bytes]:
        batch = _decode_batch(text)
        lease, first, note = batch.leaseId, self._delivered, self._ledger.came.append
        self._delivered += len(batch.messages)
        self._ledger.ended = came
        if self._settings.journal:
            self._batches.append((came, self._delivered, text))
        for ref, each in enumerate(batch.messages, first):
            note((each.partition, each.offset, each.data.id, each.data.at, came))
            yield (
                f'{{"type":"ack","ref":{ref},"acknowledgments":[{{"transactionId":"{each.transactionId}",'
                f'"partitionId":"{each.partitionId}","leaseId":"{lease}"}}]}}'
            ).encode()

    def _acked(self, text: bytes, came: int) -> None:
        answer = _decode_acked(text)
        self._ledger.acks.append((self._sent[answer.ref], came))
        self._ledger.ended = came
        self._answered += 1
        if answer.refused:
            self._ledger.problems[f"acks refused, {answer.refused[0].get('error')}"] += 1
        else:
            self._ledger.acked += 1
        if self._settings.journal:
            self._answers[answer.ref] = (came, _as_over_http(answer))
        if self._answered == len(self._sent):
            self._all_answered.set()

    def _other(self, text: bytes) -> None:
        frame = _decode_other(text)
        if frame.type == "error":
            raise ConnectionError(f"The server answered a frame of the WebSocket with {text.decode()}")
        if frame.type != "welcome" and self._answer is not None:
            self._answer.set_result(frame)

    def entries(self) -> Iterator[Entry]:
        """The calls of the journal: each batch is the answer to a pop, each ack a call."""
        asked = {"queue": self._settings.queue, "batch": self._settings.credit, "partitions": self._partitions}
        request = msgspec.json.encode(asked)
        for came, delivered, text in self._batches:
            yield Entry("pop", self._number, self._asked_at(delivered), came, 200, request, text)
        for ref, frame in enumerate(self._frames):
            if ref in self._answers:
                came, answer = self._answers[ref]
                yield Entry("ack", self._number, self._sent[ref], came, 200, frame, answer)
            else:
                yield Entry("ack", self._number, self._sent[ref], self._sent[ref], 0, frame, b"")

    def _asked_at(self, delivered: int) -> int:
        """The earliest possible start of the pop that brings the delivered messages to this number.

        Before it, the server had read enough acks to have credit for them.
        """
        acks = delivered - self._settings.credit
        return self._sent[acks - 1] if acks > 0 else self._subscribed


def _as_over_http(answer: _Acked) -> bytes:
    error = answer.refused[0].get("error") if answer.refused else None
    return msgspec.json.encode([{"success": error is None, "error": error}])
