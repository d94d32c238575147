"""A pop returns a bounded amount of data, whatever it asked for: issue 21, row 5."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import httpx
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api
from tests.support.attacks import witnessed
from tests.support.processes import Server, clean_environment, open_folder, serving
from tests.support.sockets import open_socket

KIB, MIB = 1 << 10, 1 << 20
LIMIT = MIB


@pytest.fixture(scope="module")
def bounded() -> Iterator[Server]:
    """A server whose pops return 1 MiB."""
    with open_folder() as folder:
        environment = clean_environment(QUEEN_DATA_DIR=str(folder), QUEEN_MAX_POP_BYTES=str(LIMIT))
        with serving(folder / "data", "--workers", "1", env=environment) as running:
            yield running


@pytest.fixture
async def small(bounded: Server) -> AsyncIterator[Api]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{bounded.port}", timeout=60) as http:
        yield Api(http)


def text(size: int, number: int = 0) -> str:
    """A payload of about so many bytes."""
    return f"{number:08}" + "x" * (size - 8)


@checks("G-POP-3", level=Level.LIVE)
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize("partition", [None, "p"])
async def test_a_pop_takes_what_its_bytes_have_room_for_and_the_next_goes_on(
    small: Api, together: bool, auto: bool, partition: str | None
) -> None:
    queue, payloads = f"bytes-{uuid4()}", [text(300 * KIB, number) for number in range(7)]
    if together:
        await small.push(queue, *payloads, partition="p")
    else:
        for payload in payloads:
            await small.push(queue, payload, partition="p")
    sizes = []
    found: list[str] = []
    while popped := await small.pop(queue, partition, batch=10_000, autoAck=auto):
        if not popped.messages:
            break
        sizes.append(len(popped.messages))
        found += popped.data
        if not auto:
            await small.ack(popped.messages)
    assert found == payloads
    assert sizes == [3, 3, 1]


@checks("G-POP-3", level=Level.LIVE)
async def test_a_message_larger_than_a_pop_may_return_comes_alone(small: Api) -> None:
    queue = f"large-{uuid4()}"
    await small.push(queue, text(10), text(3 * MIB), text(2 * MIB), text(10), partition="p")
    found = []
    for _ in range(4):
        popped = await small.pop(queue, batch=10)
        found.append([len(each) for each in popped.data])
        if not popped.messages:
            break
        await small.ack(popped.messages)
    assert found == [[10], [3 * MIB], [2 * MIB], [10]]


async def test_the_bytes_of_a_pop_are_shared_by_its_partitions(small: Api) -> None:
    queue = f"many-{uuid4()}"
    for number in range(10):
        await small.push(queue, text(400 * KIB), partition=f"p{number}")
    sizes = []
    for _ in range(10):
        popped = await small.pop(queue, batch=1000, partitions=100)
        sizes.append(len(popped.messages))
    assert sizes == [2, 2, 2, 2, 2, 0, 0, 0, 0, 0]


@checks("G-POP-3", level=Level.LIVE)
async def test_what_was_done_out_of_order_is_left_out_and_not_counted(small: Api) -> None:
    queue = f"gaps-{uuid4()}"
    for number in range(9):
        await small.push(queue, text(300 * KIB, number), partition="p")
    leased = [await small.pop(queue, batch=9, consumerGroup="g")]
    assert len(leased[0].messages) == 3
    await small.ack(leased[0].messages[1:])  # the first stays
    await small.ack(leased[0].messages[:1], "retry")
    popped = await small.pop(queue, batch=9, consumerGroup="g")
    assert [each[:8] for each in popped.data] == ["00000000", "00000003", "00000004"]


async def test_many_pops_at_once_of_much_data_all_get_something(small: Api) -> None:
    queue = f"at-once-{uuid4()}"
    for number in range(60):
        await small.push(queue, text(900 * KIB), partition=f"p{number}")
    answers = await asyncio.gather(*(small.pop(queue, batch=10) for _ in range(60)))
    assert [len(answer.messages) for answer in answers] == [1] * 60


async def test_a_batch_of_a_websocket_has_the_same_bound(small: Api, bounded: Server) -> None:
    queue = f"socket-{uuid4()}"
    await small.push(queue, *(text(300 * KIB, number) for number in range(7)), partition="p")
    async with open_socket(bounded.port) as socket:
        await socket.subscribe(queue)
        sizes: list[int] = []
        while sum(sizes) < 7:
            frame = await socket.receive()
            if frame["type"] == "batch":
                sizes.append(len(frame["messages"]))
                await socket.send(type="ack", batch=frame["batch"])
    assert sizes == [3, 3, 1]


@pytest.fixture(scope="module")
def usual() -> Iterator[Server]:
    with open_folder() as folder:
        environment = clean_environment(QUEEN_DATA_DIR=str(folder))
        with serving(folder / "data", "--workers", "2", env=environment) as running:
            running.wait_until_all_are_healthy(2)
            yield running


@pytest.mark.nightly
def test_a_pop_of_a_partition_with_24_messages_of_40_mb_stops_no_others(usual: Server) -> None:
    url = f"http://127.0.0.1:{usual.port}"
    body = json.dumps({"items": [{"queue": "huge", "partition": "p", "payload": text(40_000_000)}]})
    for _ in range(24):
        assert httpx.post(f"{url}/api/v1/push", content=body, timeout=100).status_code == 201
    with witnessed(usual):
        for _ in range(3):
            answer = httpx.get(f"{url}/api/v1/pop/queue/huge?batch=10000&autoAck=true", timeout=100)
            assert len(answer.json()["messages"]) == 1
