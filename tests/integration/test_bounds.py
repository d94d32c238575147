"""Nothing that one client sends stops the workers, takes their memory, or makes other clients wait.

Sizes and counts of the attacks are those that once did (issue 21, rows 4 and 9). The time limit of requests is shorter
than by default, so that the tests end.
"""

import json
import re
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import psutil
import pytest

from queen.core.limits import NOTICES_BYTES_MAX
from tests.support import tokens
from tests.support.attacks import (
    PATIENCE_S,
    TIMEOUT_S,
    Answer,
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
from tests.support.outage import FragilePostgres, fragile_postgres, wait_until_drained
from tests.support.processes import PYTHON, Server, clean_environment, open_folder, serving, wait_until
from tests.support.sockets import open_socket

HALF_A_HEAD = b"POST /api/v1/push HTTP/1.1\r\nHost: queen\r\nX-Half: "
LIVE = b"GET /health/live HTTP/1.1\r\nHost: queen\r\n"
MIB = 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with attacked_server(2) as running:
        yield running


def code_of(answer: Answer) -> str:
    return str(json.loads(answer.body)["code"])


def push_of(size: int) -> bytes:
    """The body of a push with a payload of so many bytes."""
    return b'{"items":[{"queue":"large","payload":"' + b"x" * size + b'"}]}'


# ------------------------------------------------------------------ the head of a request


def test_half_a_million_header_lines_are_refused(server: Server) -> None:
    with witnessed(server), connect(server) as attacker:
        send_what_is_taken(attacker, [LIVE, b"a:1\r\n" * 500_000, b"\r\n"])
        answer = answer_of(attacker)
        assert (answer.status, code_of(answer)) == (431, "head_too_large")
        assert answer.headers["connection"] == "close"
        assert is_closed(attacker)


def test_a_head_of_64_mib_is_refused_long_before_its_end(server: Server) -> None:
    with witnessed(server), connect(server) as attacker:
        send_what_is_taken(attacker, [LIVE, *([b"a: " + b"1" * (MIB - 5) + b"\r\n"] * 64), b"\r\n"])
        assert answer_of(attacker).status == 431


def test_a_header_of_32_mib_is_refused(server: Server) -> None:
    with witnessed(server), connect(server) as attacker:
        send_what_is_taken(attacker, [LIVE + b"a: ", *([b"1" * MIB] * 32), b"\r\n\r\n"])
        assert answer_of(attacker).status == 431


@pytest.mark.parametrize(("lines", "status"), [(99, 200), (100, 431)])
def test_the_number_of_header_lines_is_bounded(server: Server, lines: int, status: int) -> None:
    with connect(server) as client:
        client.sendall(LIVE + b"a:1\r\n" * lines + b"\r\n")
        assert answer_of(client).status == status


@pytest.mark.parametrize(("size", "status"), [(32_000, 200), (33_000, 431)])
def test_the_bytes_of_a_head_are_bounded(server: Server, size: int, status: int) -> None:
    with connect(server) as client:
        client.sendall(LIVE + b"a: " + b"1" * size + b"\r\n\r\n")
        assert answer_of(client).status == status


@pytest.mark.parametrize(("size", "status"), [(16_000, 404), (17_000, 414), (10 * MIB, 414)])
def test_the_length_of_a_url_is_bounded(server: Server, size: int, status: int) -> None:
    with connect(server) as client:
        send_what_is_taken(client, [b"GET /" + b"p" * size + b" HTTP/1.1\r\nHost: queen\r\n\r\n"])
        assert answer_of(client).status == status


def test_the_handshake_of_a_websocket_has_the_same_bounds(server: Server) -> None:
    with connect(server) as client:
        client.sendall(
            b"GET /api/v1/subscribe HTTP/1.1\r\nHost: queen\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" + b"a:1\r\n" * 100 + b"\r\n"
        )
        assert answer_of(client).status == 431


def test_trailers_are_bounded_too(server: Server) -> None:
    with witnessed(server), connect(server) as attacker:
        head = b"POST /api/v1/push HTTP/1.1\r\nHost: queen\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
        send_what_is_taken(attacker, [head, *([b"a: " + b"1" * 1000 + b"\r\n"] * 64_000)])
        assert answer_of(attacker).status == 431


def test_requests_sent_before_the_answers_are_bounded(server: Server) -> None:
    with witnessed(server), connect(server) as attacker:
        send_what_is_taken(attacker, [LIVE + b"\r\n"] * 5000)
        answered = 0
        while answer_of(attacker).status == 200:
            answered += 1
        assert 1 <= answered < 5000
        assert is_closed(attacker)


@pytest.mark.parametrize("cut", [0, 1, 60])
def test_a_request_that_asks_for_http_2_is_answered_whole(server: Server, cut: int) -> None:
    """As Java's client does: its body is no next request, and what follows is answered, too."""
    body = json.dumps({"items": [{"queue": "upgrade", "payload": cut}]}).encode()
    head = "POST /api/v1/push HTTP/1.1\r\nHost: queen\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    request = f"{head}HTTP2-Settings: AA\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    wish = b"GET /health/live HTTP/1.1\r\nHost: queen\r\nConnection: close, Upgrade\r\nUpgrade: h2c\r\n\r\n"
    with connect(server) as client:
        client.sendall(request[: len(request) - cut])
        client.sendall(request[len(request) - cut :])
        assert answer_of(client).status == 201
        client.sendall(request + wish)
        rest = b"".join(iter(lambda: client.recv(65536), b""))
        assert re.findall(rb"HTTP/1.1 (\d+)", rest) == [b"201", b"200"]
        assert rest.count(b'"queued"') == 1


@pytest.mark.parametrize("more", ["", "Connection: Upgrade\r\nUpgrade: h2c\r\n", "Upgrade: websocket\r\n"])
def test_a_tunnel_is_refused(server: Server, more: str) -> None:
    with witnessed(server), connect(server) as client:
        client.sendall(f"CONNECT example.org:443 HTTP/1.1\r\nHost: queen\r\n{more}\r\n".encode())
        assert 400 <= answer_of(client).status < 500


def test_a_bad_head_behind_a_good_request_does_not_take_its_answer(server: Server) -> None:
    with connect(server) as client:
        client.sendall(
            b"GET /api/v1/pop/queue/q?wait=true&timeout=500 HTTP/1.1\r\nHost: queen\r\n\r\n" + b"a:1\r\n" * 9000
        )
        assert answer_of(client).status == 204
        assert is_closed(client)


# ------------------------------------------------------------------ bodies


def test_sixteen_unfinished_notices_without_a_signature_are_refused_before_their_bodies(server: Server) -> None:
    with witnessed(server), many(server, 16, post("/internal/api/notify", 60 * MIB)) as attackers:
        for attacker in attackers:
            send_what_is_taken(attacker, [b"x" * MIB] * 59)
        for attacker in attackers:
            assert answer_of(attacker).status == 403
            assert is_closed(attacker)


def test_notices_have_a_small_limit_of_their_own(server: Server) -> None:
    with open_folder() as folder:
        environment = clean_environment(QUEEN_DATA_DIR=str(folder), QUEEN_SYNC_SECRET="known to all")
        with serving(folder / "data", "--workers", "1", dsn=server.dsn, env=environment) as instance:
            for line, status in (("Queen-Signature: none", 403), (_signature(), 413)):
                with connect(instance) as client:
                    client.sendall(post("/internal/api/notify", NOTICES_BYTES_MAX + 1, line) + b"x")
                    assert answer_of(client).status == status


def _signature() -> str:
    return f"Queen-Signature: t={time.time_ns() // 1_000_000},mac={'0' * 64}"


def test_sixteen_unfinished_pushes_of_60_mib_hold_no_memory_and_end(server: Server) -> None:
    with witnessed(server) as others, many(server, 16, post("/api/v1/push", 60 * MIB)) as attackers:
        senders = [
            threading.Thread(target=send_what_is_taken, args=(attacker, [b"x" * MIB] * 59)) for attacker in attackers
        ]
        for sender in senders:
            sender.start()
        others.pushes(100)
        assert {answer_of(attacker).status for attacker in attackers} <= {408, 503}
        for sender in senders:
            sender.join()


def test_thousands_of_unfinished_bodies_hold_no_memory(server: Server) -> None:
    with witnessed(server) as others, many(server, 1500, post("/api/v1/push", MIB) + b"x" * 600_000):
        others.pushes(200)


def test_a_body_larger_than_allowed_is_refused_without_100_continue(server: Server) -> None:
    with connect(server) as client:
        client.sendall(post("/api/v1/push", 65 * MIB, "Expect: 100-continue"))
        answer = answer_of(client)  # http.client passes over `100 Continue`
        assert (answer.status, code_of(answer)) == (413, "body_too_large")
        assert is_closed(client)


def test_100_continue_comes_when_the_body_is_wanted(server: Server) -> None:
    with connect(server) as client:
        body = push_of(10)
        client.sendall(post("/api/v1/push", len(body), "Expect: 100-continue"))
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert answer_of(client).status == 201


def test_a_sender_without_a_token_is_refused_before_the_body(server: Server) -> None:
    with open_folder() as folder:
        environment = clean_environment(QUEEN_DATA_DIR=str(folder), JWT_ENABLED="true", JWT_SECRET=tokens.SECRET)
        with serving(folder / "data", "--workers", "1", dsn=server.dsn, env=environment) as guarded:
            with connect(guarded) as stranger:
                stranger.sendall(post("/api/v1/push", 60 * MIB, "Expect: 100-continue"))
                assert stranger.recv(12) == b"HTTP/1.1 401"
            with connect(guarded) as stranger:
                stranger.sendall(post("/api/v1/push", 60 * MIB) + b"x")
                answer = answer_of(stranger)
                assert (answer.status, answer.headers["connection"]) == (401, "close")


def test_a_chunked_body_without_end_is_refused_at_the_limit(server: Server) -> None:
    with witnessed(server), connect(server) as attacker:
        head = b"POST /api/v1/push HTTP/1.1\r\nHost: queen\r\nTransfer-Encoding: chunked\r\n\r\n"
        send_what_is_taken(attacker, [head, *([b"100000\r\n" + b"x" * MIB + b"\r\n"] * 200)])
        assert answer_of(attacker).status == 413


def test_large_pushes_at_once_are_stored_one_after_the_other(server: Server) -> None:
    with witnessed(server):
        statuses: list[int] = []

        def push() -> None:
            answer = httpx.post(f"http://127.0.0.1:{server.port}/api/v1/push", content=push_of(40 * MIB), timeout=100)
            statuses.append(answer.status_code)

        pushing = [threading.Thread(target=push) for _ in range(4)]
        for thread in pushing:
            thread.start()
        for thread in pushing:
            thread.join()
        assert set(statuses) <= {201, 503}
        assert 201 in statuses


# ------------------------------------------------------------------ time


def test_five_thousand_half_sent_heads_are_ended(server: Server) -> None:
    with witnessed(server), many(server, 5000, HALF_A_HEAD) as attackers:
        statuses = {answer_of(attacker).status for attacker in attackers}
        assert statuses == {408}
        assert all(is_closed(attacker) for attacker in attackers)


def test_connections_that_send_nothing_are_closed_without_an_answer(server: Server) -> None:
    with witnessed(server), many(server, 1000, b"") as attackers:
        assert {answer_of(attacker).status for attacker in attackers} == {0}


def test_a_head_that_trickles_in_is_ended(server: Server) -> None:
    with connect(server) as attacker:
        attacker.sendall(HALF_A_HEAD)
        began = time.monotonic()
        while time.monotonic() - began < 5 * TIMEOUT_S and send_what_is_taken(attacker, [b"1"]):
            time.sleep(0.2)  # how slow the attacker is
        assert answer_of(attacker).status in (0, 408)
        assert time.monotonic() - began < 5 * TIMEOUT_S


def test_a_body_that_stalls_is_ended(server: Server) -> None:
    with connect(server) as attacker:
        attacker.sendall(post("/api/v1/push", 1000) + b"x")
        answer = answer_of(attacker)
        assert (answer.status, code_of(answer)) == (408, "request_timeout")
        assert is_closed(attacker)


def test_a_body_that_came_while_the_workers_stood_still_is_taken(server: Server) -> None:
    body = push_of(MIB)
    with connect(server) as client:
        client.sendall(post("/api/v1/push", len(body)) + body[:1000])
        for _ in range(20):
            server.request("GET", "/health/live")  # so the beginning has been read, by whichever worker
        workers = [psutil.Process(pid) for pid in server.workers()]
        for worker in workers:
            worker.suspend()
        try:
            client.setblocking(False)
            sent = 1000 + client.send(body[1000:])
            time.sleep(TIMEOUT_S + 1)  # how long they stand still
        finally:
            for worker in workers:
                worker.resume()
        client.settimeout(PATIENCE_S)
        client.sendall(body[sent:])
        assert answer_of(client).status == 201


def test_a_slow_body_that_keeps_coming_is_taken(server: Server) -> None:
    """Three times longer than a stalled one may take."""
    body = push_of(4 * MIB)
    with connect(server) as client:
        client.sendall(post("/api/v1/push", len(body)))
        for place in range(0, len(body), len(body) // 60 + 1):
            client.sendall(body[place : place + len(body) // 60 + 1])
            time.sleep(3 * TIMEOUT_S / 60)  # how slow the client is
        assert answer_of(client).status == 201


def test_an_answer_that_is_not_read_is_given_up(server: Server) -> None:
    for _ in range(2):
        assert (
            server.request("POST", "/api/v1/push", {"items": [{"queue": "unread", "payload": "x" * 12 * MIB}]})[0]
            == 201
        )
    with witnessed(server), socket.socket() as attacker:
        attacker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        attacker.settimeout(PATIENCE_S)
        attacker.connect(("127.0.0.1", server.port))
        attacker.sendall(b"GET /api/v1/pop/queue/unread?batch=2 HTTP/1.1\r\nHost: queen\r\n\r\n")
        local = attacker.getsockname()

        def is_kept() -> bool:
            held = [each for worker in server.gunicorn().children() for each in worker.net_connections()]
            return any(each.raddr and tuple(each.raddr) == local for each in held)

        wait_until(is_kept, "the connection at a worker", PATIENCE_S)
        wait_until(lambda: not is_kept(), "the end of the connection", PATIENCE_S)


async def test_idle_clients_are_left_alone(server: Server) -> None:
    """A connection between two requests, a long poll and a WebSocket: all idle for longer than a request may be."""
    url = f"http://127.0.0.1:{server.port}"
    async with open_socket(server.port) as consumer, httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        kept = server.connection()
        kept.request("GET", "/health/live")
        first = kept.getresponse()
        first.read()
        place = kept.sock.getsockname()
        answer = await client.get("/api/v1/pop/queue/idle", params={"wait": "true", "timeout": 2500 * TIMEOUT_S})
        assert answer.status_code == 204
        kept.request("GET", "/health/live")
        assert kept.getresponse().status == 200
        assert kept.sock.getsockname() == place
        kept.close()
        assert (await consumer.ask(type="ping"))["type"] == "pong"


def test_unfinished_frames_of_many_websockets_hold_no_memory(server: Server) -> None:
    handshake = (
        b"GET /api/v1/subscribe HTTP/1.1\r\nHost: queen\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    half_a_frame = b"\x81\xff" + (MIB - 1).to_bytes(8) + b"mask" + b"x" * (MIB - 10)
    with witnessed(server) as others, many(server, 1000, handshake) as attackers:
        for attacker in attackers:
            assert attacker.recv(12) == b"HTTP/1.1 101"
            send_what_is_taken(attacker, [half_a_frame])
        others.pushes(100)


# ------------------------------------------------------------------ connections

FEW_FILES = 400
OPENINGS = {
    "nothing": b"",
    "half a head": HALF_A_HEAD,
    "idle": LIVE + b"\r\n",
    "half a body": post("/api/v1/push", 1000) + b"x",
}


@pytest.fixture(scope="module")
def postgres() -> Iterator[FragilePostgres]:
    with open_folder() as folder, fragile_postgres(folder) as running:
        yield running


@pytest.fixture(scope="module")
def narrow(postgres: FragilePostgres) -> Iterator[Server]:
    """A server whose processes may open few files."""
    command = ("prlimit", f"--nofile={FEW_FILES}:{FEW_FILES}", *PYTHON)
    with open_folder() as folder:
        environment = clean_environment(QUEEN_DATA_DIR=str(folder), QUEEN_REQUEST_TIMEOUT=str(TIMEOUT_S))
        with serving(folder / "data", "--workers", "2", dsn=postgres.dsn, env=environment, command=command) as running:
            running.wait_until_all_are_healthy(2)
            yield running


@pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS)
def test_900_connections_leave_a_server_with_few_files_those_that_it_needs(narrow: Server, opening: bytes) -> None:
    with witnessed(narrow), many(narrow, 900, opening):
        pass
    assert "Too many open files" not in narrow.output.read_text()


def test_the_spool_is_written_and_replayed_beside_900_connections(narrow: Server, postgres: FragilePostgres) -> None:
    with witnessed(narrow) as others, many(narrow, 900, HALF_A_HEAD):
        postgres.kill()
        wait_until(lambda: narrow.request("GET", "/health")[1]["spool"]["spooling"], "a spool in use")
        others.pushes(100)
        with many(narrow, 900, b""):
            postgres.start()
            wait_until_drained(narrow)
        others.pushes(100)
    assert "Too many open files" not in narrow.output.read_text()


# ------------------------------------------------------------------ other worker classes, settings


@pytest.mark.nightly
@pytest.mark.parametrize("worker_class", mostly_at_night(["asgi", "gthread"], ["gthread"]))
def test_other_worker_classes_bound_heads(server: Server, worker_class: str) -> None:
    with open_folder() as folder:
        options = ("--workers", "1", "--worker-class", worker_class)
        environment = clean_environment(QUEEN_DATA_DIR=str(folder))
        with serving(folder / "data", *options, dsn=server.dsn, env=environment) as other:
            heads = {
                LIVE + b"a:1\r\n" * 90 + b"\r\n": 200,
                LIVE + b"a:1\r\n" * 500_000 + b"\r\n": 431,
                LIVE + b"a: " + b"1" * MIB + b"\r\n\r\n": 431,
                b"GET /" + b"p" * 17_000 + b" HTTP/1.1\r\nHost: queen\r\n\r\n": 414,
            }
            for head, status in heads.items():
                with connect(other) as client:
                    send_what_is_taken(client, [head])
                    assert answer_of(client).status == status
