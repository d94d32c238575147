"""Malformed requests from a seed, sent as bytes: `python -m tests.contract.fuzz --requests 20000 --seed 1`.

Each request is a good one of the contract's examples with one thing broken, or none of HTTP at all. The command starts
a server, and says how often each status came, whether the workers are the same, and what memory they have before and
after.
"""

import argparse
import itertools
import json
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any
from urllib.parse import quote, quote_from_bytes, urlencode

import psutil
from msgspec import Struct

from queen.catalogue import TOPICS
from queen.http.operation import Operation
from tests.support.processes import Server, clean_environment, open_folder, serving

#: Nothing answers later than this.
_TIMEOUT_S = 60
#: These switch what all others do.
_LEFT_OUT = {"setMaintenance", "setPopMaintenance", "subscribe"}

#: Values that have broken parsers.
_VALUES: Sequence[Any] = (
    None, True, False, 0, -1, 1.5, 1e308, 10**30, -(2**63), 2**31, "", " ", "\0", "a\0b", "x" * 256, "x" * 70_000,
    "\u202e", "😀" * 100,
    "../../etc/passwd", "'; DROP TABLE queen.queues; --", "%00", "%zz", "NaN", "null", "true", [], [[]], [None], {},
    {"": None},
    {"__proto__": 1}, [0] * 1000,
)  # fmt: skip
#: JSON that is none, or that no decoder is glad of; VALUE stands where a value would.
_TEXTS: Sequence[bytes] = (
    b"", b"{", b"}", b"[", b"\xff\xfe", b"\x00", b"nul", b"NaN", b"Infinity", b"-", b"01", b"1e400", b'"', b'"\\u',
    b'"\\ud800"',
    b'"\xed\xa0\x80"', b'{"a":1,}', b"{'a':1}", b'{"a" 1}', b"\xef\xbb\xbf{}", b"[" * 5000, b'{"a":' * 3000,
    b"1" * 10_000,
    b"[" * 600 + b"]" * 600, b'"\\x41"', b'"\n"', b"// a comment", b"{}{}", b"QPB1\x00\x01\x00\x00\x00",
)  # fmt: skip
_HEADERS: Sequence[bytes] = (
    b"Content-Type: text/plain", b"Content-Type: application/json; charset=utf-16", b"Content-Type: \xff",
    b"Content-Encoding: gzip",
    b"Accept: image/png", b"Expect: 100-continue", b"Connection: close", b"Transfer-Encoding: gzip",
    b"X-Long: " + b"a" * 20_000,
    b"Origin: null", b"Host: " + b"b" * 300, b"Cookie: " + b"c=1; " * 500, b"Range: bytes=0-1", b"If-Match: *",
    b"no colon here",
    b": empty name", b"Queen-Signature: 1 00", b"Authorization: Bearer x", b"Upgrade: websocket",
    b"Content-Length: -1",
    b"Content-Length: 99999999999999999999", b"Transfer-Encoding: chunked",
)  # fmt: skip
_METHODS = (
    "GET",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "PROPFIND",
    "get",
    "G\0T",
    "",
)
_LINES: Sequence[bytes] = (
    b"GARBAGE\r\n\r\n", b"\r\n\r\n", b"GET /health\r\n\r\n", b"GET /health HTTP/9.9\r\n\r\n",
    b"GET http://x/health HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET * HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
)  # fmt: skip


class Wire(Struct, frozen=True):
    """A request as it is sent; the server may wait for more of one that is not whole."""

    content: bytes
    is_whole: bool = True


class Request(Struct):
    """A request that may still be broken."""

    method: str
    path: bytes
    query: list[tuple[str, Any]]
    body: Any
    text: bytes | None = None
    header: bytes | None = None

    def encoded(self) -> Wire:
        """The request as it is sent."""
        content = self.text
        if content is None:
            content = b"" if self.body is None else json.dumps(self.body).encode()
        target = self.path + (b"?" + _query(self.query) if self.query else b"")
        head = [f"{self.method} ".encode() + target + b" HTTP/1.1", b"Host: 127.0.0.1", b"Connection: close"]
        head += [self.header] if self.header else []
        length = [b"Content-Length: %d" % len(content)] if content else []
        framing = (b"Content-Length", b"Transfer-Encoding", b"Expect", b"Upgrade")
        is_whole = not (self.header or b"").startswith(framing)
        return Wire(b"\r\n".join([*head, *length, b"", b""]) + content, is_whole)


