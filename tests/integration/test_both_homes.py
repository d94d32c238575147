"""The engine in the loop of the requests, and in a thread of its own: the same answers."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.support.api import Api, api_of, open_client
from tests.support.processes import Server, clean_environment, open_folder, serving


@pytest.fixture(scope="module", params=["loop", "thread"])
def home(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(home: str) -> Iterator[Server]:
    environment = clean_environment(QUEEN_ENGINE_HOME=home)
    with open_folder() as folder, serving(folder / "data", "--workers", "2", env=environment) as server:
        yield server


async def test_long_poll_is_answered_by_a_push_through_either_worker(server: Server, queue: str) -> None:
    for pusher in server.workers():
        for popper in server.workers():
            async with api_of(server.port, pusher) as sender, api_of(server.port, popper) as waiter:
                waiting = asyncio.create_task(waiter.pop(queue, wait=True, timeout=20_000))
                await sender.push(queue, 1)
                popped = await waiting
                assert popped.data == [1]
                assert [item["success"] for item in await waiter.ack(popped.messages)] == [True]


async def test_a_disconnected_client_takes_no_messages(server: Server, queue: str) -> None:
    async with open_client(server.port) as http:
        leaving = asyncio.create_task(Api(http).pop(queue, wait=True, timeout=20_000))
        await asyncio.sleep(0)
        leaving.cancel()
    async with open_client(server.port) as http:
        await Api(http).push(queue, 1)
        assert (await Api(http).pop(queue, wait=True, timeout=20_000)).data == [1]


def test_both_stop_in_order(server: Server) -> None:
    assert server.stop() == 0
