"""A hundred WebSockets on two workers with producers beside them, and what ends them: a stop, a kill, a slow reader."""

import asyncio
import json
import os
import random
import signal
import socket as sockets
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.uri import parse_uri

from spec.guarantees import Level, checks
from tests.support.api import Api, open_client
from tests.support.processes import Server, clean_environment, open_folder, serving
from tests.support.sockets import PATH, Socket, data_of, open_socket

SOCKETS, PARTITIONS, EACH, PRODUCERS = 100, 40, 50, 4
GROUP = "g"


class Consumers:
    """Sockets of one group, opened again when they end; each acks what it gets, sometimes late, sometimes not at all.

    Attributes:
        delivered: offsets by partition, in the order in which they came for the first time.
        completed: messages whose ack was answered as carried out.
        unknown: messages whose ack was sent on a socket that ended before it was answered.
        redelivered: messages that came again after that.
    """

    def __init__(self, port: int, queue: str, goal: int, seed: int) -> None:
        self.port, self.queue, self.goal = port, queue, goal
        self.delivered: dict[str, list[int]] = defaultdict(list)
        self.completed: set[str] = set()
        self.unknown: set[str] = set()
        self.redelivered: list[str] = []
        self.ended = 0
        self._random = random.Random(seed)

    @property
    def are_done(self) -> bool:
        return len(self.completed | self.unknown) >= self.goal

    async def run(self, credit: int, *, faithful: bool) -> None:
        while not self.are_done:
            acking: dict[int, Any] = {}
            try:
                async with open_socket(self.port) as socket:
                    await socket.subscribe(self.queue, credit=credit, consumerGroup=GROUP, leaseSeconds=8)
                    await self._consume(socket, acking, faithful)
            except (ConnectionClosed, WebSocketException, OSError):
                self.ended += 1
                self.unknown.update(message["id"] for batch in acking.values() for message in batch["messages"])
                await asyncio.sleep(0.05)

    async def _consume(self, socket: Socket, acking: dict[int, Any], faithful: bool) -> None:
        while not self.are_done:
            try:
                frame = await socket.receive(0.3)
            except TimeoutError:
                continue
            if frame["type"] == "batch":
                self._note(frame)
                chance = self._random.random()
                if not faithful and chance < 0.1:
                    socket.connection.transport.abort()
                elif not faithful and chance < 0.2:
                    await asyncio.sleep(0.05)
                acking[await socket.ack(frame)] = frame
            elif frame["type"] == "acked":
                assert frame["refused"] == []
                self.completed.update(message["id"] for message in acking.pop(frame["ref"])["messages"])

    def _note(self, batch: Any) -> None:
        for message in batch["messages"]:
            if message["id"] in self.completed:
                self.redelivered.append(message["id"])
            offsets = self.delivered[message["partition"]]
            if message["offset"] not in offsets:
                offsets.append(message["offset"])

    def check(self) -> None:
        """Nothing lost, doubled or reordered."""
        assert self.redelivered == []
        assert len(self.completed | self.unknown) == self.goal
        for partition, offsets in self.delivered.items():
            assert offsets == sorted(offsets), partition
            assert offsets == list(range(len(offsets))), partition
        assert sum(map(len, self.delivered.values())) == self.goal


async def produce(api: Api, queue: str, producer: int) -> None:
    """Pushes the messages of its partitions, a few at a time."""
    mine = range(producer, PARTITIONS, PRODUCERS)
    for first in range(0, EACH, 5):
        await api.push_items(
            [{"queue": queue, "partition": f"p{p}", "payload": n} for n in range(first, first + 5) for p in mine]
        )