def _query(pairs: Sequence[tuple[str, Any]]) -> bytes:
    return urlencode(
        [(name, value if isinstance(value, bytes | str) else json.dumps(value)) for name, value in pairs]
    ).encode()


def generate(seed: int) -> Iterator[Wire]:
    """Requests without end."""
    rng = random.Random(seed)
    examples = json.loads((files("queen.http.openapi") / "examples.json").read_text(encoding="utf-8"))
    chosen = [operation for topic in TOPICS for operation in topic.operations if operation.name not in _LEFT_OUT]
    breaks: Sequence[Callable[[random.Random, Request], None]] = (
        _break_field, _break_field, _break_field, _break_text, _break_query, _break_query, _break_path, _break_path,
        _break_method,
        _break_header,
    )  # fmt: skip
    while True:
        if rng.random() < 0.02:
            yield Wire(rng.choice(_LINES), is_whole=False)
            continue
        operation = rng.choice(chosen)
        request = _good(rng, operation, examples.get(operation.name, {}))
        rng.choice(breaks)(rng, request)
        # Long polls would only cost time.
        request.query = [(name, value) for name, value in request.query if name != "wait"]
        yield request.encoded()


def _good(rng: random.Random, operation: Operation, example: Mapping[str, Any]) -> Request:
    sent = example.get("parameters", {})
    path = operation.path
    query = []
    for parameter in operation.parameters:
        value = sent.get(parameter.name, "x")
        if parameter.place == "path":
            path = path.replace(f"{{{parameter.name}}}", quote(str(value), safe=""))
        elif parameter.place == "query" and (parameter.name in sent or rng.random() < 0.2):
            query.append((parameter.name, value))
    return Request(operation.method, path.encode(), query, json.loads(json.dumps(example.get("body"))))


def _break_field(rng: random.Random, request: Request) -> None:
    """Replaces, adds or takes away something deep in the body."""
    if not isinstance(request.body, dict | list) or not request.body:
        request.body = rng.choice(_VALUES)
        return
    places = list(_places(request.body))
    holder, key = rng.choice(places)
    action = rng.random()
    if action < 0.2:
        del holder[key]
    elif action < 0.3 and isinstance(holder, dict):
        holder[rng.choice(["", "\0", "x" * 1000, "leaseId", "status", "items"])] = rng.choice(_VALUES)
    else:
        holder[key] = rng.choice(_VALUES)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from _places(value[key])


def _break_text(rng: random.Random, request: Request) -> None:
    """A body that is no JSON, or cut, or with a byte changed."""
    whole = json.dumps(request.body).encode()
    kind = rng.random()
    if kind < 0.5 or len(whole) < 8:
        request.text = rng.choice(_TEXTS)
    elif kind < 0.75:
        request.text = whole[: rng.randrange(len(whole))]
    else:
        place = rng.randrange(len(whole))
        request.text = whole[:place] + bytes([rng.randrange(256)]) + whole[place + 1 :]


def _break_query(rng: random.Random, request: Request) -> None:
    """A parameter with a value of another kind, twice, or an unknown one."""
    names = [name for name, _ in request.query] + [
        "limit",
        "offset",
        "from",
        "to",
        "batch",
        "timeout",
        "queue",
        "consumerGroup",
        "\0",
    ]
    value = rng.choice(_VALUES)
    request.query.append(
        (rng.choice(names), rng.choice([value, b"\xff\xfe", "9" * 40, "-1", "2026-13-01", "0001-01-01T00:00:00+14:00"]))
    )
    if len(request.query) > 1 and rng.random() < 0.5:
        request.query.pop(0)


