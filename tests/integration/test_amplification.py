"""Nothing that is small on the wire is large in a worker: elements, frames, answers that are not read (issue 21).

Sizes and counts are those that once took gigabytes, or the worker's time for seconds.
"""

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import httpx
import pytest

from tests.support.api import Api
from tests.support.attacks import (
    PATIENCE_S,
    answer_of,
    attacked_server,
    connect,
    is_closed,
    many,
    post,
    send_what_is_taken,
    witnessed,
)
from tests.support.nightly import mostly_at_night
from tests.support.processes import Server
from tests.support.sockets import open_socket
from tests.support.streams import Streams, upsert

MIB = 1 << 20
ITEMS_MAX = 50_000
MANY = 1_000_000
HANDSHAKE = (
    b"GET /api/v1/subscribe HTTP/1.1\r\nHost: queen\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
TEXT, CONTINUATION, PING, LAST = 0x1, 0x0, 0x9, 0x80


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with attacked_server(1) as running:
        yield running


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE_S) as client:
        yield client


def repeated(start: str, element: str, end: str, count: int = MANY) -> bytes:
    """A body with so many equal elements."""
    return (start + ",".join([element] * count) + end).encode()


# ------------------------------------------------------------------ elements

STREAM = '"query_id":"q","partition_id":"p",'
QUEUE_OPTIONS = {"queueName": "large", "queueSize": 10_000, "visibilityTimeout": 600, "maxDeliveries": 3}
QUEUE = "/api/queues/0190a0a0-0000-7000-8000-00000000dead/messages"
LISTS = {
    "push": ("/api/v1/push", '{"items":[', '{"queue":"q"}', "]}"),
    "ack": ("/api/v1/ack/batch", '{"acknowledgments":[', '{"transactionId":"a","partitionId":"b"}', "]}"),
    "operations": ("/api/v1/transaction", '{"operations":[', '{"type":"push","queue":"q"}', "]}"),
    "bare operations": ("/api/v1/transaction", "[", '{"type":"push","queue":"q"}', "]"),
    "items of an operation": (
        "/api/v1/transaction",
        '{"operations":[{"type":"push","items":[',
        '{"queue":"q"}',
        "]}]}",
    ),
    "leases": ("/api/v1/transaction", '{"operations":[],"requiredLeases":[', '"a"', "]}"),
    "riders": ("/api/v1/transaction", '{"operations":[],"kv":[', "1", "]}"),
    "state": ("/streams/v1/cycle", f'{{{STREAM}"state_ops":[', '{"type":"upsert","key":"k"}', "]}"),
    "outputs": ("/streams/v1/cycle", f'{{{STREAM}"push_items":[', '{"queue":"q"}', "]}"),
    "keys": ("/streams/v1/state/get", f'{{{STREAM}"keys":[', '"a"', "]}"),
    "names": ("/api/v1/traces", '{"transactionId":"t","partitionId":"p","data":1,"traceNames":[', '"a"', "]}"),
    "messages of simple-mq": (QUEUE, '{"messages":[', '{"data":"a"}', "]}"),
    "acks of simple-mq": (f"{QUEUE}/ack", '{"messageIds":[', '"a"', "]}"),
}


