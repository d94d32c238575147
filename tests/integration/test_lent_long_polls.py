"""A long poll in one worker, and pushes in another: the push serves it, and no other consumer loses by it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, Message, worker_apis
from tests.support.clock import eventually
from tests.support.processes import Server
from tests.support.scraping import scrape, total

MANY = 200


class Workers(NamedTuple):
    """Connections to both workers, in the same order, for producers and for consumers: a long poll blocks its own."""

    producers: Sequence[Api]
    consumers: Sequence[Api]


async def by_worker(apis: Sequence[Api]) -> list[Api]:
    return [api for _, api in sorted([(await api.worker(), api) for api in apis], key=lambda pair: pair[0])]


@pytest.fixture
async def both(server: Server) -> AsyncIterator[Workers]:
    async with worker_apis(server.port) as producers, worker_apis(server.port) as consumers:
        yield Workers(await by_worker(producers), await by_worker(consumers))


async def looks(api: Api) -> float:
    """Pops that have gone to PostgreSQL so far, in all workers."""
    return total(await scrape(api.http), "queen_engine_batch_jobs_sum", kind="pop")


async def consume(api: Api, queue: str, messages: int, group: str | None = None) -> list[Message]:
    options = {} if group is None else {"consumerGroup": group, "subscriptionMode": "all"}
    came: list[Message] = []
    async with asyncio.timeout(60):
        while len(came) < messages:
            popped = await api.pop(queue, wait=True, timeout=30_000, **options)
            came += popped.messages
            if popped.messages:
                results = await api.ack_items(
                    [
                        {
                            "transactionId": each["transactionId"],
                            "partitionId": each["partitionId"],
                            "leaseId": popped.lease,
                            "status": "completed",
                        }
                        for each in popped.messages
                    ],
                    group,
                )
                assert all(each["success"] for each in results)
    return came


@pytest.mark.nightly
@checks("G-WAIT-1", "G-ORD-1", "G-DUR-3", level=Level.LIVE)
async def test_a_push_serves_the_long_polls_of_another_worker(both: Workers, queue: str) -> None:
    producer, consumer = both.producers[0], both.consumers[1]

    async def served() -> bool:
        before = await looks(producer)
        consuming = asyncio.ensure_future(consume(consumer, queue, MANY))
        for number in range(MANY):
            # In turn, so that there is nothing to prefetch.
            await producer.push(queue, number, partition=f"p{number % 10}")
        came = await consuming
        assert sorted(message["data"] for message in came) == list(range(MANY))
        assert {message["deliveryAttempt"] for message in came} == {1}
        return await looks(producer) - before < MANY / 2

    await eventually(served, "most messages come without a look of their own")


@checks("G-WAIT-1", level=Level.LIVE)
async def test_long_polls_are_served_wherever_messages_are_pushed(both: Workers, queue: str) -> None:
    """Those that wait in the other worker are recalled."""
    consuming = asyncio.ensure_future(consume(both.consumers[1], queue, 2 * MANY))
    for number in range(MANY):
        await asyncio.gather(*[api.push(queue, number, partition=f"p{n}") for n, api in enumerate(both.producers)])
    came = await consuming
    for partition in ("p0", "p1"):
        assert [each["data"] for each in came if each["partition"] == partition] == list(range(MANY))


@pytest.mark.nightly
@checks("G-GRP-1", level=Level.LIVE)
async def test_each_group_gets_each_message_in_whichever_worker_it_waits(both: Workers, queue: str) -> None:
    groups = [asyncio.ensure_future(consume(api, queue, MANY, f"g{n}")) for n, api in enumerate(both.consumers)]
    for number in range(MANY):
        await both.producers[0].push(queue, number)
    for came in await asyncio.gather(*groups):
        assert [message["data"] for message in came] == list(range(MANY))


@checks("G-WAIT-1", level=Level.LIVE)
@pytest.mark.parametrize("size", [10_000, 40_000, 200_000])
async def test_payloads_that_fit_no_datagram_come_all_the_same(both: Workers, queue: str, size: int) -> None:
    producer, consumer = both.producers[0], both.consumers[1]
    consuming = asyncio.ensure_future(consume(consumer, queue, 20))
    for number in range(20):
        await producer.push(queue, {"number": number, "text": "x" * size})
    assert [message["data"]["number"] for message in await consuming] == list(range(20))