def _break_path(rng: random.Random, request: Request) -> None:
    """Odd bytes in the path, encoded and not, or a part of it gone or doubled."""
    parts = request.path.split(b"/")
    place = rng.randrange(1, len(parts))
    odd = rng.choice([
        b"%00", b"%ff", b"%", b"%zz", b"..", b"%2e%2e", b"%2f%2f", b"", b"x" * 300, b"x" * 3000, "größe".encode(),
        b"\xff", b"a;b", b"*",
        quote_from_bytes(rng.randbytes(12)).encode(), b"null", b"-1", b"00000000-0000-8002-8000-000000000000",
        b"ffffffff-ffff-8001-8000-ffffffffffff", b"queues", b"partitions", b"seek",
    ])  # fmt: skip
    action = rng.random()
    parts[place : place + (action < 0.6)] = [odd]
    if action > 0.9:
        del parts[place]
    request.path = b"/".join(parts).replace(b" ", b"%20") or b"/"


def _break_method(rng: random.Random, request: Request) -> None:
    request.method = rng.choice(_METHODS)


def _break_header(rng: random.Random, request: Request) -> None:
    request.header = rng.choice(_HEADERS)


# ---------------------------------------------------------------- sending


def send(port: int, request: Wire) -> int:
    """The status of the answer; 0 for a connection that ended without one."""
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT_S) as connection:
        received = b""
        try:
            connection.sendall(request.content)
            if not request.is_whole:
                connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(65536):
                received += more
        except ConnectionError:
            pass  # The server has refused the rest.
    status = received[9:12]
    return int(status) if received.startswith(b"HTTP/1.") and status.isdigit() else 0


class Findings(Struct):
    """How often each status came, and the requests that were answered with an error of the server."""

    statuses: Counter[int]
    errors: list[str]


def fuzz(port: int, requests: int, seed: int, connections: int = 4) -> Findings:
    """Sends so many requests, some at once."""
    wires = list(itertools.islice(generate(seed), requests))
    with ThreadPoolExecutor(connections) as pool:
        statuses = list(pool.map(lambda wire: send(port, wire), wires))
    # 501 answers a method that is none; this interface says it in no other case.
    errors = [f"{s}: {wire.content[:2000]!r}" for s, wire in zip(statuses, wires, strict=True) if s >= 500]
    return Findings(Counter(statuses), errors)


#: After each of so many parts the memory is looked at.
PARTS = 5


def memory(server: Server) -> int:
    """Bytes that the workers hold in memory."""
    return sum(psutil.Process(pid).memory_info().rss for pid in server.workers())


def main() -> None:
    """Fuzzes a server of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    # What grows with the names that were ever used, up to its bound, is at its bound soon.
    environment = clean_environment(QUEEN_CACHE_PARTITION_MAX="100")
    with open_folder() as folder, serving(folder / "data", "--workers", "2", env=environment) as server:
        server.wait_until_all_are_healthy(2)
        workers = server.workers()
        # What is imported, cached and allocated once is there before the memory is looked at.
        fuzz(server.port, options.requests // 10, options.seed + 1)
        begin, sizes = time.monotonic(), [memory(server)]
        findings = Findings(Counter(), [])
        for part in range(PARTS):
            found = fuzz(server.port, options.requests // PARTS, options.seed * PARTS + part)
            findings.statuses.update(found.statuses)
            findings.errors.extend(found.errors)
            sizes.append(memory(server))
        seconds = time.monotonic() - begin
        print(f"seed {options.seed}, {options.requests} requests in {seconds:.0f} s")
        print(f"statuses: {dict(sorted(findings.statuses.items()))}; 0: closed without an answer")
        print(f"errors of the server: {len(findings.errors)}", *findings.errors[:20], sep="\n")
        print(f"workers: {'the same' if server.workers() == workers else f'{workers}, and now {server.workers()}'}")
        print(f"memory of the workers, MiB: {', '.join(f'{size / 2**20:.1f}' for size in sizes)}")


if __name__ == "__main__":
    main()