@pytest.mark.parametrize(("path", "start", "element", "end"), LISTS.values(), ids=LISTS)
def test_a_million_elements_are_refused_before_they_are_made(
    server: Server, http: httpx.Client, path: str, start: str, element: str, end: str
) -> None:
    with witnessed(server):
        answer = http.post(path, content=repeated(start, element, end), headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_many_items")
    assert f"elements, at most {ITEMS_MAX} are allowed (QUEEN_MAX_ITEMS)" in answer.json()["detail"]


def test_as_many_elements_as_allowed_are_taken_and_those_in_payloads_do_not_count(http: httpx.Client) -> None:
    assert (
        http.post("/api/v1/push", content=repeated('{"items":[', '{"queue":"q"}', "]}", ITEMS_MAX)).status_code == 201
    )
    many_in_one = repeated('{"items":[{"queue":"q","payload":[', "{}", "]}]}")
    assert http.post("/api/v1/push", content=many_in_one).status_code == 201


def test_requests_with_many_elements_wait_for_each_other(server: Server) -> None:
    """Together they have less than 64 MiB, so that none waits for room for its bytes."""
    items = ",".join(f'{{"queue":"many","transactionId":"{number}"}}' for number in range(40_000))
    body = f'{{"items":[{items}]}}'.encode()
    request = post("/api/v1/push", len(body)) + body
    with witnessed(server), many(server, 36, request) as attackers:
        answers = Counter(answer_of(attacker).status for attacker in attackers)
    assert set(answers) <= {201, 503}, answers
    assert answers[201]


# ------------------------------------------------------------------ answers


@contextmanager
def slow_readers(server: Server, requests: Sequence[bytes]) -> Iterator[list[socket.socket]]:
    """A connection for each request, whose answer is not read."""
    with ExitStack() as stack:
        clients = []
        for request in requests:
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(PATIENCE_S)
            client.connect(("127.0.0.1", server.port))
            client.sendall(request)
            clients.append(client)
        yield clients


@pytest.fixture(scope="module")
def large(server: Server) -> str:
    """A queue with four messages of 15 MB, each in a partition of its own."""
    for number in range(4):
        item = {"queue": "large", "partition": str(number), "payload": "x" * 15_000_000}
        assert server.request("POST", "/api/v1/push", {"items": [item]})[0] == 201
    return "large"


def test_large_pops_that_are_not_read_hold_no_memory(server: Server, large: str) -> None:
    pops = [
        f"GET /api/v1/pop/queue/{large}?consumerGroup=unread-{number} HTTP/1.1\r\nHost: queen\r\n\r\n".encode()
        for number in range(150)
    ]
    with witnessed(server) as others, slow_readers(server, pops):
        others.pushes(400)


def test_large_batches_for_websockets_that_are_not_read_hold_no_memory(server: Server, large: str) -> None:
    with witnessed(server) as others, slow_readers(server, [HANDSHAKE] * 100) as clients:
        for number, client in enumerate(clients):
            wanted = {"type": "subscribe", "queue": large, "consumerGroup": f"socket-{number}"}
            client.sendall(frame(json.dumps(wanted).encode()))
        others.pushes(1500)


def test_what_long_polls_were_answered_is_not_kept_until_they_would_have_ended(
    server: Server, http: httpx.Client
) -> None:
    with witnessed(server):
        for _ in range(40):
            item = {"queue": "polled", "payload": "x" * 14_000_000}
            assert http.post("/api/v1/push", json={"items": [item]}).status_code == 201
            answer = http.get(
                "/api/v1/pop/queue/polled", params={"wait": "true", "timeout": 600_000, "autoAck": "true"}
            )
            assert len(answer.content) > 14_000_000


def test_large_polls_of_simple_mq_that_share_calls_hold_no_memory(server: Server, http: httpx.Client) -> None:
    queue = http.post("/api/queues", json=QUEUE_OPTIONS).json()["queue_id"]
    path = f"/api/queues/{queue}/messages"
    polls = 24
    for _ in range(polls):
        assert http.post(path, json={"messages": [{"data": "x" * 250_000}] * 100}).status_code == 201
    found: list[int] = []

    def poll() -> None:
        # Threads read slowly: an answer may be given up for others, and its messages come again.
        with suppress(httpx.RemoteProtocolError):
            answer = httpx.get(f"http://127.0.0.1:{server.port}{path}?limit=100", timeout=PATIENCE_S)
            found.append(len(answer.json()["messages"]))

    with witnessed(server):
        threads = [threading.Thread(target=poll) for _ in range(polls)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [100] * len(found)
    assert len(found) > 1


async def test_the_state_of_a_stream_is_read_as_far_as_an_answer_may_be(server: Server) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE_S) as client:
        streams = Streams(Api(client))
        query = (await streams.register("large state", "src"))["query_id"]
        partition = (await streams.api.push("src", 1))[0]["partition_id"]
        value = {"windowEnd": 1, "text": "x" * MIB}
        for first in range(0, 40, 20):
            ops = [upsert(f"k{number:02}", value) for number in range(first, first + 20)]
            assert (await streams.cycle(query, partition, state_ops=ops))["success"] is True
        place = {"query_id": query, "partition_id": partition}
        for wanted in ({}, {"key_prefix": "k"}, {"keys": [f"k{number:02}" for number in range(40)]}):
            status, answer = await streams.post("state/get", {**place, **wanted})
            assert (status, answer["field"]) == (400, "keys")
            assert "request fewer keys" in answer["detail"]
        assert set(await streams.state(query, partition, keys=["k07", "k30"])) == {"k07", "k30"}


async def test_windows_that_are_over_are_read_one_answer_after_the_other(server: Server) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE_S) as client:
        streams = Streams(Api(client))
        query = (await streams.register("large windows", "src"))["query_id"]
        partition = (await streams.api.push("src", 1))[0]["partition_id"]
        keys = [f"k{number:02}" for number in range(40)]
        over = {"windowEnd": 4e12, "text": "x" * MIB}
        for first in range(0, 40, 20):
            ops = [upsert(key, over) for key in keys[first : first + 20]]
            assert (await streams.cycle(query, partition, state_ops=ops))["success"] is True
        found: list[str] = []
        while rows := await streams.state(query, partition, ripe_at_or_before=5e12):
            assert len(rows) <= 16
            found += rows
            ops = [{"type": "delete", "key": key} for key in rows]
            assert (await streams.cycle(query, partition, state_ops=ops))["success"] is True
        assert found == keys


