"""The proxy of the chaos tests does what it says, or they would show nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from tests.support.chaos.proxy import Proxy, Streams
from tests.support.chaos.schedule import Direction


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


async def says_nothing(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(0.2):
            return not await reader.read(1)
    except TimeoutError:
        return True


async def test_websocket_messages_and_close_are_echoed(proxy: Proxy) -> None:
    reader, writer = await connect(proxy)
    writer.write(b"one")
    assert await reader.readexactly(3) == b"one"
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("direction", ["there", "back", "both"])
async def test_lost_notifications_are_recovered(proxy: Proxy, direction: Direction) -> None:
    reader, writer = await connect(proxy)
    proxy.swallow(direction)
    writer.write(b"one")
    assert await says_nothing(reader)
    proxy.deliver(direction)
    assert await reader.readexactly(3) == b"one"
    writer.close()


async def test_sent_notifications_arrive_after_the_sender_has_ended() -> None:
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
