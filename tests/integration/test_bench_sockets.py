"""Load on WebSockets, beside another Queen and beside RabbitMQ: it runs, and says what it must."""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from websockets.asyncio.server import ServerConnection, serve

from bench.load.results import Run
from bench.sockets import amqp
from bench.sockets.http import Http
from bench.sockets.ledger import Ledger
from bench.sockets.settings import SettingError, of_environment
from bench.sockets.websocket import WebSocket, frame
from tests.integration.test_bench_load import bench, runs_of
from tests.support.processes import Server, open_folder
from tests.support.rabbitmq import PROGRAM, serving_rabbitmq

pytestmark = pytest.mark.nightly

SCENARIOS = ["socket-take-ack", "socket-latency"]
SMOKE = {"socket-take-ack": 2000, "socket-latency": 100}


def check(runs: list[Run], other: str) -> None:
    assert [(each.scenario, each.server) for each in runs] == [
        (scenario, server) for scenario in SCENARIOS for server in ("queen", other)
    ]
    for each in runs:
        assert each.crossed == []
        # A busy machine does not take the backlog within the two seconds of a smoke run.
        assert 0 < each.delivered == each.acked <= SMOKE[each.scenario]
        assert 0 < each.seconds < 60
    latencies = [each for each in runs if each.scenario == "socket-latency"]
    assert [each.pushed for each in latencies] == [100, 100]
    for each in latencies:
        assert each.delivered == 100
        assert each.latency["end_to_end"].calls == each.latency["push"].calls == 100
        assert 0 < each.latency["end_to_end"].median <= each.latency["end_to_end"].p99
        assert {moment.operation for moment in each.moments} >= {"push", "end_to_end"}
        assert set(each.cpu) == {"server", "postgres", "load"}


