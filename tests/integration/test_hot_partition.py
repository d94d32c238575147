"""Many writers on one partition, and consumers beside them: no loss, no gap, no reorder, no duplicate."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any

import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, Message, open_client
from tests.support.nightly import mostly_at_night
from tests.support.processes import Server

WRITERS = 16
PUSHES = 40


@pytest.fixture
def seed() -> Iterator[int]:
    """Printed, so that pytest shows it when the test fails."""
    number = random.SystemRandom().randrange(2**32)
    print(f"seed: {number}")
    return number


async def connections(stack: AsyncExitStack, server: Server, number: int) -> list[Api]:
    """Connections, each to one worker, over both workers."""
    apis = [Api(await stack.enter_async_context(open_client(server.port, 1))) for _ in range(number)]
    while len(set(await asyncio.gather(*[api.worker() for api in apis]))) < 2:
        apis.append(Api(await stack.enter_async_context(open_client(server.port, 1))))
    return apis[-number:] if len({await api.worker() for api in apis[-number:]}) == 2 else apis


async def write(api: Api, queue: str, writer: int, choices: random.Random, chosen: bool) -> list[dict[str, Any]]:
    """Pushes numbers, some at a time; the results in order."""
    results: list[dict[str, Any]] = []
    for _ in range(PUSHES):
        numbers = range(len(results), len(results) + choices.choice([1, 1, 1, 2, 5, 20]))
        ids = [f"{writer}-{n}" for n in numbers] if chosen else None
        answer = await api.push(queue, *[[writer, n] for n in numbers], ids=ids)
        assert {result["status"] for result in answer} == {"queued"}
        results += answer
    return results


class Consumers:
    """Several consumers of one group, until they have got all there is."""

    def __init__(self, queue: str, group: str, choices: random.Random) -> None:
        self.queue, self.group, self.choices = queue, group, choices
        self.seen: list[Message] = []
        self.total: int | None = None

    async def consume(self, api: Api) -> None:
        while self.total is None or len(self.seen) < self.total:
            popped = await api.pop(
                self.queue,
                consumerGroup=self.group,
                subscriptionMode="all",
                batch=self.choices.choice([1, 7, 50, 500]),
                wait=True,
                timeout=2000,
            )
            # Written down before the ack is sent, so before anybody else can get what follows.
            self.seen += popped.messages
            if popped.messages:
                assert all(result["success"] for result in await api.ack(popped.messages))


def is_rising(numbers: list[int]) -> bool:
    return all(a < b for a, b in pairwise(numbers))


@checks(
    "G-ORD-1",
    "G-ORD-2",
    "G-ORD-3",
    "G-ORD-4",
    "G-ORD-5",
    "G-DUR-3",
    "G-ACK-2",
    "G-ACK-3",
    "G-LEASE-1",
    level=Level.LIVE,
)
@pytest.mark.parametrize("chosen", mostly_at_night([False, True], [True]), ids=["server-made ids", "chosen ids"])
async def test_hot_partition_with_many_writers_and_consumers_keeps_every_message_in_order(
    server: Server, queue: str, seed: int, chosen: bool
) -> None:
    choices = random.Random(seed)
    async with AsyncExitStack() as stack:
        writers = await connections(stack, server, WRITERS)
        readers = await connections(stack, server, 6)
        groups = [Consumers(queue, f"g{n}", random.Random(seed + n)) for n in range(2)]
        reading = [asyncio.create_task(groups[n % 2].consume(api)) for n, api in enumerate(readers)]
        written = await asyncio.gather(
            *[write(api, queue, n, random.Random(choices.random()), chosen) for n, api in enumerate(writers)]
        )
        total = sum(len(results) for results in written)
        for group in groups:
            group.total = total
        await asyncio.gather(*reading)
    for group in groups:
        assert [message["offset"] for message in group.seen] == list(range(total)), "no loss, no gap, in order, once"
        assert {message["deliveryAttempt"] for message in group.seen} == {1}
        times = [message["createdAt"] for message in group.seen]
        assert times == sorted(times)
        offsets = {message["id"]: message["offset"] for message in group.seen}
        data = {message["id"]: message["data"] for message in group.seen}
        for writer, results in enumerate(written):
            own = [result["message_id"] for result in results]
            assert [data[each] for each in own] == [[writer, n] for n in range(len(own))]
            assert is_rising([offsets[each] for each in own]), "answered pushes keep their order"


@checks("G-IDEM-1", "G-IDEM-2", "G-ORD-2", level=Level.LIVE)
async def test_hot_partition_with_racing_duplicates_stores_each_id_once(server: Server, queue: str, seed: int) -> None:
    choices = random.Random(seed)
    names = [f"t{n}" for n in range(200)]

    async def repeat(api: Api) -> list[dict[str, Any]]:
        mine = choices.sample(names, len(names))
        results: list[dict[str, Any]] = []
        while mine:
            some = [mine.pop() for _ in range(min(len(mine), choices.randrange(1, 12)))]
            some += choices.choices(some, k=choices.randrange(3))
            filler = [{"queue": queue, "payload": "filler"}] * choices.randrange(2)
            items = [{"queue": queue, "payload": name, "transactionId": name} for name in some] + filler
            choices.shuffle(items)
            results += await api.push_items(items)
        return results

    async with AsyncExitStack() as stack:
        apis = await connections(stack, server, 8)
        results = [result for answer in await asyncio.gather(*map(repeat, apis)) for result in answer]
        log = (await apis[0].pop(queue, batch=10_000)).messages
    assert [message["offset"] for message in log] == list(range(len(log)))
    stored = {message["transactionId"]: message["id"] for message in log}
    assert len(stored) == len(log), "each id once"
    queued = [result["transaction_id"] for result in results if result["status"] == "queued"]
    assert sorted(queued) == sorted(stored), "each stored message was answered queued exactly once"
    assert {result["status"] for result in results} == {"queued", "duplicate"}
    assert all(result["message_id"] == stored[result["transaction_id"]] for result in results)
    assert all(message["data"] in (message["transactionId"], "filler") for message in log)


@checks("G-ORD-2", "G-ACK-3", "G-LEASE-1", level=Level.LIVE)
async def test_hot_partition_with_consumers_that_fail_and_stall_loses_nothing(
    server: Server, queue: str, seed: int
) -> None:
    choices = random.Random(seed)
    total = 150
    done: list[int] = []
    first_seen: list[int] = []

    async def consume(api: Api) -> None:
        while len(done) < total:
            popped = await api.pop(queue, batch=choices.randrange(1, 20), wait=True, timeout=500, leaseSeconds=3)
            first_seen.extend(m["offset"] for m in popped.messages if m["deliveryAttempt"] == 1)
            if not popped.messages:
                continue
            fate = choices.random()
            if fate < 0.01:
                continue  # stalls: the lease runs out
            part = choices.sample(popped.messages, choices.randrange(1, len(popped.messages) + 1))
            results = await api.ack(part, "completed" if fate < 0.8 else "retry")
            if fate < 0.8:
                done.extend(m["data"] for m, r in zip(part, results, strict=True) if r["success"] and not r.get("noop"))
                if len(part) < len(popped.messages):
                    rest = [message for message in popped.messages if message not in part]
                    await api.ack(rest, "retry")

    async with AsyncExitStack() as stack:
        apis = await connections(stack, server, 4)
        consuming = [asyncio.create_task(consume(api)) for api in apis]
        for n in range(total):
            await apis[0].push(queue, n)
        await asyncio.gather(*consuming)
        assert sorted(done) == list(range(total)), "completed once each"
        assert (await apis[0].pop(queue)).messages == []
    assert is_rising(first_seen)
