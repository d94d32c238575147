"""Pops that wait.

The server looks again of itself once a minute only: what wakes a waiter here is a notice, or a time that was foreseen.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, Popped, api_of, open_client, pop_path
from tests.support.clock import eventually
from tests.support.processes import Server, clean_environment, open_folder, serving

RECHECK_MS = "60000"
#: Above the patience of the client.
LONGER_THAN_A_TEST_MS = 3_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    variables = {"POP_WAIT_INITIAL_INTERVAL_MS": RECHECK_MS, "POP_WAIT_MAX_INTERVAL_MS": RECHECK_MS}
    with open_folder() as folder, serving(folder / "data", env=clean_environment(**variables)) as running:
        yield running


def wait_for(api: Api, queue: str, timeout_ms: int = 50_000, **parameters: Any) -> "asyncio.Task[Popped]":
    return asyncio.create_task(api.pop(queue, wait=True, timeout=timeout_ms, **parameters))


async def parked(database: "asyncpg.Connection[Any]", queue: str, group: str = "__QUEUE_MODE__") -> None:
    """Returns when the group exists: its first pop has looked, and waits."""
    sql = (
        "SELECT count(*) FROM queen.consumer_groups_metadata AS g JOIN queen.queues AS q ON q.id = g.queue_id "
        "WHERE q.name = $1 AND g.name = $2"
    )
    await eventually(lambda: database.fetchval(sql, queue, group), f"group {group} on {queue}")


@checks("G-WAIT-1", level=Level.LIVE)
@pytest.mark.parametrize("same", [True, False], ids=["same worker", "other worker"])
async def test_long_poll_wakes_soon_after_a_push(
    workers: list[Api], server: Server, database: "asyncpg.Connection[Any]", queue: str, same: bool
) -> None:
    sender = workers[0]
    pids = [await api.worker() for api in workers]
    for turn in range(5):
        async with api_of(server.port, pids[0 if same else 1]) as waiter:
            waiting = wait_for(waiter, queue, consumerGroup=f"g{turn}", subscriptionMode="new")
            await parked(database, queue, f"g{turn}")
            await sender.push(queue, turn)
            assert (await waiting).data == [turn]


@checks("G-WAIT-1", level=Level.LIVE)
@pytest.mark.parametrize("timeout_ms", [1, 300, 1500])
async def test_long_poll_of_an_empty_queue_ends_at_its_timeout(api: Api, queue: str, timeout_ms: int) -> None:
    await api.configure(queue)
    begin = time.monotonic()
    assert (await wait_for(api, queue, timeout_ms)).messages == []
    assert time.monotonic() - begin >= timeout_ms / 1000 - 0.005


@checks("G-WAIT-1", level=Level.LIVE)
async def test_long_polls_of_different_length_each_end_at_their_own_time(api: Api, queue: str) -> None:
    async def lateness(timeout_ms: int) -> float:
        begin = time.monotonic()
        assert (await api.pop(queue, wait=True, timeout=timeout_ms)).messages == []
        return time.monotonic() - begin - timeout_ms / 1000

    late = await asyncio.gather(*[lateness(200 + 97 * n % 900) for n in range(30)])
    assert min(late) > -0.005


async def test_long_poll_without_time_or_without_wait_answers_at_once(api: Api, queue: str) -> None:
    assert (await api.pop(queue, wait=True, timeout=0)).messages == []
    assert (await api.pop(queue, wait=False, timeout=LONGER_THAN_A_TEST_MS)).messages == []
    assert (await api.pop(queue, timeout=LONGER_THAN_A_TEST_MS)).messages == []


async def test_long_poll_that_finds_something_does_not_wait_for_more(api: Api, queue: str) -> None:
    await api.push(queue, 1)
    assert (await wait_for(api, queue, LONGER_THAN_A_TEST_MS, batch=100)).data == [1]


@checks("G-WAIT-1", "G-LEASE-2", level=Level.LIVE)
async def test_long_poll_wakes_when_a_lease_runs_out(workers: list[Api], queue: str) -> None:
    holder, waiter = workers
    await holder.push(queue, 1)
    begin = time.monotonic()
    await holder.pop(queue, leaseSeconds=1)
    assert (await wait_for(waiter, queue)).messages[0]["deliveryAttempt"] == 2
    assert time.monotonic() - begin >= 1


@checks("G-WAIT-1", "G-ACK-5", level=Level.LIVE)
@pytest.mark.parametrize("status", ["completed", "retry", "failed"])
async def test_long_poll_wakes_when_an_ack_ends_the_lease(workers: list[Api], queue: str, status: str) -> None:
    holder, waiter = workers
    await holder.push(queue, 1, 2)
    held = await holder.pop(queue, leaseSeconds=60)
    waiting = wait_for(waiter, queue)
    assert (await holder.pop(queue)).messages == []
    await holder.ack(held.messages, status)
    assert (await waiting).data == [2 if status == "completed" else 1]


@checks("G-WAIT-1", "G-ACK-6", level=Level.LIVE)
async def test_long_poll_wakes_when_a_retry_delay_or_a_delay_is_over(api: Api, queue: str) -> None:
    await api.configure(queue, delayedProcessing=1, retryDelay=400)
    begin = time.monotonic()
    await api.push(queue, 1)
    first = await wait_for(api, queue)
    assert time.monotonic() - begin >= 1
    begin = time.monotonic()
    await api.ack(first.messages, "failed")
    assert (await wait_for(api, queue)).data == [1]
    assert time.monotonic() - begin >= 0.4


@checks("G-WAIT-1", level=Level.LIVE)
async def test_long_poll_of_a_partition_and_of_a_namespace_wake_too(
    api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.configure(queue, namespace=queue)
    by_partition = asyncio.create_task(
        api.pop(queue, "p", wait=True, timeout=50_000, consumerGroup="a", subscriptionMode="all")
    )
    by_label = asyncio.create_task(
        api.pop_label(namespace=queue, wait=True, timeout=50_000, consumerGroup="b", subscriptionMode="all")
    )
    for group in "ab":
        await parked(database, queue, group)
    await api.push(queue, "other")
    assert (await by_label).data == ["other"]
    await api.push(queue, "mine", partition="p")
    assert (await by_partition).data == ["mine"]


async def test_long_poll_on_a_queue_that_does_not_exist_yet_gets_its_first_message(
    workers: list[Api], queue: str
) -> None:
    for n, parameters in enumerate([{}, {"consumerGroup": "g", "subscriptionMode": "new"}]):
        name = f"{queue}-{n}"
        waiting = wait_for(workers[0], name, **parameters)
        assert (await workers[1].pop(name, "nothing", **parameters)).messages == []
        await workers[1].push(name, "first")
        assert (await waiting).data == ["first"]


@checks("G-WAIT-1", level=Level.LIVE)
async def test_long_polls_are_served_first_come_first_served(workers: list[Api], server: Server, queue: str) -> None:
    api = workers[0]
    pid = await api.worker()
    await api.configure(queue)
    async with AsyncExitStack() as stack:
        waiters = [await stack.enter_async_context(api_of(server.port, pid)) for _ in range(5)]
        order: list[int] = []

        async def consume(number: int) -> None:
            popped = await waiters[number].pop(queue, wait=True, timeout=50_000, autoAck=True)
            order.append(number)
            assert popped.data == [number]

        tasks = []
        for number in range(5):
            tasks.append(asyncio.create_task(consume(number)))
            # A request that follows on another connection to the same worker is answered after the waiter has parked.
            for _ in range(3):
                assert (await api.pop(queue)).messages == []
        for number in range(5):
            await workers[1].push(queue, number)
            await tasks[number]
        assert order == list(range(5))


@checks("G-WAIT-1", level=Level.LIVE)
async def test_long_polls_by_the_dozen_share_what_comes_without_loss(api: Api, queue: str) -> None:
    names = [f"p{n}" for n in range(40)]
    waiting = [wait_for(api, queue, autoAck=True) for _ in names]
    for name in names:
        await api.push(queue, name, partition=name)
    found = [(await task).data for task in waiting]
    assert sorted(found) == sorted([name] for name in names)


@checks("G-WAIT-4", level=Level.LIVE)
@pytest.mark.parametrize("same", [True, False], ids=["same worker", "other worker"])
async def test_long_poll_whose_client_has_gone_takes_no_message(
    workers: list[Api], server: Server, queue: str, same: bool
) -> None:
    sender = workers[0]
    pids = [await api.worker() for api in workers]
    await sender.configure(queue, leaseTime=300)
    for turn in range(10):
        async with api_of(server.port, pids[0 if same else 1]) as waiter:
            waiting = wait_for(waiter, queue)
            assert (await sender.pop(queue)).messages == []
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await sender.push(queue, turn)
        popped = await sender.pop(queue, wait=True, timeout=50_000)
        assert popped.data == [turn]
        assert popped.messages[0]["deliveryAttempt"] == 1
        await sender.ack(popped.messages)


@checks("G-WAIT-4", level=Level.LIVE)
async def test_long_polls_whose_clients_all_go_leave_no_lease(
    api: Api, database: "asyncpg.Connection[Any]", server: Server, queue: str
) -> None:
    await api.configure(queue, leaseTime=300)
    async with open_client(server.port) as http:
        gone = [
            asyncio.create_task(http.get(pop_path(queue), params={"wait": "true", "timeout": "60000"}))
            for _ in range(40)
        ]
        await parked(database, queue)
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
    await api.push_items([{"queue": queue, "partition": f"p{n}", "payload": n} for n in range(40)])
    found: list[Any] = []

    async def collect() -> bool:
        found.extend((await api.pop(queue, batch=100, partitions=100)).data)
        return len(found) == 40

    await eventually(collect, "every message is free")
    assert sorted(found) == list(range(40))