def test_two_servers_take_turns(server: Server, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{server.port}"
    given = ("--smoke", "--url", url, "--dsn", server.dsn, "--against", url, "--against-dsn", server.dsn)
    done = bench(*SCENARIOS, *given, "--folder", str(tmp_path))
    assert done.returncode == 0, done.stderr + done.stdout
    runs = runs_of(tmp_path)
    check(runs, "other")
    assert all("ack" in each.latency for each in runs)
    assert "CPU of both per message" in done.stdout
    assert "bench.sockets" in (tmp_path / "report.html").read_text()


@pytest.mark.skipif(not PROGRAM.exists(), reason="RabbitMQ is not installed")
def test_queen_and_rabbitmq_take_turns(server: Server, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{server.port}"
    with open_folder() as folder, serving_rabbitmq(folder) as broker:
        given = ("--smoke", "--url", url, "--dsn", server.dsn, "--against", broker)
        done = bench(*SCENARIOS, *given, "--folder", str(tmp_path))
        assert done.returncode == 0, done.stderr + done.stdout
        runs = runs_of(tmp_path)
        check(runs, "rabbitmq")
        assert runs[1].version.startswith("RabbitMQ ")
        assert [each.cpu["postgres"] for each in runs if each.server == "rabbitmq" and each.cpu] == [0.0]
        assert "How many times the figures of rabbitmq queen has" in done.stdout
        wrong = bench("socket-latency", "--smoke", "--url", url, "--against", broker.replace("//", "//nobody:x@"))
    assert wrong.returncode == 2
    assert "No RabbitMQ at 127.0.0.1" in " ".join(wrong.stderr.split())


def test_a_backlog_that_outlasts_the_time_is_left(server: Server, tmp_path: Path) -> None:
    given = ("--set", "SOCKETS=1", "--set", "CREDIT=1", "--set", "BACKLOG=30000", "--seconds", "2", "--runs", "1")
    done = bench("socket-take-ack", *given, "--url", f"http://127.0.0.1:{server.port}", "--folder", str(tmp_path))
    assert done.returncode == 0, done.stderr + done.stdout
    [found] = runs_of(tmp_path)
    assert 0 < found.delivered == found.acked < 30_000


def test_errors_are_one_line(tmp_path: Path) -> None:
    for arguments, code, text in (
        (["socket-latency", "push-1", "--against", "amqp://127.0.0.1:9"], 2, "takes scenarios that speak AMQP too"),
        (["socket-latency", "--set", "BACKLOG=5"], 2, "no script of these scenarios reads BACKLOG. They read CREDIT"),
        (["socket-take-ack", "--set", "CREDIT=none", "--seconds", "2"], 2, "CREDIT=none: expected is a whole number"),
    ):
        refused = bench(*arguments, "--folder", str(tmp_path))
        assert refused.returncode == code
        assert text in " ".join(refused.stderr.split())
        assert "Traceback" not in refused.stderr


# ---------------------------------------------------------------- what is judged


def ledger_of(stored: range, came: list[tuple[str, int, int]]) -> Ledger:
    """A queue "q" with these messages, of which some came in a lane, at a position."""
    ledger = Ledger()
    ledger.stored["q"] += stored
    ledger.came += [(lane, position, number, 0, 1) for lane, position, number in came]
    return ledger


def in_order(*numbers: int) -> list[tuple[str, int, int]]:
    return [("p", number, number) for number in numbers]


@pytest.mark.parametrize(
    ("came", "all_of_them", "told"),
    [
        (in_order(0, 1, 2, 3), True, []),
        (in_order(0, 1, 2), True, ["messages lost: 1"]),
        (in_order(0, 1, 2), False, []),
        (in_order(0, 2, 3), False, ["messages lost: 1"]),
        (in_order(), False, []),
        (in_order(0, 1, 1, 2, 3), True, ["messages delivered twice: 1", "messages not in order: 1"]),
        (in_order(1, 0, 2, 3), True, ["messages not in order: 1"]),
        (in_order(0, 1, 2, 3, 4), True, ["messages delivered but never stored: 1"]),
        ([("a", 0, 1), ("b", 0, 0), ("a", 1, 2), ("b", 1, 3)], True, []),
        ([("a", 0, 1), ("a", 1, 0), ("b", 0, 2), ("b", 1, 3)], True, ["messages not in order: 1"]),
    ],
)
def test_loss_duplicates_and_wrong_order_are_reported(
    came: list[tuple[str, int, int]], all_of_them: bool, told: list[str]
) -> None:
    assert ledger_of(range(4), came).crossed(all_of_them=all_of_them, ordered=True) == told


def test_messages_of_producers_side_by_side_may_overtake_each_other_before_they_are_stored() -> None:
    ledger = ledger_of(range(2), [("p", 0, 1), ("p", 1, 0)])
    ledger.problems["acks refused"] += 3
    assert ledger.crossed(all_of_them=True, ordered=False) == ["acks refused: 3"]


def test_times_are_those_of_what_was_due() -> None:
    ledger = ledger_of(range(2), in_order(0))
    ledger.began, ledger.ended, second = 1_000_000_000, 4_000_000_000, 1_000_000_000
    ledger.came = [("p", n, n, n * second, n * second + (n + 1) * 1_000_000) for n in range(1, 4)]
    found = ledger.outcome([], 2, 0, live=True)
    assert found.ended_ms - found.began_ms == 3000
    assert found.latency["end_to_end"].median == 3
    assert [(each.at, each.median) for each in found.moments] == [(0, 2), (2, 4)]
    assert found.latency.keys() == {"end_to_end"}
    assert ledger.outcome([], 2, 0, live=False).latency == {}


def test_settings_are_those_of_a_smoke_run_or_whole_numbers() -> None:
    given = {"QUEEN_URL": "http://x", "DURATION": "20s", "SUMMARY": "s"}
    assert (of_environment(given).credit, of_environment(given).seconds) == (100, 20)
    assert of_environment({**given, "SMOKE": "1", "RATE": "5000"}).rate == 50
    with pytest.raises(SettingError, match="RATE=0: expected is a whole number of 1 or more"):
        of_environment({**given, "RATE": "0"})


# ---------------------------------------------------------------- the clients


def pieces(data: bytes, random: Random) -> Iterator[bytes]:
    """Data as a network may deliver it."""
    while data:
        size = random.choice([1, 2, 3, 7, 100, 5000])
        yield data[:size]
        data = data[size:]


@pytest.fixture
def random() -> Random:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    return Random(seed)


async def test_texts_of_a_websocket_are_found_however_they_are_cut(random: Random) -> None:
    texts = [b"x" * random.choice([0, 1, 125, 126, 127, 65535, 65536, 70_000]) for _ in range(20)]
    found: list[bytes] = []
    socket = WebSocket(lambda some, _: found.extend(some))
    # A server's frames are those of a client without mask.
    stream = b"".join(head_of(text) + text for text in texts)
    answered = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"
    for piece in pieces(answered + stream, random):
        socket.data_received(piece)
    assert found == texts


def head_of(text: bytes) -> bytes:
    masked = frame(text)
    head = masked[: len(masked) - len(text) - 4]
    return bytes((head[0], head[1] & 0x7F)) + head[2:]


async def test_a_real_server_understands_the_client_and_sees_it_leave() -> None:
    said: list[str | bytes] = []
    left = asyncio.get_running_loop().create_future()

    async def serve_one(connection: ServerConnection) -> None:
        await (await connection.ping())
        async for text in connection:
            said.append(text)
            await connection.send(text)
        left.set_result(connection.close_code)

    heard: list[bytes] = []
    async with serve(serve_one, "127.0.0.1", 0, subprotocols=["p"]) as server:  # type: ignore[list-item]
        port = next(iter(server.sockets)).getsockname()[1]
        socket = WebSocket(lambda some, _: heard.extend(some))
        await socket.open("127.0.0.1", port, "/", "p", "token")
        texts = [b"a", b"b" * 200, b"c" * 70_000]
        socket.send(texts)
        await reached(lambda: len(heard) == 3)
        socket.close()
        assert await left == 1000
    assert heard == texts
    assert [str(text).encode() for text in said] == texts


async def reached(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_server_that_refuses_a_websocket_or_closes_it_is_told() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        socket = WebSocket(lambda *_: None)
        with pytest.raises(ConnectionError, match="403 Forbidden"):
            await socket.open("127.0.0.1", server.sockets[0].getsockname()[1], "/", "p", "")
    socket = WebSocket(lambda *_: None)
    socket.data_received(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
    with pytest.raises(ConnectionError, match="ended a WebSocket"):
        socket.connection_lost(None)
    closing = WebSocket(lambda *_: None)
    closing.connection_made(asyncio.Transport())
    closing.data_received(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
    with pytest.raises(ConnectionError, match="has closed a WebSocket: 1011"):
        closing.data_received(b"\x88\x02" + (1011).to_bytes(2))


async def test_http_answers_are_whole_and_connections_are_used_again() -> None:
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for number in range(2):
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"Authorization: Bearer t\r\n" in head
            await reader.readexactly(4)
            body = b"x" * (number * 100_000)
            writer.write(b"HTTP/1.1 20%d Fine\r\ncontent-length: %d\r\n\r\n%b" % (number, len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        http = Http("127.0.0.1", server.sockets[0].getsockname()[1], "t")
        assert await http.ask("POST", "/", b"body") == (200, b"")
        assert await http.ask("POST", "/", b"body") == (201, b"x" * 100_000)
        http.close()
    assert connections == 1


def test_messages_of_amqp_are_found_however_they_are_cut(random: Random) -> None:
    bodies = [b"y" * random.choice([1, 100, 5000]) for _ in range(20)]
    stream = b"".join(delivered(tag, body, random) for tag, body in enumerate(bodies, 1))
    found: list[tuple[int, bytes]] = []
    connection = amqp.Amqp(on_messages=lambda some, _: found.extend(some))
    for piece in pieces(stream, random):
        connection.data_received(piece)
    assert found == list(enumerate(bodies, 1))


def delivered(tag: int, body: bytes, random: Random) -> bytes:
    """A message as a broker sends it: its body in one frame or in several."""
    whole = amqp.publication("queue", body)
    deliver = b"\0\x3c\0\x3c" + b"\x01c" + tag.to_bytes(8) + b"\0\0" + b"\x05queue"
    head = b"\x01\0\x01" + len(deliver).to_bytes(4) + deliver + b"\xce"
    content = whole[whole.index(b"\x02\0\x01") :]
    content = content[: content.index(b"\xce\x03\0\x01") + 1]
    cut = random.randrange(1, len(body)) if len(body) > 1 else 1
    parts = [body[:cut], body[cut:]]
    return head + content + b"".join(b"\x03\0\x01" + len(p).to_bytes(4) + p + b"\xce" for p in parts if p)


def test_confirms_say_which_messages_they_mean() -> None:
    found: list[tuple[int, bool, bool]] = []
    connection = amqp.Amqp(on_confirm=lambda tag, multiple, taken, _: found.append((tag, multiple, taken)))
    acked = b"\x01\0\x01\0\0\0\x0d\0\x3c\0\x50" + (7).to_bytes(8) + b"\x01\xce"
    refused = b"\x01\0\x01\0\0\0\x0d\0\x3c\0\x78" + (8).to_bytes(8) + b"\0\xce"
    connection.data_received(acked + refused)
    assert found == [(7, True, True), (8, False, False)]
    assert amqp.ack(7) == acked[:-2] + b"\0\xce"


def test_a_broker_that_ends_the_channel_is_told() -> None:
    connection = amqp.Amqp()
    text = b"NOT_FOUND - no queue"
    method = b"\0\x14\0\x28" + (404).to_bytes(2) + bytes((len(text),)) + text + b"\0\x32\0\x0a"
    with pytest.raises(amqp.AmqpError, match="The broker says: NOT_FOUND - no queue"):
        connection.data_received(b"\x01\0\x01" + len(method).to_bytes(4) + method + b"\xce")
    with pytest.raises(amqp.AmqpError, match="has ended the connection"):
        connection.connection_lost(None)


def test_addresses_of_brokers() -> None:
    assert amqp.address_of("amqp://127.0.0.1:5673") == amqp.Address("127.0.0.1", 5673, "guest", "guest", "/")
    assert amqp.address_of("amqp://a:b%2F@h/v%2Fw") == amqp.Address("h", 5672, "a", "b/", "v/w")
