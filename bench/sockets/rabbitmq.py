"""RabbitMQ's side: one quorum queue, one connection per consumer, and one that publishes with confirms."""

import asyncio
from collections.abc import Sequence
from itertools import takewhile

from bench.sockets.amqp import Amqp, ack, address_of, publication
from bench.sockets.ledger import Ledger
from bench.sockets.message import body_of, decode, now
from bench.sockets.settings import Settings

_STEP, _UNCONFIRMED_MAX = 500, 5000
_PAUSE_S, _PATIENCE_S = 0.02, 10.0


class RabbitMq:
    """A broker, a quorum queue of this run, and its consumers."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._settings, self._ledger = settings, ledger
        self._address = address_of(settings.url)
        self._publisher = Amqp(on_confirm=self._confirmed)
        self._consumers = [_Consumer(f"consumer {number}", ledger).connection for number in range(settings.sockets)]
        #: Number and due time of unconfirmed messages, by tag.
        self._waiting: dict[int, tuple[int, int]] = {}
        self._tag = 0
        self._heard = asyncio.Event()

    async def prepare(self) -> None:
        """Connects, and makes the queue."""
        await self._publisher.open(self._address)
        await self._publisher.declare(self._settings.queue)
        await self._publisher.confirm()
        for consumer in self._consumers:
            await consumer.open(self._address)

    async def fill(self, count: int) -> None:
        """Stores this many messages, and waits until all are confirmed."""
        for first in range(0, count, _STEP):
            numbers = range(first, min(first + _STEP, count))
            self._publisher.write(b"".join([self._publication(number, 0) for number in numbers]))
            await self._wait_for_confirms(_UNCONFIRMED_MAX)
        await self._wait_for_confirms(0)
        self._ledger.prepared, self._ledger.pushes = count, []
        self._stored.sort()

    async def _wait_for_confirms(self, waiting_max: int) -> None:
        while len(self._waiting) > waiting_max:
            self._heard.clear()
            await self._heard.wait()

    async def subscribe(self) -> None:
        """Starts all consumers."""
        queue, prefetch = self._settings.queue, self._settings.credit
        await asyncio.gather(*[consumer.consume(queue, prefetch) for consumer in self._consumers])

    def push(self, number: int, due: int) -> None:
        """Publishes a message that is due."""
        self._publisher.write(self._publication(number, due))

    def _publication(self, number: int, due: int) -> bytes:
        self._tag += 1
        self._waiting[self._tag] = (number, due)
        return publication(self._settings.queue, body_of(number, due))

    def _confirmed(self, tag: int, multiple: bool, taken: bool, came: int) -> None:
        tags = list(takewhile(lambda each: each <= tag, self._waiting)) if multiple else [tag]
        self._heard.set()
        for each in tags:
            number, due = self._waiting.pop(each)
            if taken:
                self._stored.append(number)
                self._ledger.pushes.append((due, came))
            else:
                self._ledger.problems["publications refused"] += 1

    @property
    def _stored(self) -> list[int]:
        return self._ledger.stored[self._settings.queue]

    async def stop(self) -> None:
        """Stops the consumers, after their acks are processed: the queue has exactly the rest."""
        await asyncio.gather(*[consumer.cancel() for consumer in self._consumers])
        await asyncio.gather(*[consumer.close() for consumer in self._consumers])
        rest, begin = len(self._stored) - self._ledger.acked, now()
        while (there := await self._publisher.declare(self._settings.queue, passive=True)) != rest:
            if now() - begin > _PATIENCE_S * 1e9:
                self._ledger.problems[f"acks that were lost; {there:,} messages are left instead of {rest:,}"] += 1
                return
            await asyncio.sleep(_PAUSE_S)

    async def close(self) -> None:
        """Deletes the queue and closes all connections."""
        await self._publisher.delete(self._settings.queue)
        await self._publisher.close()


class _Consumer:
    """Takes messages, and acks each one individually."""

    def __init__(self, lane: str, ledger: Ledger) -> None:
        self._lane, self._ledger = lane, ledger
        self.connection = Amqp(on_messages=self._take)

    def _take(self, messages: Sequence[tuple[int, bytes]], came: int) -> None:
        note, acks = self._ledger.came.append, []
        for tag, body in messages:
            payload = decode(body)
            note((self._lane, payload.id, payload.id, payload.at, came))
            acks.append(ack(tag))
        self.connection.write(b"".join(acks))
        self._ledger.acked += len(acks)
        self._ledger.ended = came
