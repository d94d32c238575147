"""Long polls, and bad requests beside good ones, while PostgreSQL is killed."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from spec.conformance.broker import Broker
from spec.conformance.http import Server as Address
from spec.guarantees import Level, checks
from spec.history import PushItem
from tests.chaos.test_kill import kill_a_back_end, kill_postmaster
from tests.support.api import open_client
from tests.support.clock import eventually
from tests.support.processes import Server, open_folder, serving
from tests.support.scraping import scrape, total

LIMIT_S = 240


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as running:
        yield running


@pytest.fixture
def broker(server: Server) -> Broker:
    """Its calls are recorded, whatever becomes of them."""
    return Broker(Address.at(f"http://127.0.0.1:{server.port}"), strict=False)


async def waiting(server: Server, polls: int) -> None:
    """Returns when so many long polls wait in the workers, without a call to PostgreSQL."""
    async with open_client(server.port) as http:

        async def all_wait() -> bool:
            return total(await scrape(http), "queen_waiters") == polls

        await eventually(all_wait, f"{polls} long polls wait", LIMIT_S)


async def back_again(broker: Broker, queue: str) -> None:
    """Returns when PostgreSQL answers again."""

    async def answers() -> bool:
        return (await broker.pop(queue)).outcome == "ok"

    await eventually(answers, "a pop is answered again", LIMIT_S)


async def pushed(broker: Broker, item: PushItem) -> None:
    """Pushes until it is stored; its transaction id makes that once."""

    async def stored() -> bool:
        return (await broker.push([item])).items[0].outcome == "ok"

    await eventually(stored, "a push is answered", LIMIT_S)


@checks("G-WAIT-1", level=Level.FAULTS)
async def test_a_long_poll_outlives_the_postmaster_and_ends_at_its_timeout(server: Server, broker: Broker) -> None:
    await broker.configure("outlives")
    # With a lease: a look of an autoAck pop that breaks off may have taken something, so it ends there.
    served = asyncio.create_task(broker.pop("outlives", wait_s=LIMIT_S))
    ending = asyncio.create_task(broker.pop("nothing", group="g", wait_s=5))
    await waiting(server, 2)
    await kill_postmaster(server, random.Random(0))
    async with asyncio.timeout(LIMIT_S):
        assert (await ending).deliveries == ()
        await pushed(broker, PushItem("outlives", "p", "t", 1))
        popped = await served
        assert [each.payload for each in popped.deliveries] == [1], popped


@checks("G-WAIT-4", level=Level.FAULTS)
async def test_clients_that_disconnect_during_an_outage_take_nothing(server: Server, broker: Broker) -> None:
    await broker.configure("gone", leaseTime=300)
    polls = [asyncio.create_task(broker.pop("gone", wait_s=LIMIT_S)) for _ in range(8)]
    await waiting(server, 8)
    await kill_postmaster(server, random.Random(0))
    for poll in polls:
        poll.cancel()
    await asyncio.gather(*polls, return_exceptions=True)
    await back_again(broker, "gone")
    await pushed(broker, PushItem("gone", "p", "t", 1))
    async with asyncio.timeout(LIMIT_S):
        popped = await broker.pop("gone", wait_s=LIMIT_S)
    assert [(each.payload, each.attempt) for each in popped.deliveries] == [(1, 1)]


@checks("G-ISO-1", level=Level.FAULTS)
async def test_bad_requests_fail_no_others_while_back_ends_are_killed(server: Server, broker: Broker) -> None:
    bad = {"items": [{"queue": "apart", "partition": "bad", "payload": 1, "traceId": "no uuid"}]}
    done = asyncio.Event()

    async def bother() -> None:
        while not done.is_set():
            answer = await broker.send("POST", "/api/v1/push", bad)
            assert answer.status in {400, 503}, answer

    async def work(partition: str) -> None:
        for number in range(30):
            item = PushItem("apart", partition, f"{partition}-{number}", number)
            await pushed(broker, item)

    bothering = [asyncio.create_task(bother()) for _ in range(3)]
    working = [asyncio.create_task(work(f"p{number}")) for number in range(6)]
    for _ in range(3):
        await kill_a_back_end(server, random.Random(0))
        await asyncio.sleep(0.2)  # between two faults
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*working)
    done.set()
    await asyncio.gather(*bothering)
    refused = [record for record in broker.records if record.outcome == "fail"]
    assert refused == []
    popped = await broker.pop("apart", batch=1000, partitions=100)
    assert sorted(each.transaction_id for each in popped.deliveries) == sorted(
        f"p{lane}-{number}" for lane in range(6) for number in range(30)
    )
