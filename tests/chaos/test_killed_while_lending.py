"""Workers that are killed or stopped while long polls of a sibling wait in them."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, open_client, worker_apis
from tests.support.nightly import mostly_at_night
from tests.support.processes import Server, serving_workers

TRIES = 5


@pytest.fixture(scope="module")
def two() -> Iterator[Server]:
    with serving_workers(2) as server:
        yield server


@asynccontextmanager
async def consuming(api: Api, queue: str, came: list[int], attempts: set[int]) -> AsyncIterator[None]:
    """Pops and acknowledges over one connection, as long as the block lasts."""

    async def consume() -> None:
        while True:
            popped = await api.pop(queue, wait=True, timeout=5000)
            came.extend(message["data"] for message in popped.messages)
            attempts.update(message["deliveryAttempt"] for message in popped.messages)
            if popped.messages:
                await api.ack(popped.messages)

    consumer = asyncio.ensure_future(consume())
    try:
        yield
    finally:
        consumer.cancel()


async def arrives(came: list[int], number: int) -> None:
    """Waits until a message is there, and fails long before a lease of it would end."""
    async with asyncio.timeout(60):
        while number not in came:
            await asyncio.sleep(0.01)


@checks("G-LEASE-5", "G-DUR-3", level=Level.FAULTS)
@pytest.mark.parametrize("how", mostly_at_night([signal.SIGKILL, signal.SIGSTOP], [signal.SIGKILL]))
async def test_long_polls_outlive_the_worker_that_they_were_lent_to(two: Server, how: signal.Signals) -> None:
    for attempt in range(TRIES):
        queue = f"{how.name.lower()}-{attempt}"
        came: list[int] = []
        attempts: set[int] = set()
        async with worker_apis(two.port) as (consumer, producer):
            await producer.configure(queue, leaseTime=3600)
            worker, stored = await producer.worker(), 0
            async with consuming(consumer, queue, came, attempts):
                for number in range(100):
                    await producer.push(queue, number)
                await arrives(came, 99)
                unanswered = asyncio.ensure_future(producer.push(queue, 100))
                os.kill(worker, how)
                async with worker_apis(two.port, 1) as [other]:
                    await other.push(queue, 101)
                    await arrives(came, 101)
                if how is signal.SIGSTOP:
                    os.kill(worker, signal.SIGCONT)
                try:
                    await unanswered
                    stored = 1
                except httpx.HTTPError:
                    pass
                async with open_client(two.port) as http:
                    await Api(http).push(queue, 102)
                    await arrives(came, 102)
                if stored:
                    await arrives(came, 100)
            assert attempts == {1}
            assert sorted(came) == sorted(set(came))
            assert set(came) >= {*range(100), 101, 102}
