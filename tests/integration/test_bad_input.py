"""Requests that cannot be understood: a 4xx that names the field, nothing stored, no worker lost."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import httpx
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, open_client, pop_path
from tests.support.processes import Server, open_folder
from tests.support.servers import serving_database

BODY_BYTES_MAX = 2048
POSTS = ["push", "ack", "ack/batch", "transaction", "configure"]


@pytest.fixture(autouse=True)
def same_workers(server: Server) -> Iterator[None]:
    """No request may cost a worker."""
    before = server.workers()
    assert len(before) == 2
    yield
    assert server.workers() == before


@pytest.fixture(scope="module")
def small_server(server: Server) -> Iterator[Server]:
    """A second instance on the same database, which takes small bodies only."""
    with (
        open_folder() as folder,
        serving_database(server.dsn, folder, "--workers", "1", MAX_BODY_SIZE=str(BODY_BYTES_MAX)) as running,
    ):
        yield running


def assert_problem(response: httpx.Response, status: int = 400, field: str | None = None) -> dict[str, Any]:
    """A problem document of RFC 9457, with the text that the published clients read."""
    assert response.status_code == status, response.text[:500]
    assert response.headers["content-type"].startswith("application/problem+json")
    body = response.json()
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    assert body["error"]
    assert len(response.content) < 2000, "what was sent is not echoed at length"
    if field is not None:
        assert body["field"] == field
    return dict(body)


async def is_unknown(database: "asyncpg.Connection[Any]", queue: str) -> bool:
    """Whether no queue with the name, or a name that begins so, was made."""
    return bool(await database.fetchval("SELECT count(*) = 0 FROM queen.queues WHERE starts_with(name, $1)", queue))


# ---------------------------------------------------------------- not JSON

_NOT_JSON: dict[str, bytes] = {
    "empty": b"",
    "blank": b"   \n",
    "text": b"hello",
    "cut": b'{"items":[{"queue":"QUEUE","payload":1}',
    "trailing": b'{"items":[{"queue":"QUEUE","payload":1}]} x',
    "two documents": b'{"items":[{"queue":"QUEUE"}]}{"items":[{"queue":"QUEUE"}]}',
    "single quotes": b"{'items':[{'queue':'QUEUE'}]}",
    "trailing comma": b'{"items":[{"queue":"QUEUE"},]}',
    "NaN": b'{"items":[{"queue":"QUEUE","payload":NaN}]}',
    "Infinity": b'{"items":[{"queue":"QUEUE","payload":-Infinity}]}',
    "leading zero": b'{"items":[{"queue":"QUEUE","payload":01}]}',
    "raw NUL": b'{"items":[{"queue":"QUEUE","payload":"\0"}]}',
    "raw control character": b'{"items":[{"queue":"QUEUE","payload":"\n"}]}',
    "invalid UTF-8": b'{"items":[{"queue":"QUEUE","payload":"\xff"}]}',
    "UTF-8 cut short": b'{"items":[{"queue":"QUEUE","payload":"\xe2\x82"}]}',
    "overlong UTF-8": b'{"items":[{"queue":"QUEUE","payload":"\xc0\x80"}]}',
    "surrogate in UTF-8": b'{"items":[{"queue":"QUEUE","payload":"\xed\xa0\x80"}]}',
    "lone surrogate in a payload": rb'{"items":[{"queue":"QUEUE","payload":"\ud800"}]}',
    "lone surrogate in a key": rb'{"items":[{"queue":"QUEUE","payload":{"\udc00":1}}]}',
    "lone surrogate in a name": rb'{"items":[{"queue":"QUEUE\ud800","payload":1}]}',
    "bad escape": rb'{"items":[{"queue":"QUEUE","payload":"\x41"}]}',
    "UTF-16": '{"items":[{"queue":"QUEUE","payload":1}]}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"items":[{"queue":"QUEUE","payload":1}]}',
    "nested too deeply": b'{"items":[{"queue":"QUEUE","payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
    "nested objects": b'{"items":[{"queue":"QUEUE","payload":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}]}",
    "open brackets": b"[" * 200_000,
    "binary push": b"QPB1\x00\x01\x00\x00\x00",
}


@checks("G-ISO-3", level=Level.LIVE)
@pytest.mark.parametrize("name", _NOT_JSON)
async def test_push_of_what_is_not_json_is_a_400_and_stores_nothing(
    api: Api, database: "asyncpg.Connection[Any]", queue: str, name: str
) -> None:
    content = _NOT_JSON[name].replace(b"QUEUE", queue.encode())
    assert_problem(await api.http.post("/api/v1/push", content=content))
    assert await is_unknown(database, queue)


@checks("G-ISO-3", level=Level.LIVE)
@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"1", b"null", b'"text"', b"[1]", b"{}", b"[" * 100_000])
async def test_post_of_a_body_of_the_wrong_kind_is_a_400(api: Api, path: str, content: bytes) -> None:
    assert_problem(await api.http.post(f"/api/v1/{path}", content=content))


# ---------------------------------------------------------------- wrong fields

_LONG = "x" * 256
_HUGE = "x" * 100_000
_NAMES = {"empty": "", "256 characters": _LONG, "100,000 characters": _HUGE, "NUL": "a\0b"}
_WRONG = {"number": 1, "true": True, "list": ["a"], "object": {"a": 1}, "float": 1.5}


def _push_cases() -> Iterator[tuple[str, Any, str]]:
    yield "items missing", {}, "items"
    for kind, value in {**_WRONG, "null": None, "text": "a"}.items():
        if kind != "list":
            yield f"items {kind}", {"items": value}, "items"
    for kind, value in {"number": 1, "null": None, "text": "a", "list": []}.items():
        yield f"item {kind}", {"items": [{"queue": "QUEUE"}, value]}, "items[1]"
    yield "queue missing", {"items": [{"queue": "QUEUE"}, {"payload": 1}]}, "items[1].queue"
    for field in ("queue", "partition", "transactionId", "traceId"):
        for kind, value in _WRONG.items():
            item = {"queue": "QUEUE", field: value}
            yield f"{field} {kind}", {"items": [{"queue": "QUEUE"}, item]}, f"items[1].{field}"
    for field in ("queue", "partition"):
        yield f"{field} null", {"items": [{"queue": "QUEUE"}, {"queue": "QUEUE", field: None}]}, f"items[1].{field}"
    for field in ("queue", "partition", "transactionId"):
        for kind, value in _NAMES.items():
            if kind != "empty" or field != "transactionId":
                item = {"queue": "QUEUE", field: value}
                yield f"{field} {kind}", {"items": [{"queue": "QUEUE"}, item]}, f"items[1].{field}"
    for kind, value in {"no UUID": "abc", "NUL": "\0", "huge": _HUGE}.items():
        yield f"traceId {kind}", {"items": [{"queue": "QUEUE", "traceId": value}]}, "items[0].traceId"


def _ack_cases() -> Iterator[tuple[str, Any, str]]:
    good = {"transactionId": "t", "partitionId": "p"}
    for field in ("transactionId", "partitionId"):
        yield f"{field} missing", {name: value for name, value in good.items() if name != field}, field
        yield f"{field} null", {**good, field: None}, field
    for field in ("transactionId", "partitionId", "leaseId", "status", "error"):
        for kind, value in _WRONG.items():
            yield f"{field} {kind}", {**good, field: value}, field
    yield "transactionId empty", {**good, "transactionId": ""}, "transactionId"


def _group_cases(good: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    for kind, value in {**_WRONG, **_NAMES}.items():
        if kind != "empty":
            yield f"consumerGroup {kind}", {**good, "consumerGroup": value}, "consumerGroup"


def _ack_batch_cases() -> Iterator[tuple[str, Any, str]]:
    good = {"transactionId": "t", "partitionId": "p"}
    yield "acknowledgments missing", {}, "acknowledgments"
    for kind, value in {"null": None, "object": {}, "text": "a", "number": 1}.items():
        yield f"acknowledgments {kind}", {"acknowledgments": value}, "acknowledgments"
        yield (
            f"acknowledgment {kind if kind != 'object' else 'list'}",
            {"acknowledgments": [good, value if kind != "object" else []]},
            "acknowledgments[1]",
        )
    for name, body, field in _ack_cases():
        yield name, {"acknowledgments": [good, body]}, f"acknowledgments[1].{field}"
    yield from _group_cases({"acknowledgments": [good]})
    yield from _pop_cases({"acknowledgments": [good]})


def _pop_cases(acks: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    for kind, value in {"list": [], "text": "a", "number": 1}.items():
        yield f"pop {kind}", {**acks, "pop": value}, "pop"
    yield "pop of nothing", {**acks, "pop": {}}, "pop.queue"
    yield "pop conflation", {**acks, "pop": {"queue": "QUEUE", "conflation": True}}, "pop.conflation"
    for field in ("queue", "partition", "consumerGroup"):
        for kind, value in {**_WRONG, **_NAMES}.items():
            if kind != "empty" or field != "consumerGroup":
                yield f"pop {field} {kind}", {**acks, "pop": {"queue": "QUEUE", field: value}}, f"pop.{field}"
    for field in ("batch", "partitions", "timeout", "leaseSeconds"):
        for kind, value in {"text": "1", "fraction": 1.5, "huge": 10**30, "low": -(10**12), "switch": True}.items():
            yield f"pop {field} {kind}", {**acks, "pop": {"queue": "QUEUE", field: value}}, f"pop.{field}"
    for field in ("wait", "autoAck", "autopilot", "conflation"):
        yield f"pop {field} text", {**acks, "pop": {"queue": "QUEUE", field: "true"}}, f"pop.{field}"
    yield (
        "pop subscriptionFrom",
        {**acks, "pop": {"queue": "QUEUE", "subscriptionFrom": "sometimes"}},
        "pop.subscriptionFrom",
    )


def _configure_cases() -> Iterator[tuple[str, Any, str]]:
    yield "queue missing", {"options": {}}, "queue"
    for kind, value in {**_WRONG, **_NAMES, "null": None}.items():
        yield f"queue {kind}", {"queue": value}, "queue"
    for field in ("namespace", "task"):
        for kind, value in {**_WRONG, **_NAMES}.items():
            if kind != "empty":
                yield f"{field} {kind}", {"queue": "QUEUE", field: value}, field
    for kind, value in {"text": "a", "list": [], "number": 1}.items():
        yield f"options {kind}", {"queue": "QUEUE", "options": value}, "options"
    numbers = [
        "leaseTime", "retryLimit", "retryDelay", "delayedProcessing", "windowBuffer", "priority", "retentionSeconds",
        "completedRetentionSeconds", "ttl", "maxWaitTimeSeconds", "maxSize",
    ]  # fmt: skip
    values = {"text": "5", "float": 1.5, "true": True, "huge": 10**30, "list": [], "2^31": 2**31}
    for option in numbers:
        for kind, value in {**values, **({} if option == "priority" else {"negative": -1})}.items():
            yield f"{option} {kind}", {"queue": "QUEUE", "options": {option: value}}, f"options.{option}"
    for option in ("deadLetterQueue", "dlqAfterMaxRetries", "encryptionEnabled", "retentionEnabled"):
        for kind, value in {"text": "true", "number": 1}.items():
            yield f"{option} {kind}", {"queue": "QUEUE", "options": {option: value}}, f"options.{option}"
    yield (
        "encryption without a key",
        {"queue": "QUEUE", "options": {"encryptionEnabled": True}},
        ("options.encryptionEnabled"),
    )


def _transaction_cases() -> Iterator[tuple[str, Any, str]]:
    push = {"type": "push", "items": [{"queue": "QUEUE", "payload": 1}]}
    ack = {"type": "ack", "transactionId": "t", "partitionId": "p"}
    yield "operations missing", {}, "operations"
    yield "operations empty", {"operations": []}, "operations"
    for kind, value in {"null": None, "object": {}, "text": "a", "number": 1}.items():
        yield f"operations {kind}", {"operations": value}, "operations"
        yield (
            f"operation {kind if kind != 'object' else 'list'}",
            {"operations": [push, value if kind != "object" else []]},
            "operations[1]",
        )
    yield "type missing", {"operations": [push, {"queue": "QUEUE"}]}, "operations[1].type"
    yield "type number", {"operations": [push, {"type": 1}]}, "operations[1].type"
    yield "push of nothing", {"operations": [push, {"type": "push"}]}, "operations[1].queue"
    yield "items object", {"operations": [push, {"type": "push", "items": {}}]}, "operations[1].items"
    for kind, value in {**_NAMES, "number": 1}.items():
        flat = {"type": "push", "queue": value, "payload": 1}
        yield f"flat queue {kind}", {"operations": [push, flat]}, "operations[1].queue"
        nested = {"type": "push", "items": [{"queue": "QUEUE"}, {"queue": value}]}
        yield f"nested queue {kind}", {"operations": [push, nested]}, "operations[1].items[1].queue"
    yield "nested queue missing", {"operations": [{"type": "push", "items": [{}]}]}, "operations[0].items[0].queue"
    for field in ("transactionId", "partitionId"):
        yield f"ack {field} missing", {"operations": [push, {**ack, field: None}]}, f"operations[1].{field}"
        yield f"ack {field} number", {"operations": [push, {**ack, field: 1}]}, f"operations[1].{field}"
    for kind, value in {"NUL": "\0", "256 characters": _LONG}.items():
        yield (
            f"ack group {kind}",
            {"operations": [push, {**ack, "consumerGroup": value}]},
            "operations[1].consumerGroup",
        )
    for kind, value in {"text": "a", "number": 1}.items():
        yield f"requiredLeases {kind}", {"operations": [push], "requiredLeases": value}, "requiredLeases"
    yield "required lease number", {"operations": [push], "requiredLeases": [1]}, "requiredLeases[0]"


_CASES = [
    *[("push", *case) for case in _push_cases()],
    *[("ack", *case) for case in _ack_cases()],
    *[("ack", *case) for case in _group_cases({"transactionId": "t", "partitionId": "p"})],
    *[("ack/batch", *case) for case in _ack_batch_cases()],
    *[("configure", *case) for case in _configure_cases()],
    *[("transaction", *case) for case in _transaction_cases()],
]


@checks("G-ISO-3", "G-SEC-4", level=Level.LIVE)
@pytest.mark.parametrize(
    ("path", "body", "field"),
    [case[0:1] + case[2:] for case in _CASES],
    ids=[f"{case[0]}: {case[1]}" for case in _CASES],
)
async def test_post_with_a_bad_field_is_a_400_that_names_it_and_stores_nothing(
    api: Api, database: "asyncpg.Connection[Any]", queue: str, path: str, body: Any, field: str
) -> None:
    content = json.dumps(body).replace('"QUEUE"', json.dumps(queue))
    assert_problem(await api.http.post(f"/api/v1/{path}", content=content), field=field)
    assert await is_unknown(database, queue)


# ---------------------------------------------------------------- paths and queries

_QUERIES = {
    "batch": ["0", "-1", "1000000000", "abc", "1.5", "1e3", "\u0661", "99999999999999999999"],
    "timeout": ["-1", "abc", "1000000000000"],
    "partitions": ["abc", "1.5", "99999999999999999999"],
    "leaseSeconds": ["0", "-1", "abc", "1000000000"],
    "consumerGroup": [_LONG, "a%00b"],
    "subscriptionFrom": ["yesterday", "2026-13-01T00:00:00Z", "a%00b", "-infinity"],
}


@checks("G-ISO-3", level=Level.LIVE)
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in _QUERIES.items() for value in values])
async def test_pop_with_a_bad_parameter_is_a_400_that_names_it_and_leaves_no_trace(
    api: Api, database: "asyncpg.Connection[Any]", queue: str, name: str, value: str
) -> None:
    group = "" if name == "consumerGroup" else "&consumerGroup=g"
    response = await api.http.get(f"{pop_path(queue)}?{name}={value}{group}")
    assert_problem(response, field=name)
    assert await is_unknown(database, queue)


@checks("G-ISO-3", level=Level.LIVE)
@pytest.mark.parametrize("name", ["namespace", "task"])
@pytest.mark.parametrize("value", ["a%00b", _HUGE[:5000]])
async def test_pop_by_a_label_that_no_queue_can_have_is_a_400_or_empty(api: Api, name: str, value: str) -> None:
    response = await api.http.get(f"/api/v1/pop?{name}={value}&consumerGroup=g")
    if response.status_code != 204:
        assert_problem(response, field=name)


@checks("G-ISO-3", level=Level.LIVE)
@pytest.mark.parametrize(
    ("path", "field"),
    [
        (f"/api/v1/pop/queue/{_LONG}", "queue"),
        ("/api/v1/pop/queue/a%00b", "queue"),
        (f"/api/v1/pop/queue/a/partition/{_LONG}", "partition"),
        ("/api/v1/pop/queue/a/partition/a%00b", "partition"),
        ("/api/v1/pop/queue//partition/a", "queue"),
    ],
)
async def test_pop_of_a_bad_name_in_the_path_is_a_400_that_names_it(api: Api, path: str, field: str) -> None:
    assert_problem(await api.http.get(path), field=field)


@checks("G-ISO-3", level=Level.LIVE)
@pytest.mark.parametrize("name", [_LONG, "a%00b"])
async def test_delete_or_figures_of_a_bad_name_are_a_400(api: Api, name: str) -> None:
    assert_problem(await api.http.delete(f"/api/v1/resources/queues/{name}"), field="queue")
    assert_problem(await api.http.get(f"/api/v1/status/queues/{name}"), field="queue")
    assert_problem(await api.http.get(f"/api/v1/status/queues/{name}/messages"), field="queue")


@checks("G-ISO-3", level=Level.LIVE)
@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"seconds":"60"}', b'{"seconds":1.5}', b'{"seconds":1e30}', b"\xff"]
)
async def test_lease_extension_with_a_bad_body_is_a_400(api: Api, content: bytes) -> None:
    lease = "00000000-0000-4000-8000-000000000000"
    assert_problem(await api.http.post(f"/api/v1/lease/{lease}/extend", content=content))


@checks("G-ISO-3", level=Level.LIVE)
@pytest.mark.parametrize(
    "path", ["/api", "/api/v1", "/api/v1/nowhere", "/api/v2/push", "/api/v1/push/", "/api/v1/%00", "/é"]
)
async def test_unknown_route_is_a_404(api: Api, path: str) -> None:
    assert_problem(await api.http.get(path), 404)


@checks("G-ISO-3", level=Level.LIVE)
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", f"/api/v1/{path}") for path in POSTS if path != "configure"]
    + [("POST", "/api/v1/pop/queue/q"), ("PUT", "/api/v1/push"), ("DELETE", "/health"), ("PATCH", "/api/v1/ack")],
)
async def test_wrong_method_is_a_405_that_says_which_are_right(api: Api, method: str, path: str) -> None:
    response = await api.http.request(method, path)
    assert_problem(response, 405)
    assert response.headers["allow"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "nonsense", ""])
async def test_push_with_another_content_type_is_taken_as_json(api: Api, queue: str, content_type: str) -> None:
    body = json.dumps({"items": [{"queue": queue, "payload": 1}]})
    response = await api.http.post("/api/v1/push", content=body, headers={"Content-Type": content_type})
    assert response.status_code == 201


# ---------------------------------------------------------------- size


def _sized(queue: str, size: int) -> bytes:
    frame = len(json.dumps({"items": [{"queue": queue, "payload": ""}]}))
    return json.dumps({"items": [{"queue": queue, "payload": "x" * (size - frame)}]}).encode()


async def in_pieces(content: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(content), 100):
        yield content[begin : begin + 100]


@checks("G-ISO-3", level=Level.LIVE)
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [BODY_BYTES_MAX, BODY_BYTES_MAX + 1, 20 * BODY_BYTES_MAX])
async def test_push_of_a_body_over_the_limit_is_a_413_and_stores_nothing(
    small_server: Server, database: "asyncpg.Connection[Any]", queue: str, size: int, chunked: bool
) -> None:
    content = _sized(queue, size)
    assert len(content) == size
    async with open_client(small_server.port) as http:
        response = await http.post("/api/v1/push", content=in_pieces(content) if chunked else content)
        if size <= BODY_BYTES_MAX:
            assert response.status_code == 201
            return
        assert_problem(response, 413)
        assert await is_unknown(database, queue)
        for path in POSTS[1:]:
            assert_problem(await http.post(f"/api/v1/{path}", content=content), 413)
        (result,) = await Api(http).push(queue, "small")
        assert result["status"] == "queued"


@checks("G-ISO-3", level=Level.LIVE)
async def test_body_that_never_ends_is_cut_off(small_server: Server) -> None:
    def send() -> bytes:
        with socket.create_connection(("127.0.0.1", small_server.port), 20) as connection:
            connection.sendall(b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            try:
                for _ in range(1_000):
                    connection.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
            except OSError:
                pass  # the server has closed the connection, as it may
            try:
                return connection.recv(4096)
            except ConnectionResetError:
                return b""

    answer = await asyncio.to_thread(send)
    assert answer.startswith(b"HTTP/1.1 413") or not answer
    async with open_client(small_server.port) as http:
        assert (await http.get("/health")).status_code == 200


@checks("G-ISO-3", level=Level.LIVE)
@pytest.mark.parametrize(
    "request_head",
    [
        b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n",
        b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET /api/v1/pop/queue/\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health\r\n\r\n",
    ],
    ids=["length abc", "length -1", "bad chunk", "TLS", "raw bytes in path", "long path", "HTTP/0.9"],
)
async def test_broken_http_is_refused_and_costs_no_worker(server: Server, api: Api, request_head: bytes) -> None:
    def send() -> bytes:
        with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
            try:
                connection.sendall(request_head)
                connection.shutdown(socket.SHUT_WR)
                return connection.recv(4096)
            except OSError:
                return b""

    answer = await asyncio.to_thread(send)
    assert answer.split(b" ")[1][:1] in (b"4", b"2") if answer else True
    assert (await api.http.get("/health")).status_code == 200


@checks("G-ISO-3", "G-DUR-4", level=Level.LIVE)
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("end", [b"", b"\n"], ids=["in the middle", "where it is complete JSON"])
async def test_push_cut_off_stores_nothing(
    server: Server, api: Api, database: "asyncpg.Connection[Any]", queue: str, chunked: bool, end: bytes
) -> None:
    content = json.dumps({"items": [{"queue": queue, "payload": n} for n in range(10)]}).encode() + end
    head = b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\n"
    cut = content[:-1]
    if chunked:
        head += b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(cut), cut)
    else:
        head += b"Content-Length: %d\r\n\r\n%b" % (len(content), cut)

    def send() -> None:
        with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
            connection.sendall(head)

    for _ in range(5):
        await asyncio.to_thread(send)
    for _ in range(5):
        assert (await api.http.get("/health")).status_code == 200
    assert await is_unknown(database, queue)


# ---------------------------------------------------------------- beside others


@checks("G-ISO-1", "G-ISO-3", level=Level.LIVE)
async def test_bad_requests_beside_good_ones_fail_no_others(api: Api, queue: str) -> None:
    bad = [json.dumps(body) for path, _, body, _ in _CASES if path == "push" and len(json.dumps(body)) < 2000]
    bad += ["{", '{"items":[{"queue":"q\\u0000"}]}']

    async def send_good(n: int) -> None:
        (result,) = await api.push(queue, n, partition=f"p{n % 5}", ids=[f"t{n}"] if n % 2 else None)
        assert result["status"] == "queued"

    async def send_bad(n: int) -> None:
        response = await api.http.post("/api/v1/push", content=bad[n % len(bad)].replace("QUEUE", queue))
        assert_problem(response)

    for begin in range(0, 120, 20):
        await asyncio.gather(*[send(n) for n in range(begin, begin + 20) for send in (send_good, send_bad)])
    popped = await api.pop(queue, batch=1000, partitions=10)
    assert sorted(popped.data) == list(range(120))


@checks("G-ISO-1", "G-ISO-4", level=Level.LIVE)
async def test_refused_acks_beside_good_ones_fail_no_others(api: Api, queue: str) -> None:
    names = [f"p{n}" for n in range(40)]
    await api.push_items([{"queue": queue, "partition": p, "payload": n} for p in names for n in range(3)])
    messages = (await api.pop(queue, batch=1000, partitions=100)).messages
    assert len(messages) == 120
    garbage = [
        {"partitionId": "nonsense\0"}, {"transactionId": "\0"}, {"leaseId": "\0", "status": "failed"}, {"status": "\0"},
        {"transactionId": "x" * 10_000}, {"error": "\0" * 100, "status": "nonsense"},
        {"partitionId": "ffffffff-ffff-8002-8000-000000000000"},
    ]  # fmt: skip

    async def send_good(message: dict[str, Any]) -> None:
        (result,) = await api.ack([message])
        assert result["success"], result

    async def send_bad(message: dict[str, Any], n: int) -> None:
        (result,) = await api.ack([message], **garbage[n % len(garbage)])
        assert not result["success"], result

    calls = [call for n, message in enumerate(messages) for call in (send_bad(message, n), send_good(message))]
    await asyncio.gather(*calls)
    assert (await api.pop(queue)).messages == []


@checks("G-ISO-1", "G-ISO-4", level=Level.LIVE)
async def test_odd_pops_beside_good_ones_fail_no_others(api: Api, queue: str) -> None:
    odd = [
        "namespace=a%00b", "task=a%00b", "namespace=%ff", "subscriptionFrom=0001-01-01T00:00:00%2B14:00&namespace=n",
        "subscriptionFrom=9999-12-31T23:59:59-14:00&namespace=n", "namespace=nobody", "batch=abc&namespace=n",
    ]  # fmt: skip

    async def send_good(n: int) -> None:
        name = f"{queue}-{n % 3}"
        await api.push(name, n)
        popped = await api.pop(name, autoAck=True, wait=True, timeout=50_000)
        assert len(popped.messages) == 1

    async def send_odd(n: int) -> None:
        response = await api.http.get(f"/api/v1/pop?{odd[n % len(odd)]}&consumerGroup=g")
        assert response.status_code < 500, response.text

    for begin in range(0, 60, 15):
        await asyncio.gather(*[send(n) for n in range(begin, begin + 15) for send in (send_good, send_odd)])