@checks("G-STR-3", "G-ORD-1", "G-ORD-2", "G-ACK-2", "G-ACK-3", "G-LEASE-1", level=Level.LIVE)
@pytest.mark.parametrize("faithful", [True, False])
async def test_a_hundred_sockets_no_loss_no_duplicates_in_order(
    server: Server, api: Api, queue: str, faithful: bool
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    consumers = Consumers(server.port, queue, PARTITIONS * EACH, seed)
    async with asyncio.timeout(240):
        await asyncio.gather(
            *[consumers.run(credit=1 + n % 20, faithful=faithful or n % 2 == 0) for n in range(SOCKETS)],
            *[produce(api, queue, n) for n in range(PRODUCERS)],
        )
    consumers.check()


@checks("G-STR-3", "G-STR-5", "G-ACK-2", "G-ACK-3", "G-DUR-2", level=Level.FAULTS)
def test_killed_workers_no_loss_no_duplicates_in_order() -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")

    async def run(server: Server) -> Consumers:
        consumers = Consumers(server.port, "killed", PARTITIONS * EACH, seed)

        async def kill() -> None:
            for goal in (300, 1000):
                while len(consumers.completed) < goal:
                    await asyncio.sleep(0.005)
                os.kill(min(server.workers()), signal.SIGKILL)

        async with open_client(server.port) as http, asyncio.timeout(240):
            await asyncio.gather(*[produce(Api(http), "killed", n) for n in range(PRODUCERS)])
            await asyncio.gather(kill(), *[consumers.run(credit=1 + n % 20, faithful=True) for n in range(30)])
        return consumers

    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:
        consumers = asyncio.run(run(server))
    consumers.check()
    assert consumers.ended > 0


def test_a_stop_answers_acks_closes_with_1001_and_gives_back() -> None:
    async def run(server: Server) -> list[Any]:
        async with AsyncExitStack() as stack:
            api = Api(await stack.enter_async_context(open_client(server.port)))
            await api.push_items([{"queue": "q", "partition": f"p{n}", "payload": n} for n in range(20)])
            clients = [await stack.enter_async_context(open_socket(server.port)) for _ in range(10)]
            for client in clients:
                await client.subscribe("q", credit=2, batch=1, leaseSeconds=600)
            firsts = [await client.expect("batch") for client in clients]
            for client in clients:
                await client.expect("batch")
            server.process.send_signal(signal.SIGTERM)
            for client, batch in zip(clients, firsts, strict=True):
                await client.ack(batch)
            for client in clients:
                assert (await client.expect("acked"))["acked"] == 1
                with pytest.raises(ConnectionClosed) as closed:
                    await client.receive()
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 1001
            return [data_of(batch)[0] for batch in firsts]

    with open_folder() as folder:
        with serving(folder / "data", "--workers", "2") as server:
            acked = asyncio.run(run(server))
            assert server.process.wait(60) == 0
        with serving(folder / "data") as server:
            status, body = server.request("GET", "/api/v1/pop/queue/q?batch=100&partitions=100")
    assert status == 200
    rest = {message["data"]: message["deliveryAttempt"] for message in body["messages"]}
    assert rest == {n: 2 for n in range(20) if n not in acked}


def test_a_worker_limits_its_websockets() -> None:
    async def run(server: Server) -> None:
        async with open_socket(server.port), open_socket(server.port) as second:
            async with connect(f"ws://127.0.0.1:{server.port}{PATH}", proxy=None) as connection:
                third = Socket(connection)
                error = await third.expect("error")
                assert (error["problem"]["status"], error["problem"]["code"]) == (503, "overloaded")
                with pytest.raises(ConnectionClosed) as closed:
                    await third.receive()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1013
            await second.connection.close()
            async with asyncio.timeout(240):
                while True:
                    try:
                        async with open_socket(server.port):
                            return
                    except (AssertionError, ConnectionClosed):
                        await asyncio.sleep(0.05)

    environment = clean_environment(QUEEN_WS_MAX_SOCKETS="2")
    with open_folder() as folder, serving(folder / "data", "--workers", "1", env=environment) as server:
        asyncio.run(run(server))


@checks("G-STR-5", level=Level.LIVE)
def test_a_client_that_does_not_read_is_disconnected_and_its_messages_are_released() -> None:
    """A bare connection with a small buffer that subscribes to far more than fits, and never reads."""
    environment = clean_environment(QUEEN_WS_PING_INTERVAL="1")

    async def run(server: Server) -> None:
        async with open_client(server.port) as http:
            api = Api(http)
            for _ in range(40):
                await api.push("q", *["x" * 500_000] * 2)
            connection = stuck_consumer(server.port, {"type": "subscribe", "queue": "q", "credit": 80, "batch": 80})
            await api.push("other", 1)
            assert (await api.pop("other")).data == [1]
            popped = await api.pop("q", wait=True, timeout=30_000)
            assert len(popped.messages) == 1
            connection.close()

    with open_folder() as folder, serving(folder / "data", "--workers", "1", env=environment) as server:
        workers = server.workers()
        asyncio.run(run(server))
        assert server.workers() == workers


def stuck_consumer(port: int, frame: dict[str, Any]) -> sockets.socket:
    """Shakes hands, sends one frame, and reads nothing more."""
    protocol = ClientProtocol(parse_uri(f"ws://127.0.0.1:{port}{PATH}"))
    connection = sockets.socket()
    connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    protocol.send_request(protocol.connect())
    connection.sendall(b"".join(protocol.data_to_send()))
    protocol.receive_data(connection.recv(2048))
    protocol.send_text(json.dumps(frame).encode())
    connection.sendall(b"".join(protocol.data_to_send()))
    return connection