# ------------------------------------------------------------------ connections that end


def test_clients_that_leave_before_their_answers_leave_no_error_in_the_log(server: Server) -> None:
    requests = b"GET /openapi.json HTTP/1.1\r\nHost: queen\r\n\r\n" * 100
    with witnessed(server) as others:
        for _ in range(3):
            with slow_readers(server, [requests] * 100):
                others.pushes(20)
            others.pushes(20)
    assert "Traceback" not in server.last_lines()


# ------------------------------------------------------------------ frames


def frame(payload: bytes, head: int = TEXT | LAST) -> bytes:
    """A frame of a client, with a mask that changes nothing."""
    size = len(payload)
    if size < 126:
        return bytes([head, 0x80 | size]) + b"\0\0\0\0" + payload
    long = b"\xfe" + size.to_bytes(2) if size < 1 << 16 else b"\xff" + size.to_bytes(8)
    return bytes([head]) + long + b"\0\0\0\0" + payload


@contextmanager
def sockets(server: Server, count: int) -> Iterator[list[socket.socket]]:
    with slow_readers(server, [HANDSHAKE] * count) as clients:
        for client in clients:
            assert client.recv(12) == b"HTTP/1.1 101"
            client.setblocking(False)
        yield clients


FLOODS = {
    "empty messages": frame(b"") * 43_000,
    "pings": frame(b"p" * 125, PING | LAST) * 20_000,
    "acks": frame(json.dumps({"type": "ack", "acknowledgments": [{"transactionId": "a", "partitionId": "b"}] * 23_000})
                  .encode()) * 3,
    "texts that come back": frame(b'{"type":"ping","ref":"' + b"r" * (MIB - 100) + b'"}') * 3,
}  # fmt: skip


@pytest.mark.parametrize("name", mostly_at_night(FLOODS, ["acks"]))
def test_a_flood_of_frames_stops_no_others_and_holds_no_memory(server: Server, name: str) -> None:
    with witnessed(server) as others, sockets(server, 100) as clients:
        for client in clients:
            send_what_is_taken(client, [FLOODS[name]])
        others.pushes(200)


@pytest.mark.parametrize("fragment", [b"", b"x"], ids=["empty", "short"])
def test_a_message_in_too_many_fragments_ends_the_socket(server: Server, fragment: bytes) -> None:
    with witnessed(server), connect(server) as attacker:
        attacker.sendall(HANDSHAKE)
        assert attacker.recv(12) == b"HTTP/1.1 101"
        send_what_is_taken(attacker, [frame(fragment, TEXT), *([frame(fragment, CONTINUATION) * 1000] * 300)])
        assert is_closed(attacker)


async def test_a_message_in_many_fragments_is_taken(server: Server) -> None:
    async with open_socket(server.port) as consumer:
        text = json.dumps({"type": "ping", "ref": "r" * 100_000})
        await consumer.connection.send(text[place : place + 100] for place in range(0, len(text), 100))
        assert (await consumer.receive())["ref"] == "r" * 100_000


async def test_frames_of_all_sizes_keep_their_order(server: Server) -> None:
    """Larger ones, and many at once, are looked at piece by piece."""
    sizes = [0, 10, 16_000, 16_384, 20_000, 500_000, 1, 1] * 5 + [0] * 3000
    async with open_socket(server.port) as consumer:
        refs = [f"{number}-" + "r" * size for number, size in enumerate(sizes)]
        answers: list[Any] = []
        for ref in refs[:40]:
            await consumer.send(type="ping", ref=ref)
            answers.append((await consumer.receive())["ref"])
        for ref in refs[40:]:
            await consumer.send(type="ping", ref=ref)
        answers += [(await consumer.receive())["ref"] for _ in refs[40:]]
    assert answers == refs


async def test_a_client_that_reads_late_gets_everything(server: Server) -> None:
    """The library reads 16 frames ahead, and then no more until they are taken."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE_S) as client:
        for number in range(60):
            await Api(client).push("late", f"{number:02}" + "x" * 500_000, partition=str(number))
        async with open_socket(server.port) as consumer:
            await consumer.subscribe("late", credit=100, batch=1)
            stored = {"items": [{"queue": "others", "payload": 1}]}
            for _ in range(100):
                assert (await client.post("/api/v1/push", json=stored)).status_code == 201
            found = [(await consumer.expect("batch"))["messages"][0]["data"][:2] for _ in range(60)]
    assert sorted(found) == [f"{number:02}" for number in range(60)]
