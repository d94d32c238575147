"""The messages of the scenarios, and calls that push them."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from uuid import UUID

from msgspec import Struct

#: A call that is ready to be sent, so that its preparation is not measured.
Call = Callable[[], Awaitable[object]]

PAYLOAD_BYTES = 100
_PAYLOADS, _FILLERS = 4096, 4
_PAYLOAD = b'{"order":"%08d","customer":"%b"}'
_FILLER = PAYLOAD_BYTES - len(_PAYLOAD % (0, b""))


class Message(Struct, frozen=True):
    """One message to push: number of its partition, JSON payload, and transaction id if the client chose one."""

    partition: int
    payload: bytes
    transaction_id: str | None


class MessageSource:
    """Messages with distinct payloads of 100 bytes that hardly compress, equal in every run."""

    def __init__(self) -> None:
        generator = random.Random(7)
        payloads = [
            _PAYLOAD % (number, generator.randbytes(_FILLER).hex()[:_FILLER].encode()) for number in range(_PAYLOADS)
        ]
        self._payloads = itertools.cycle(payloads)
        self._numbers = itertools.count(generator.getrandbits(60))

    def take(self, count: int, partition: int, *, chosen: bool = False) -> list[Message]:
        """Messages for one partition, with or without client-chosen transaction ids."""
        payloads = itertools.islice(self._payloads, count)
        return [Message(partition, payload, self._transaction_id() if chosen else None) for payload in payloads]

    def one_each(self, partitions: Iterable[int]) -> list[Message]:
        """A message for each of these partitions."""
        return [message for number in partitions for message in self.take(1, number)]

    def _transaction_id(self) -> str:
        # A v4 UUID: what most clients choose. The multiplier spreads consecutive numbers over all its bits.
        return str(UUID(int=next(self._numbers) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128), version=4))


def portions(total: int, at_once: int) -> Iterator[range]:
    """The numbers from 0 in chunks of the same size, except the last one."""
    for begin in range(0, total, at_once):
        yield range(begin, min(begin + at_once, total))


async def carry_out(calls: Iterable[Call]) -> None:
    """Chunks of items, each made when it is needed."""
    waiting = iter(calls)

    async def fill() -> None:
        for call in waiting:
            await call()

    await asyncio.gather(*(fill() for _ in range(_FILLERS)))
