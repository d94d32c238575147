"""Tokens against a real server: every route, every level, every bad token; and what a good one is good for."""

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from queen.http.access import Access
from spec.guarantees import Level, checks
from tests.support.api import open_client
from tests.support.processes import ROOT, Server, clean_environment, open_folder, run, serving, start, wait_until
from tests.support.published_client import play
from tests.support.route_table import requests_of_all_routes
from tests.support.sockets import open_socket
from tests.support.tokens import AUDIENCE, ISSUER, SECRET, bad_tokens, claims, jwk, pem, rsa_key, signed, token
from tests.support.verifying import verify

SYNC_SECRET = "the-secret-of-the-instances"
#: What each role may do, said here once more: not asked of the server's code.
ROLES = {
    None: {Access.PUBLIC},
    "read-only": {Access.PUBLIC, Access.READ_ONLY},
    "read-write": {Access.PUBLIC, Access.READ_ONLY, Access.READ_WRITE},
    "admin": set(Access),
}


def environment(**changes: str) -> dict[str, str]:
    return clean_environment(
        **{
            "JWT_ENABLED": "true", "JWT_ALGORITHM": "auto", "JWT_SECRET": SECRET, "JWT_PUBLIC_KEY": pem(rsa_key()),
            "JWT_ISSUER": ISSUER, "JWT_AUDIENCE": AUDIENCE, "QUEEN_SYNC_SECRET": SYNC_SECRET, "LOG_LEVEL": "debug",
            **changes,
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server that asks for tokens."""
    with open_folder() as folder, _serving_with_tokens(folder) as running:
        yield running


def _serving_with_tokens(folder: Path, *options: str, **changes: str) -> Any:
    return serving(folder / "data", "--workers", "1", *options, env=environment(**changes))


@pytest.fixture
async def http(guarded: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(guarded.port) as client:
        yield client


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


async def ask(http: httpx.AsyncClient, method: str, path: str, text: str | None) -> httpx.Response:
    """A request with a useless body: if it gets past the gate, it is answered for that, and changes nothing."""
    body = None if method in ("GET", "DELETE") else b"{"
    return await http.request(method, path, headers=bearer(text) if text else {}, content=body)


# ---------------------------------------------------------------- every route


@checks("G-SEC-1", level=Level.LIVE)
@pytest.mark.parametrize("role", ROLES)
async def test_every_route_answers_the_levels_that_it_is_for_and_no_others(
    http: httpx.AsyncClient, role: str | None
) -> None:
    text = token(role)
    for method, path, needed in requests_of_all_routes():
        response = await ask(http, method, path, text)
        place = f"{method} {path} with {role}: {response.text}"
        if needed in ROLES[role]:
            assert response.status_code not in (401, 500, 501), place
            assert "Insufficient permissions" not in response.text, place
        else:
            assert response.status_code == 403, place
            assert "Insufficient permissions" in response.text, place


@checks("G-SEC-1", "G-SEC-2", level=Level.LIVE)
async def test_bad_tokens_and_none_are_refused_in_every_interface(http: httpx.AsyncClient) -> None:
    """On every route: tests/property/test_gate.py."""
    for method, path in (("POST", "/api/v1/push"), ("GET", "/api/queues/a"), ("DELETE", "/api/v1/dlq")):
        assert (await ask(http, method, path, None)).status_code == 401
        for what, text in bad_tokens().items():
            response = await ask(http, method, path, text)
            assert response.status_code == 401, f"{method} {path} with {what}: {response.text}"
            assert response.headers["Content-Type"].startswith("application/problem+json")


async def test_unknown_routes_and_methods_do_nothing(http: httpx.AsyncClient) -> None:
    assert (await http.get("/api/v1/nothing")).status_code == 404
    assert (await http.put("/api/v1/push")).status_code == 401
    assert (await http.put("/api/v1/push", headers=bearer(token()))).status_code == 405
    assert (await http.options("/api/v1/push")).status_code == 200


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Basic YTpi", "{token}", "Token {token}", "Bearer {token} x", "Bearer {token},x"],
)
async def test_only_a_bearer_token_counts(http: httpx.AsyncClient, header: str) -> None:
    response = await http.get("/api/v1/status", headers={"Authorization": header.format(token=token())})
    assert response.status_code == 401


async def test_the_scheme_may_be_written_in_any_case(http: httpx.AsyncClient) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        headers = {"Authorization": f"{scheme} {token('read-only')}"}
        assert (await http.get("/api/v1/status", headers=headers)).status_code == 200


async def test_it_is_refused_before_its_body_is_read(guarded: Server) -> None:
    connection = guarded.connection()
    try:
        connection.putrequest("POST", "/api/v1/push")
        connection.putheader("Content-Length", "1000000")
        connection.endheaders(b"{")
        assert connection.getresponse().status == 401
    finally:
        connection.close()


async def test_a_sender_learns_who_it_is(http: httpx.AsyncClient) -> None:
    mine = (await http.get("/auth/me", headers=bearer(token("read-write", sub="bob")))).json()
    assert (mine["authentication"], mine["sub"], mine["role"]) == (True, "bob", "read-write")
    assert mine["expiresAt"].endswith("Z")
    endless = (await http.get("/auth/me", headers=bearer(token("admin", exp=None, sub=None)))).json()
    assert (endless["sub"], endless["role"], endless["expiresAt"]) == (None, "admin", None)


async def test_without_authentication_all_callers_are_anonymous_admins(server: Server) -> None:
    async with open_client(server.port) as http:
        mine = await http.get("/auth/me", headers=bearer("whatever"))
        assert mine.json() == {"authentication": False, "sub": None, "role": "admin", "expiresAt": None}
        assert (await http.get("/api/v1/status", headers=bearer("whatever"))).status_code == 200


# ---------------------------------------------------------------- producerSub


@checks("G-SEC-1", level=Level.LIVE)
async def test_messages_carry_the_subject_of_the_token_and_never_one_that_the_client_names(
    http: httpx.AsyncClient, queue: str
) -> None:
    forged = {"producerSub": "mallory", "payload": {"producerSub": "mallory"}}
    http.headers.update(bearer(token("read-write", sub="alice")))
    items = [{"queue": queue, **forged}, {"queue": queue, "transactionId": "named", **forged}]
    assert (await http.post("/api/v1/push", json={"items": items, "producerSub": "mallory"})).status_code == 201
    operations = [{"type": "push", "items": [{"queue": queue, **forged}]}, {"type": "push", "queue": queue, **forged}]
    http.headers.update(bearer(signed(claims("admin", sub="bob"), rsa_key(), "RS256")))
    assert (await http.post("/api/v1/transaction", json={"operations": operations})).json()["success"]
    popped = (await http.get(f"/api/v1/pop/queue/{queue}?batch=10")).json()["messages"]
    assert [each["producerSub"] for each in popped] == ["alice", "alice", "bob", "bob"]
    assert [each["data"] for each in popped] == [{"producerSub": "mallory"}] * 4
    http.headers.update(bearer(token("admin", sub=None)))
    await http.post("/api/v1/push", json={"items": [{"queue": f"{queue}-2", **forged}]})
    popped = (await http.get(f"/api/v1/pop/queue/{queue}-2?batch=10")).json()["messages"]
    assert [each["producerSub"] for each in popped] == [None]


@checks("G-SEC-1", level=Level.LIVE)
async def test_outputs_of_a_stream_carry_the_subject_too_and_dead_letters_keep_it(
    http: httpx.AsyncClient, queue: str
) -> None:
    http.headers.update(bearer(token("admin", sub="streamer")))
    await http.post("/api/v1/push", json={"items": [{"queue": queue, "payload": 1}]})
    body = {"name": queue, "source_queue": queue, "config_hash": "h", "sink_queue": f"{queue}-out"}
    stream = (await http.post("/streams/v1/queries", json=body)).json()["query_id"]
    group = f"streams.{stream}"
    source = (await http.get(f"/api/v1/pop/queue/{queue}?consumerGroup={group}&subscriptionMode=all")).json()
    [message] = source["messages"]
    ack = {"transactionId": message["transactionId"], "leaseId": message["leaseId"]}
    cycle = {
        "query_id": stream, "partition_id": message["partitionId"], "consumer_group": group, "ack": ack,
        "push_items": [{"queue": f"{queue}-out", "payload": 2, "producerSub": "mallory"}],
    }  # fmt: skip
    done = (await http.post("/streams/v1/cycle", json=cycle)).json()
    assert done["success"], done
    [out] = (await http.get(f"/api/v1/pop/queue/{queue}-out")).json()["messages"]
    assert out["producerSub"] == "streamer"
    dead = {"transactionId": out["transactionId"], "partitionId": out["partitionId"], "leaseId": out["leaseId"]}
    await http.post("/api/v1/ack", json={**dead, "status": "dlq"})
    [letter] = (await http.get(f"/api/v1/dlq?queue={queue}-out")).json()["messages"]
    assert letter["producerSub"] == "streamer"
    http.headers.update(bearer(token("admin", sub="operator")))
    await http.post(f"/api/v1/dlq/{letter['id']}/replay")
    [again] = (await http.get(f"/api/v1/pop/queue/{queue}-out")).json()["messages"]
    assert again["producerSub"] == "streamer", "who has pushed it, not who has brought it back"


# ---------------------------------------------------------------- WebSocket


async def _refused(port: int, **options: Any) -> int:
    with pytest.raises(InvalidStatus) as refusal:
        async with connect(f"ws://127.0.0.1:{port}/api/v1/subscribe", proxy=None, **options):
            pass
    return refusal.value.response.status_code


@checks("G-SEC-1", "G-SEC-2", level=Level.LIVE)
async def test_a_websocket_needs_a_token_too(guarded: Server, http: httpx.AsyncClient, queue: str) -> None:
    assert await _refused(guarded.port) == 403
    for text in (*bad_tokens().values(), token("read-only"), token(None)):
        assert await _refused(guarded.port, additional_headers=bearer(text)) == 403
    good = token("read-write")
    await http.post("/api/v1/push", json={"items": [{"queue": queue, "payload": 1}]}, headers=bearer(good))
    async with open_socket(guarded.port, additional_headers=bearer(good)) as socket:
        await socket.subscribe(queue)
        batch = await socket.expect("batch")
        assert [message["producerSub"] for message in batch["messages"]] == ["alice"]
        assert await socket.acked(batch)


async def test_a_browser_hands_its_token_over_as_a_protocol(guarded: Server) -> None:
    async with open_socket(guarded.port, subprotocols=["queen.v1", f"bearer.{token('read-write')}"]):
        pass
    assert await _refused(guarded.port, subprotocols=["queen.v1", f"bearer.{token('read-only')}"]) == 403
    assert await _refused(guarded.port, subprotocols=["queen.v1", "bearer.x.y.z"]) == 403


async def test_a_websocket_ends_with_its_token(guarded: Server) -> None:
    # Expired a moment ago, and still good for what is left of the leeway.
    ending = token("read-write", exp=int(datetime.now(UTC).timestamp()) - 25)
    async with open_socket(guarded.port, additional_headers=bearer(ending)) as socket:
        await socket.connection.wait_closed()
        assert socket.connection.close_code == 3000


async def test_a_websocket_of_a_route_that_has_none_is_refused(guarded: Server) -> None:
    with pytest.raises(InvalidStatus):
        async with connect(f"ws://127.0.0.1:{guarded.port}/api/v1/push", proxy=None):
            pass
    assert guarded.is_healthy()


# ---------------------------------------------------------------- clients


async def test_the_published_client_with_a_token(client_python: Path, guarded: Server, queue: str) -> None:
    script = ROOT / "tests" / "support" / "client_scenarios.py"
    outcome = await play(client_python, script, "push_and_pop", guarded.port, queue, token("read-write"))
    assert outcome["statuses"] == ["queued"] * 5
    assert outcome["first_ack"]["success"] is True


@pytest.mark.nightly
def test_queen_verify_with_a_token(guarded: Server) -> None:
    url, only = f"http://127.0.0.1:{guarded.port}", "--only=G-IDEM-4"
    for result in (verify(url, only, f"--token={token()}"), verify(url, only, QUEEN_TOKEN=token())):
        assert result.returncode == 0, result.stdout + result.stderr
    assert verify(url, only).returncode != 0


# ---------------------------------------------------------------- limits, settings, start


@contextmanager
def key_set(*members: dict[str, Any]) -> Iterator[str]:
    """An issuer that tells its keys; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"keys": members}).encode())

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as issuer:
        threading.Thread(target=issuer.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{issuer.server_port}/keys"
        finally:
            issuer.shutdown()


async def test_keys_of_an_issuer_a_limit_of_requests_and_paths_that_need_no_token() -> None:
    with key_set(jwk(rsa_key("one"), kid="one")) as url, open_folder() as folder:
        changes = {"JWT_PUBLIC_KEY": "", "JWT_JWKS_URL": url, "QUEEN_MAX_REQUESTS_PER_S": "10"}
        with _serving_with_tokens(folder, **changes, JWT_SKIP_PATHS="/api/v1/status") as server:
            async with open_client(server.port) as http:
                await _use_keys_of_an_issuer(http)
                await _ask_too_often(http)
                assert (await http.get("/api/v1/status")).status_code == 200
                assert (await http.get("/api/v1/status/queues", headers=bearer("bad"))).status_code == 200
                assert (await http.get("/api/v1/resources/overview")).status_code == 401


async def _use_keys_of_an_issuer(http: httpx.AsyncClient) -> None:
    def signed_by(name: str, kid: str) -> dict[str, str]:
        return bearer(signed(claims("admin", sub=kid), rsa_key(name), "RS256", kid=kid))

    mine = await http.get("/auth/me", headers=signed_by("one", "one"))
    assert (mine.status_code, mine.json()["sub"]) == (200, "one")
    unknown = await http.get("/auth/me", headers=signed_by("two", "two"))
    assert (unknown.status_code, unknown.json()["error"]) == (401, "Unknown key ID: two")
    assert (await http.get("/auth/me", headers=signed_by("two", "one"))).status_code == 401


async def _ask_too_often(http: httpx.AsyncClient) -> None:
    eager, patient = bearer(token("read-only", sub="eager")), bearer(token("read-only", sub="patient"))
    answers = await asyncio.gather(*(http.get("/auth/me", headers=eager) for _ in range(200)))
    refused = [each for each in answers if each.status_code == 429]
    assert refused
    assert refused[0].headers["Retry-After"] == "1"
    assert refused[0].json()["code"] == "too_many_requests"
    assert (await http.get("/auth/me", headers=patient)).status_code == 200
    assert {(await http.get("/health")).status_code for _ in range(20)} == {200}


def test_keys_that_are_missing_or_wrong_are_said_before_anything_starts(tmp_path: Path) -> None:
    for variables, text in (
        ({"JWT_ALGORITHM": "HS256", "JWT_SECRET": ""}, "JWT_ENABLED with JWT_ALGORITHM=HS256 needs JWT_SECRET"),
        ({"JWT_PUBLIC_KEY": "/no/such/key.pem"}, "JWT_PUBLIC_KEY must be a public key"),
        ({"QUEEN_TLS_CERTFILE": "/no/cert", "QUEEN_TLS_KEYFILE": "/no/key"}, "QUEEN_TLS_CERTFILE=/no/cert"),
    ):
        result = run("serve", "--port", "0", "--data-dir", str(tmp_path / "data"), **environment(**variables))
        assert result.returncode == 2
        assert text in result.stderr
        assert "Traceback" not in result.stderr


def test_what_the_server_says_of_its_access(server: Server, guarded: Server) -> None:
    for running, access in ((server, "no authentication"), (guarded, "authentication by tokens (JWT, auto)")):
        line = f"{access}; only programs on this machine can connect"
        wait_until(lambda running=running, line=line: line in running.output.read_text(), line)  # type: ignore[misc]


def test_secrets_and_tokens_are_never_logged(guarded: Server) -> None:
    marked = signed(claims("admin", sub="marked"), SECRET, "HS256", kid="marked-key")
    for text in (marked, f"{marked[:-4]}AAAA", token("admin", exp=1), "marked-garbage"):
        for path in ("/api/v1/status", "/api/v1/messages/x/y", "/api/v1/push"):
            connection = guarded.connection()
            connection.request("POST" if path.endswith("push") else "GET", path, b"{", headers=bearer(text))
            connection.getresponse()
            connection.close()
    output = guarded.output.read_text()
    assert '"level": "debug"' in output, "everything was logged that can be"
    for secret in (SECRET, SYNC_SECRET, marked, marked.rsplit(".", 1)[1], "marked-garbage"):
        assert secret not in output


# ---------------------------------------------------------------- TLS


def certificate(folder: Path) -> tuple[Path, Path]:
    """Files with a certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    alternatives = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    built = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(alternatives, critical=False).sign(key, hashes.SHA256())
    )  # fmt: skip
    form = serialization.PrivateFormat.PKCS8
    (folder / "cert.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return folder / "cert.pem", folder / "key.pem"


async def test_https() -> None:
    with open_folder() as folder:
        cert, key = certificate(folder)
        server = start_https(folder, "--certfile", str(cert), "--keyfile", str(key))
        try:
            context = ssl.create_default_context(cafile=str(cert))
            async with httpx.AsyncClient(base_url=f"https://localhost:{server.port}", verify=context) as http:
                body = {"items": [{"queue": "q", "payload": 1}]}
                pushed = await http.post("/api/v1/push", json=body, headers=bearer(token()))
                assert pushed.status_code == 201
                popped = await http.get("/api/v1/pop/queue/q", headers=bearer(token()))
                assert popped.json()["messages"][0]["data"] == 1
            url = f"wss://localhost:{server.port}/api/v1/subscribe"
            async with connect(url, ssl=context, proxy=None, additional_headers=bearer(token())) as socket:
                assert json.loads(await socket.recv())["type"] == "welcome"
        finally:
            server.stop()


def start_https(folder: Path, *options: str) -> Server:
    server = start(folder / "data", "--workers", "1", *options, env=environment())
    wait_until(lambda: "listens on https://" in server.output.read_text(), f"announced {server.output.read_text()}")
    return server
