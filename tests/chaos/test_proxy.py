"""The proxy of the chaos tests works; otherwise they would show nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from tests.support.chaos.proxy import Proxy, Streams
from tests.support.chaos.schedule import Direction
from tests.support.clock import eventually


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """One before a server that sends everything back."""
    echoes: list[asyncio.Task[None] | None] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        echoes.append(asyncio.current_task())
        with suppress(OSError):
            while piece := await reader.read(1000):
                writer.write(piece)
        with suppress(OSError):
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def open_far() -> Streams:
        return await asyncio.open_connection("127.0.0.1", port)

    proxy = Proxy(open_far, 1)
    await proxy.start()
    yield proxy
    await proxy.stop()
    server.close()
    await asyncio.gather(*filter(None, echoes))


async def connect(proxy: Proxy) -> Streams:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def test_data_and_close_are_passed_on(proxy: Proxy) -> None:
    reader, writer = await connect(proxy)
    writer.write(b"one")
    assert await reader.readexactly(3) == b"one"
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("direction", ["there", "back", "both"])
async def test_swallowed_data_arrive_when_the_direction_opens(proxy: Proxy, direction: Direction) -> None:
    reader, writer = await connect(proxy)
    proxy.swallow(direction)
    answer = asyncio.ensure_future(reader.readexactly(3))
    writer.write(b"one")

    async def is_held() -> bool:
        return proxy.held == 1

    await eventually(is_held, "a piece that the proxy holds")
    assert not answer.done()
    proxy.deliver(direction)
    assert await answer == b"one"
    writer.close()


async def test_swallowed_data_arrive_after_the_sender_has_closed() -> None:
    arrived = asyncio.get_running_loop().create_future()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set_result(await reader.read())
        writer.transport.abort()

    server = await asyncio.start_server(hear, "127.0.0.1", 0)

    async def open_far() -> Streams:
        return await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])

    proxy = Proxy(open_far, 1)
    await proxy.start()
    proxy.swallow("there")
    _, writer = await connect(proxy)
    writer.write(b"commit")
    await writer.drain()
    writer.transport.abort()
    proxy.deliver("there")
    assert await arrived == b"commit"
    await proxy.stop()
    server.close()


async def test_reset_ends_connections_and_new_ones_work(proxy: Proxy) -> None:
    reader, writer = await connect(proxy)
    writer.write(b"one")
    await reader.readexactly(3)
    proxy.reset()
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()
    reader, writer = await connect(proxy)
    writer.write(b"two")
    assert await reader.readexactly(3) == b"two"
    writer.close()


async def test_delayed_pieces_keep_their_order(proxy: Proxy) -> None:
    proxy.delay(0.02)
    reader, writer = await connect(proxy)
    for number in range(10):
        writer.write(bytes([number]))
        await writer.drain()
    assert await reader.readexactly(10) == bytes(range(10))
    writer.close()
