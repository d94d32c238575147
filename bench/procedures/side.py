"""What is compared: a store of messages as the benchmark sees it, and the messages that it is given."""

import itertools
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol
from uuid import UUID

from msgspec import Struct

#: A call that is ready to be sent; nothing of it is prepared while the clock runs.
Call = Callable[[], Awaitable[object]]

PAYLOAD_BYTES = 100
_PAYLOADS = 4096
_PAYLOAD = b'{"order":"%08d","customer":"%b"}'
_FILLER = PAYLOAD_BYTES - len(_PAYLOAD % (0, b""))


class Message(Struct, frozen=True):
    """One message to push: number of its partition, JSON payload, and transaction id if the client chose one."""

    partition: int
    payload: bytes
    transaction_id: str | None


class Consumable(Protocol):
    """What messages can be taken from."""

    async def subscribe(self, queue: str, group: str) -> None:
        """Makes a consumer group that begins with the oldest message."""

    async def pop_and_ack(self, queue: str, group: str, batch: int) -> int:
        """Takes up to ``batch`` messages of any one partition and completes them; returns how many."""


class Side(Consumable, Protocol):
    """One of the two stores. Queues, groups and partitions are made by the benchmark before they are used."""

    name: str
    tables: Sequence[str]

    async def set_up(self) -> None:
        """Makes tables and procedures in a fresh database."""

    async def make_partitions(self, queue: str, count: int) -> None:
        """Makes partitions 0 to count - 1 of a queue."""

    def push(self, queue: str, messages: Sequence[Message]) -> Call:
        """The call that stores these messages, all of them new."""

    async def skip_all(self, queue: str, group: str) -> None:
        """Completes all messages of a group."""

    def pop_statement(self, queue: str, group: str, batch: int) -> str:
        """The SQL of one pop of any partition, without parameters."""

    async def stored(self) -> int:
        """How many messages are stored."""


def portions(total: int, at_once: int) -> Iterator[int]:
    """So many in portions: all of the same size, but for the last one."""
    for begin in range(0, total, at_once):
        yield min(at_once, total - begin)


class MessageSource:
    """Messages with payloads of 100 bytes that differ and hardly compress: the same ones in every run."""

    def __init__(self) -> None:
        generator = random.Random(7)
        payloads = [
            _PAYLOAD % (number, generator.randbytes(_FILLER).hex()[:_FILLER].encode()) for number in range(_PAYLOADS)
        ]
        self._payloads = itertools.cycle(payloads)
        self._numbers = itertools.count(generator.getrandbits(60))

    def take(self, count: int, partition: int, *, chosen: bool) -> list[Message]:
        """Messages for one partition, with transaction ids of the client's choice or without."""
        payloads = itertools.islice(self._payloads, count)
        return [Message(partition, payload, self._transaction_id() if chosen else None) for payload in payloads]

    def _transaction_id(self) -> str:
        # A v4 UUID: what most clients choose. The multiplier spreads consecutive numbers over all its bits.
        return str(UUID(int=next(self._numbers) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128), version=4))


def time_ordered_uuid(counter: "itertools.count[int]") -> UUID:
    """A version 7 UUID: milliseconds, then a counter, so that index pages are filled one after the other."""
    milliseconds = time.time_ns() // 1_000_000
    return UUID(int=milliseconds << 80 | 0x7 << 76 | 0x2 << 62 | next(counter) & ((1 << 62) - 1))
