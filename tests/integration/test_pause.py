"""Paused queues and groups: nothing is delivered, everything else goes on, and a resumption wakes who waits."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, worker_apis
from tests.support.clock import eventually
from tests.support.processes import Server
from tests.support.scraping import scrape, total
from tests.support.sockets import data_of, open_socket

ALL = {"subscriptionMode": "all"}
LONG = {**ALL, "wait": True, "timeout": 120_000}
#: What is paused: a queue, or a group of it.
PLACES = pytest.mark.parametrize("group", [None, "g"], ids=["queue", "group"])


def path(queue: str, group: str | None) -> str:
    name = quote(queue, safe="")
    return f"/api/v1/consumer-groups/{group}/queues/{name}/pause" if group else f"/api/v1/resources/queues/{name}/pause"


async def pause(api: Api, queue: str, group: str | None, *, on: bool = True) -> None:
    response = await api.http.post(path(queue, group), json={"paused": on})
    assert response.status_code == 200, response.text
    assert response.json() == {"queue": queue, "paused": on} | ({"consumerGroup": group} if group else {})


@pytest.fixture
async def others(server: Server) -> AsyncIterator[list[Api]]:
    """Connections to both workers for long polls, which block their own."""
    async with worker_apis(server.port) as apis:
        yield apis


async def waiting(api: Api, number: int) -> None:
    """Returns when so many long polls are parked."""

    async def parked() -> bool:
        return total(await scrape(api.http), "queen_waiters") >= number

    await eventually(parked, f"{number} long polls are parked")


@PLACES
@checks("G-PAUSE-1", level=Level.LIVE)
async def test_while_paused_nothing_is_delivered_and_pushes_and_acks_go_on(
    workers: list[Api], queue: str, group: str | None
) -> None:
    first, second = workers
    await first.configure(queue, namespace=queue)
    await first.push_items([{"queue": queue, "partition": name, "payload": name} for name in "ab"])
    leased = await first.pop(queue, consumerGroup="g", **ALL)
    await pause(first, queue, group)
    for worker in workers:
        await worker.push(queue, "c", partition="c")
        assert (await worker.pop(queue, consumerGroup="g", batch=9, partitions=9)).messages == []
        assert (await worker.pop(queue, "c", consumerGroup="g")).messages == []
        assert (await worker.pop(queue, consumerGroup="g", autoAck=True)).messages == []
        assert (await worker.pop(queue, consumerGroup="g", partitions=2, wait=True, timeout=1)).messages == []
        assert (await worker.pop_label(namespace=queue, consumerGroup="g")).messages == []
    other = await second.pop(queue, consumerGroup="h", batch=9, partitions=9, **ALL)
    assert sorted(other.data) == ([] if group is None else ["a", "b", "c", "c"])
    assert [each["success"] for each in await second.ack(leased.messages)] == [True]
    answer = await first.ack_and_pop([], queue=queue, consumerGroup="g")
    assert answer["pop"] is None
    await pause(second, queue, group, on=False)
    rest = await first.pop(queue, consumerGroup="g", batch=9, partitions=9)
    assert sorted(rest.data) == [*sorted({"a", "b"} - set(leased.data)), "c", "c"]


@PLACES
@checks("G-PAUSE-1", "G-WAIT-1", level=Level.LIVE)
async def test_long_polls_stay_parked_and_are_served_at_the_resumption(
    workers: list[Api], others: list[Api], queue: str, group: str | None
) -> None:
    await workers[0].push(queue, "warm", partition="Default")
    assert (await workers[0].pop(queue, consumerGroup="g", autoAck=True, **ALL)).data == ["warm"]
    await pause(workers[0], queue, group)
    polls = [asyncio.ensure_future(api.pop(queue, consumerGroup="g", **LONG)) for api in others]
    await waiting(workers[0], 2)
    for number in range(20):
        await workers[number % 2].push(queue, number, partition=f"p{number % 2}")
    assert not any(poll.done() for poll in polls)
    assert (await workers[1].pop(queue, consumerGroup="g")).messages == []
    await pause(workers[0], queue, group, on=False)
    async with asyncio.timeout(30):
        assert {popped.messages[0]["partition"] for popped in await asyncio.gather(*polls)} == {"p0", "p1"}


@PLACES
@checks("G-PAUSE-1", level=Level.LIVE)
async def test_what_workers_have_prefetched_or_lent_is_not_handed_out(
    server: Server, workers: list[Api], queue: str, group: str | None
) -> None:
    """Consumers at work in both workers, producers too: after the answer, a pop that begins gets nothing."""
    paused, stop, delivered = asyncio.Event(), asyncio.Event(), asyncio.Semaphore(0)
    late: list[Any] = []

    async def consume(api: Api) -> None:
        while not stop.is_set():
            began_after = paused.is_set()
            popped = await api.pop(queue, consumerGroup="g", wait=began_after, timeout=1, **ALL)
            late.extend(popped.data if began_after else [])
            if popped.messages:
                await api.ack(popped.messages)
                delivered.release()

    async def produce(api: Api) -> None:
        number = 0
        while not stop.is_set():
            await api.push(queue, *range(3), partition=f"p{number % 3}")
            number += 1

    await workers[0].push(queue, 0)
    async with (
        worker_apis(server.port) as consumers,
        worker_apis(server.port) as producers,
        asyncio.TaskGroup() as tasks,
    ):
        for api in consumers:
            tasks.create_task(consume(api))
        for api in producers:
            tasks.create_task(produce(api))
        for _ in range(5):
            for _ in range(20):  # on an idle machine most of them are prefetched
                await delivered.acquire()
            await pause(workers[0], queue, group)
            paused.set()
            for api in workers:
                late += (await api.pop(queue, consumerGroup="g", **ALL)).data
            paused.clear()
            await pause(workers[1], queue, group, on=False)
        stop.set()
    assert late == []


@checks("G-PAUSE-1", level=Level.LIVE)
async def test_a_websocket_gets_nothing_while_paused(server: Server, api: Api, queue: str) -> None:
    await api.push(queue, 1)
    async with open_socket(server.port) as socket:
        await socket.subscribe(queue, consumerGroup="g", **ALL)
        batch = await socket.expect("batch")
        await pause(api, queue, None)
        answer = await socket.acked(batch)
        assert answer["acked"] == 1
        await api.push(queue, 2)
        # Frames come in order: nothing stands before the answer.
        assert (await socket.ask(type="credit", messages=100))["type"] == "credit"
        await pause(api, queue, None, on=False)
        assert data_of(await socket.expect("batch")) == [2]


@checks("G-PAUSE-1", "G-POP-6", level=Level.LIVE)
async def test_lists_metrics_and_readiness_show_what_is_paused(api: Api, database: Any, queue: str) -> None:
    await api.push(queue, 1)
    await api.pop(queue, consumerGroup="g", **ALL, autoAck=True)
    await api.push(queue, 2)

    async def shown() -> list[Any]:
        queues = (await api.http.get("/api/v1/resources/queues", params={"queue": queue})).json()["queues"]
        status = (await api.http.get(f"/api/v1/status/queues/{queue}")).json()["queue"]
        groups = (await api.http.get("/api/v1/consumer-groups", params={"queue": queue})).json()
        assert (await api.http.get("/api/v1/consumer-groups/g")).json()[queue]["paused"] is groups[0]["paused"]
        depth = (await api.http.get(f"/api/v1/resources/queues/{queue}/depth", params={"group": "g"})).json()
        pending = await database.fetchval("SELECT queen.has_pending_messages_v1($1, NULL, 'g')", queue)
        metrics = await scrape(api.http)
        return [
            queues[0]["paused"], status["paused"], groups[0]["paused"], depth["ready"], pending,
            total(metrics, "queen_queue_paused", queue=queue),
            total(metrics, "queen_group_paused", queue=queue, group="g"),
        ]  # fmt: skip

    async def shows(expected: list[Any]) -> None:
        """Soon: a worker may have read the figures for its metrics a moment before."""

        async def does() -> bool:
            return await shown() == expected

        await eventually(does, str(expected))

    await shows([False, False, False, 1, True, 0, 0])
    await pause(api, queue, "g")
    await shows([False, False, True, 0, False, 0, 1])
    await pause(api, queue, None)
    await pause(api, queue, "g", on=False)
    await shows([True, True, False, 0, False, 1, 0])
    await api.configure(queue, priority=3)
    assert (await shown())[0], "configuring does not resume"
    await pause(api, queue, None, on=False)
    await shows([False, False, False, 1, True, 0, 0])


async def test_what_is_unknown_or_malformed_is_refused(api: Api, queue: str) -> None:
    for name, group in [(queue, None), (queue, "g")]:
        response = await api.http.post(path(name, group), json={"paused": True})
        assert response.status_code == 404
    await api.push(queue, 1)
    response = await api.http.post(path(queue, "nobody"), json={"paused": True})
    assert (response.status_code, response.json()["error"]) == (404, "Consumer group not found on this queue")
    for body in ({}, {"paused": "yes"}, {"enabled": True}, [], None):
        response = await api.http.post(path(queue, None), json=body)
        assert response.status_code == 400, body
    full = f"{queue}/pause"
    await api.push(full, 1)
    await pause(api, full, None)
    assert (await api.pop(full)).messages == []
    assert (await api.delete(full))["existed"] is True
