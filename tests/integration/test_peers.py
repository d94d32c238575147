"""Notifications between instances: by UDP and HTTP, to every worker, only with the right secret."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from queen.core.seal import WINDOW_MS, seal, signature
from queen.engine.notifications import packet_of
from queen.engine.ports import Notification
from spec import model
from spec.guarantees import Level, checks
from tests.support.api import Api, api_of, open_client
from tests.support.broker import Broker
from tests.support.clock import eventually
from tests.support.nightly import mostly_at_night
from tests.support.processes import Server, free_port, open_folder
from tests.support.servers import create_database, drop_database, serving_database

SECRET = "what all instances know"
#: So slow that only a notification can explain an answer within the patience.
SLOW = {"POP_WAIT_INITIAL_INTERVAL_MS": "60000", "POP_WAIT_MAX_INTERVAL_MS": "60000"}
PATIENCE_S = 240.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def push_silently(dsn: str, queue: str) -> None:
    """Stores a message without telling anybody, as a worker does that dies after its commit."""
    broker = Broker(dsn)
    try:
        broker.perform(model.Push((model.PushItem(queue, 7),)))
    finally:
        broker.close()


@pytest.fixture
async def database(postgres: str) -> AsyncIterator[str]:
    dsn = await create_database(postgres)
    yield dsn
    await drop_database(postgres, dsn)


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as place:
        yield place


async def waiters_on_all_workers(
    server: Server, stack: AsyncExitStack, queue: str
) -> "dict[int, asyncio.Task[list[object]]]":
    """A long poll on each worker, each of a group of its own, parked."""
    waiting: dict[int, asyncio.Task[list[object]]] = {}
    for pid in sorted(server.workers()):
        api = await stack.enter_async_context(api_of(server.port, pid))

        async def wait(api: Api = api, pid: int = pid) -> list[object]:
            return (await api.pop(queue, wait=True, timeout=50_000, consumerGroup=f"g{pid}")).data

        waiting[pid] = asyncio.create_task(wait())
        # A pop that follows on the same worker, of the same group, goes after the first look of the waiter.
        other = await stack.enter_async_context(api_of(server.port, pid))
        for _ in range(3):
            assert (await other.pop(queue, consumerGroup=f"g{pid}")).messages == []
    return waiting


def send_udp(port: int, *datagrams: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for datagram in datagrams:
            sender.sendto(datagram, ("127.0.0.1", port))


@checks("G-WAIT-1", level=Level.LIVE)
async def test_a_datagram_wakes_the_waiters_of_every_worker_and_a_forged_one_none(database: str, folder: Path) -> None:
    udp_port, queue = free_port(), "orders"
    settings = {
        **SLOW,
        "QUEEN_UDP_PEERS": "127.0.0.1:9",
        "QUEEN_UDP_NOTIFY_PORT": str(udp_port),
        "QUEEN_SYNC_SECRET": SECRET,
    }
    with serving_database(database, folder, "--workers", "2", **settings) as server:
        async with AsyncExitStack() as stack:
            waiting = await waiters_on_all_workers(server, stack, queue)
            await asyncio.to_thread(push_silently, database, queue)
            packet = packet_of(Notification(queue, 1))
            good = seal(SECRET.encode(), packet, now_ms())
            send_udp(
                udp_port,
                b"",
                packet,
                good[:-1],
                seal(b"guessed", packet, now_ms()),
                seal(SECRET.encode(), packet, now_ms() - 2 * WINDOW_MS),
                seal(SECRET.encode(), b"no packet", now_ms()),
            )
            async with open_client(server.port) as http:
                await Api(http).push("another", 1)  # the workers have gone on since
            assert not any(task.done() for task in waiting.values())
            send_udp(udp_port, good, good, good)
            async with asyncio.timeout(PATIENCE_S):
                assert await asyncio.gather(*waiting.values()) == [[7]] * len(waiting)


@checks("G-WAIT-1", level=Level.LIVE)
async def test_a_signed_request_wakes_the_waiters_of_every_worker_and_others_are_refused(
    database: str, folder: Path
) -> None:
    queue = "orders"
    with serving_database(database, folder, "--workers", "2", QUEEN_SYNC_SECRET=SECRET, **SLOW) as server:
        async with AsyncExitStack() as stack:
            waiting = await waiters_on_all_workers(server, stack, queue)
            await asyncio.to_thread(push_silently, database, queue)
            http = await stack.enter_async_context(open_client(server.port))

            async def notify(body: bytes, sign: Callable[[bytes], str]) -> httpx.Response:
                return await http.post("/internal/api/notify", content=body, headers={"Queen-Signature": sign(body)})

            def good(body: bytes) -> str:
                return signature(SECRET.encode(), body, now_ms())

            body = json.dumps({"queue": queue, "partition": "p"}).encode()
            assert (await notify(body, lambda _body: "")).status_code == 403
            assert (await notify(body, lambda _body: good(b"another body"))).status_code == 403
            assert (await notify(body, lambda b: signature(b"guessed", b, now_ms()))).status_code == 403
            late = await notify(body, lambda b: signature(SECRET.encode(), b, now_ms() - 2 * WINDOW_MS))
            assert late.status_code == 403
            assert late.json()["code"] == "not_signed"
            for bad in (b"{}", b'{"queue":""}', b"7", b"[", b'{"queue":7}'):
                answer = await notify(bad, good)
                assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json"), bad
            assert (await notify(b'["no packet", 7]', good)).status_code == 200
            assert not any(task.done() for task in waiting.values())
            answer = await notify(body, good)
            assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
            async with asyncio.timeout(PATIENCE_S):
                assert await asyncio.gather(*waiting.values()) == [[7]] * len(waiting)


async def test_without_peers_notifications_are_refused(api: Api) -> None:
    answer = await api.http.post("/internal/api/notify", json={"queue": "q"})
    assert answer.status_code == 403
    assert "QUEEN_SYNC_SECRET" in answer.json()["detail"]


@checks("G-WAIT-1", level=Level.LIVE)
@pytest.mark.parametrize("way", mostly_at_night(["udp", "http"], ["udp"]))
async def test_peers_as_the_sources_configure_them_need_no_secret(database: str, folder: Path, way: str) -> None:
    """Two instances of one database, without NOTIFY, as behind a pooler: a push on one wakes a poll on the other."""
    ports, udp = [free_port(), free_port()], [free_port(), free_port()]
    peers = [
        {"QUEEN_UDP_PEERS": f"127.0.0.1:{udp[1 - number]}", "QUEEN_UDP_NOTIFY_PORT": str(udp[number])}
        if way == "udp"
        else {"QUEEN_PEERS": f"http://127.0.0.1:{ports[1 - number]}"}
        for number in range(2)
    ]
    async with AsyncExitStack() as stack:
        here, there = [
            stack.enter_context(
                serving_database(
                    database, folder, "--workers", "1", port=ports[number], DB_POOLER="yes", **SLOW, **peers[number]
                )
            )
            for number in range(2)
        ]
        waiting = await waiters_on_all_workers(there, stack, "orders")
        http = await stack.enter_async_context(open_client(here.port))
        await Api(http).push("orders", 7)
        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.gather(*waiting.values()) == [[7]]
        unsigned = await http.post("/internal/api/notify", json={"queue": "orders"})
        assert (unsigned.status_code, unsigned.json()["code"]) == (403, "not_signed")


@checks("G-WAIT-1", level=Level.LIVE)
@pytest.mark.parametrize("way", ["udp", "http"])
async def test_an_instance_tells_its_peer(database: str, folder: Path, way: str) -> None:
    """The peer is one that the test plays: what arrives there is sealed, and says what was pushed."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM if way == "udp" else socket.SOCK_STREAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(PATIENCE_S)
        port = peer.getsockname()[1]
        peers = (
            {"QUEEN_UDP_PEERS": f"127.0.0.1:{port}", "QUEEN_UDP_NOTIFY_PORT": str(free_port())}
            if way == "udp"
            else {"QUEEN_PEERS": f"http://127.0.0.1:{port}"}
        )
        with serving_database(database, folder, "--workers", "1", QUEEN_SYNC_SECRET=SECRET, **peers) as server:
            async with open_client(server.port) as http:
                await Api(http).push("orders", 1)
                if way == "http":
                    peer.listen()  # until now the port was closed: it is sent again
                received = await asyncio.to_thread(receive, peer, way)
    assert b'"orders"' in received
    assert SECRET.encode() not in received


def receive(peer: socket.socket, way: str) -> bytes:
    if way == "udp":
        return peer.recv(65_536)
    connection, _ = peer.accept()
    with connection:
        connection.settimeout(PATIENCE_S)
        text = b""
        while b'"orders"' not in text:
            more = connection.recv(65_536)
            assert more, text
            text += more
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        return text


async def test_a_queue_configured_or_deleted_elsewhere_is_looked_up_again(workers: list[Api], queue: str) -> None:
    """Both workers know the queue; one deletes it and it is made again: the other's next push lands in the new one."""
    here, there = workers
    await here.push(queue, 1)
    await there.push(queue, 2)
    await here.delete(queue)
    await here.push(queue, 3)
    await there.push(queue, 4)

    found: list[object] = []

    async def collect() -> bool:
        found.extend((await here.pop(queue, batch=10, autoAck=True)).data)
        return len(found) >= 2

    await eventually(collect, "both messages")
    assert found == [3, 4]
