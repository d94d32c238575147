"""``queen verify``: all is valid on the real server, and broken ones get a report that says so."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree as ET

import asyncpg
import pytest

from spec.conformance import run
from spec.conformance.broker import UnavailableError
from spec.conformance.lab import Lab, expect
from spec.conformance.report import Row
from spec.guarantees import GUARANTEES, Check, Level
from tests.support.nightly import mostly_at_night
from tests.support.processes import ROOT, Server, clean_environment, free_port, open_folder, serving, wait_until
from tests.support.stubs import Proxy, Stub, stub
from tests.support.verifying import LIMIT_S, command, verify

#: The module, whose name in its package is its function.
RUNS = sys.modules[run.__module__]
#: Promises that the suite can see only with more than a URL.
ELSEWHERE = {"SEC", "SPOOL", "SMQ", "OUT", "PAUSE", "SHARD", "SQL", "SQS", "TIM"}
#: What the interface of Queen's clients alone cannot show, what takes the interval of a service, or what only this
#: server has: its own tests check it.
BESIDE = {
    "G-COST-1",
    "G-DLQ-5",
    "G-DUR-5",
    "G-POP-6",
    "G-RET-1",
    "G-RET-2",
    "G-RET-4",
    "G-RET-6",
    "G-RET-7",
    "G-STR-3",
    "G-STR-4",
    "G-STR-5",
}
MAY_BE_SKIPPED: set[str] = set()


# A real server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with open_folder() as place, serving(place / "data", "--workers", "2") as running:
        yield running


def count_queues(server: Server) -> Any:
    async def count() -> Any:
        connection = await asyncpg.connect(server.dsn)
        try:
            return await connection.fetchval("SELECT count(*) FROM queen.queues")
        finally:
            await connection.close()

    return asyncio.run(count())


def test_everything_is_valid_on_the_server(
    server: Server, tmp_path: Path, show_at_the_end: Callable[[str], None], record_property: Any
) -> None:
    files = {name: tmp_path / name for name in ("junit", "html")}
    url = f"http://127.0.0.1:{server.port}"
    result = verify(url, "--json", *(f"--{name}={path}" for name, path in files.items()))
    report = json.loads(result.stdout)
    show_at_the_end("".join(f"{row['id']:<12} {row['result']:<8} {row['check']}\n" for row in report["rows"]))
    assert result.returncode == 0, result.stdout + result.stderr
    record_property("seed", report["seed"])
    assert report["passed"]
    assert {row["id"] for row in report["rows"] if row["result"] != "valid"} <= MAY_BE_SKIPPED
    live = {id_ for id_, each in GUARANTEES.items() if Level.LIVE in each.levels and each.family not in ELSEWHERE}
    assert {row["id"] for row in report["rows"]} == live - BESIDE
    suite = ET.parse(files["junit"]).getroot()
    assert (len(suite.findall("testcase")), suite.get("failures")) == (len(report["rows"]), "0")
    assert all(id_ in files["html"].read_text() for id_ in live - BESIDE)
    assert count_queues(server) == 0


def test_statuses_are_reported_apart(server: Server) -> None:
    result = verify(f"http://127.0.0.1:{server.port}/", "--profile=quick", "--seed=7", "--json")
    report = json.loads(result.stdout)
    assert (report["seed"], report["profile"]) == (7, "quick")
    seen = {row["situation"]: {status for status, _ in row["seen"]} for row in report["statuses"]}
    assert (seen["push"], seen["pop, empty"], seen["malformed request"]) == ({201}, {204}, {400})


def test_only_the_checks_of_some_guarantees_are_run(server: Server) -> None:
    url = f"http://127.0.0.1:{server.port}"
    result = verify(url, "--only=G-IDEM-4", "--only=G-ACK-5", "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    assert {row["id"] for row in json.loads(result.stdout)["rows"]} == {"G-IDEM-4", "G-ACK-5"}
    result = verify(url, "--only=G-NO-1")
    assert result.returncode == 2
    assert "no check here is about G-NO-1" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_cleans_up(server: Server, number: signal.Signals) -> None:
    line = command(f"http://127.0.0.1:{server.port}")
    running = subprocess.Popen(
        line, cwd=ROOT, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    wait_until(lambda: count_queues(server) > 5, "queues of the run")
    running.send_signal(number)
    output, _ = running.communicate(timeout=LIMIT_S)
    assert (running.returncode, b"Traceback" in output) == (130, False), output
    assert count_queues(server) == 0


# No server


@pytest.mark.parametrize(
    "url",
    [
        f"http://127.0.0.1:{free_port()}", "127.0.0.1", "ftp://127.0.0.1", "http://[", "x:y", "http://a..b",
        f"http://{'a' * 64}", "http://127.0.0.1:65536",
    ],
)  # fmt: skip
def test_a_url_without_a_server_is_an_error_of_its_own(url: str) -> None:
    result = verify(url)
    assert result.returncode == 2
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert url in line


# Broken servers


class Garbage(Stub):
    def do_GET(self) -> None:
        self.seen["authorization"] = self.headers["Authorization"]
        self.answer(b'\x00\xff{"]\xed\xa0\x80<b>[red]')


class WrongShapes(Stub):
    def do_GET(self) -> None:
        self.seen["count"] = self.seen.get("count", 0) + 1
        bodies = [
            b"null",
            b"[]",
            b"{}",
            b'{"messages":[5]}',
            b'[{"status":"queued"}]',
            b'[{"status":{},"success":[]}]',
            b"[" * 5000,
            b'"\\ud800"',
            b'{"messages":[{}]}',
        ]
        self.answer(bodies[self.seen["count"] % len(bodies)])


class Refuses(Stub):
    def do_GET(self) -> None:
        self.answer(b'{"error":"no"}', 500)


class Unauthorized(Stub):
    def do_GET(self) -> None:
        self.answer(b'{"error":"Invalid token"}', 401)


class Unavailable(Stub):
    def do_GET(self) -> None:
        self.answer(b'{"error":"Come again"}', 503)


class Html(Stub):
    def do_GET(self) -> None:
        self.answer(b"<!doctype html><html><body><h1>It works!</h1></body></html>")


class AlwaysYes(Stub):
    def do_GET(self) -> None:
        self.answer(b'{"success":true,"messages":[]}')


class Redirects(Stub):
    def do_GET(self) -> None:
        self.send_response(308)
        self.send_header("Location", f"https://queen.example.org{self.path}")
        self.send_header("Content-Length", "0")
        self.end_headers()


class Closes(Stub):
    def do_GET(self) -> None:
        self.close_connection = True


class NoHttp(Stub):
    def handle(self) -> None:
        self.wfile.write(b"220 smtp.example.org ESMTP\r\n\r\n" * 9000)


class Hangs(Stub):
    def do_GET(self) -> None:
        self.seen["end"].wait(LIMIT_S)


class HangsLater(Hangs):
    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(b"{}")
        else:
            super().do_GET()


class Drips(Stub):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        while not self.seen["end"].wait(0.5):
            self.wfile.write(b" ")


class Forgetful(Stub):
    """A broker without leases, cursors and duplicates: every pop delivers the first messages, every ack succeeds."""

    def do_POST(self) -> None:
        body = self.body()
        if self.path == "/api/v1/push":
            self.answer(json.dumps([self.store(item) for item in body["items"]]).encode())
        elif self.path == "/api/v1/ack/batch":
            self.answer(json.dumps([{"success": True, "dlq": False} for _ in body["acknowledgments"]]).encode())
        else:
            self.answer(b'{"success":true,"results":[]}')

    def store(self, item: dict[str, Any]) -> dict[str, Any]:
        messages = self.seen.setdefault(item["queue"], [])
        id_ = f"m{len(messages)}"
        message = {"id": id_, "data": item["payload"], "transactionId": item.get("transactionId", id_)}
        messages.append({**message, "partition": item["partition"], "partitionId": item["partition"]})
        return {"status": "queued", "message_id": id_, "transaction_id": message["transactionId"]}

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        queue, _, partition = url.path.partition("/queue/")[2].partition("/partition/")
        batch = int(parse_qs(url.query).get("batch", ["1"])[0])
        time.sleep(0.01 if "wait=true" in self.path else 0)
        stored = [each for each in self.seen.get(queue, []) if partition in {"", each["partition"]}]
        messages = [{**message, "leaseId": "lease"} for message in stored[:batch]]
        self.answer(json.dumps({"leaseId": "lease", "messages": messages}).encode())

    def do_DELETE(self) -> None:
        self.answer(b"{}")


class TwoHundred(Proxy):
    """200 for all that is no error, a body also where there is nothing, and a hint before each answer."""

    def do_GET(self) -> None:
        self.send_response_only(103)
        self.end_headers()
        super().do_GET()

    def forward(self, body: bytes) -> tuple[bytes, int]:
        answer, status = super().forward(body)
        return answer or b'{"messages":[]}', 200 if status < 300 else status


class HoldsNothing(Proxy):
    """A server without long polls."""

    def forward(self, body: bytes) -> tuple[bytes, int]:
        return (b"{}", 501) if "wait=true" in self.path else super().forward(body)


class KeepsAnswers(Proxy):
    """Deletes queues, and says so only when it is asked again; the first time it does not even delete."""

    def do_DELETE(self) -> None:
        asked = self.seen[self.path] = self.seen.get(self.path, 0) + 1
        if asked > 1:
            self.forward(b"")
        if asked > 2:
            self.answer(b"{}")
        else:
            self.close_connection = True


class Loses(Proxy):
    """Forgets the pushes that speak of one partition, though it says that it has them."""

    def forward(self, body: bytes) -> tuple[bytes, int]:
        if self.path != "/api/v1/push" or b'"partition": "p1"' not in body:
            return super().forward(body)
        told = [{"status": "queued", "transaction_id": item["transactionId"]} for item in json.loads(body)["items"]]
        return json.dumps(told).encode(), 201


def broken(kind: type[Stub], tmp_path: Path, *options: str, **shared: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The report on a broken server, and what the server has seen."""
    files = {name: tmp_path / name for name in ("junit", "html")}
    with stub(kind, **shared) as (url, seen):
        given = (f"--{name}={path}" for name, path in files.items())
        result = verify(url, "--profile=quick", "--json", *options, *given)
    assert result.returncode in {1, 3}, result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    ET.parse(files["junit"])
    report: dict[str, Any] = json.loads(result.stdout)
    assert not report["passed"]
    assert ("invalid" in {row["result"] for row in report["rows"]}) == (result.returncode == 1)
    assert [row for row in report["rows"] if "crashed" in row["text"]] == []
    return report, seen


@pytest.mark.parametrize(
    "kind",
    mostly_at_night(
        [
            Garbage, Html, AlwaysYes, WrongShapes, Refuses, Redirects, Unauthorized, Unavailable, Closes, NoHttp, Hangs,
            HangsLater, Drips,
        ],
        [Garbage, WrongShapes, Unavailable, Closes, HangsLater],
    ),
)  # fmt: skip
def test_a_broken_server_gets_a_report(kind: type[Stub], tmp_path: Path) -> None:
    report, _ = broken(kind, tmp_path)
    assert sum(row["result"] in {"unknown", "invalid"} for row in report["rows"]) > 60
    assert len({row["id"] for row in report["rows"]}) > 40
    # One that answers in turns may say by chance what somebody wants to hear.
    assert kind is WrongShapes or not [row for row in report["rows"] if row["result"] == "valid"]


def test_a_redirection_says_where_to(tmp_path: Path) -> None:
    report, _ = broken(Redirects, tmp_path, "--only=G-IDEM-3")
    assert "was answered 308 (go to https://queen.example.org/api/v1/configure)" in report["rows"][0]["text"]


def test_created_queues_are_deleted_despite_lost_answers(server: Server) -> None:
    with stub(KeepsAnswers, upstream=server.port) as (url, seen):
        result = verify(url, "--only=G-IDEM-4")
    assert result.returncode == 0, result.stdout + result.stderr
    assert {times for path, times in seen.items() if "/queues/" in path} == {3}
    assert count_queues(server) == 0


def test_a_server_without_long_polls_is_asked_again(server: Server) -> None:
    with stub(HoldsNothing, upstream=server.port) as (url, _):
        result = verify(url, "--only=G-WAIT-1", "--only=G-WAIT-4", "--only=G-DLQ-4", "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    results = {(row["id"], row["result"]) for row in json.loads(result.stdout)["rows"]}
    assert results == {("G-WAIT-1", "skipped"), ("G-WAIT-4", "skipped"), ("G-DLQ-4", "valid")}


@pytest.mark.parametrize("option", ["junit", "html"])
def test_a_report_that_cannot_be_written_is_refused_before_the_run(option: str, tmp_path: Path) -> None:
    with stub(Html) as (url, _):
        result = verify(url, f"--{option}={tmp_path / 'missing' / 'report'}")
    assert (result.returncode, result.stdout) == (2, "")
    assert f"--{option}" in result.stderr
    assert "is not writable" in result.stderr


def test_the_token_is_sent(tmp_path: Path) -> None:
    _, seen = broken(Garbage, tmp_path, "--token=secret")
    assert seen["authorization"] == "Bearer secret"


def test_a_broker_that_breaks_its_promises_is_refuted(tmp_path: Path) -> None:
    report, _ = broken(Forgetful, tmp_path)
    invalid = {row["id"] for row in report["rows"] if row["result"] == "invalid"}
    assert invalid >= {"G-ORD-1", "G-IDEM-1", "G-POP-3", "G-LEASE-1", "G-LEASE-3", "G-ACK-2", "G-DLQ-1", "G-TXN-3"}


def test_a_server_that_loses_messages_is_refuted(server: Server, tmp_path: Path) -> None:
    report, _ = broken(Loses, tmp_path, "--only=G-GRP-1", upstream=server.port)
    [row] = [row for row in report["rows"] if row["check"] == "workload: every group gets every message"]
    assert row["result"] == "invalid"
    assert "never delivered" in row["text"]


def test_a_server_that_answers_200_to_everything_keeps_its_promises_all_the_same(server: Server) -> None:
    with stub(TwoHundred, upstream=server.port) as (url, _):
        result = verify(url, "--profile=quick", "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(result.stdout)
    differing = {row["situation"] for row in report["statuses"] if row["recommended"] in {"201", "204"}}
    assert {"push", "pop, empty"} <= differing
    assert all(
        {status for status, _ in row["seen"]} == {200} for row in report["statuses"] if row["situation"] in differing
    )


# A slow machine


@pytest.mark.parametrize(
    ("slowest_s", "is_timed", "result"), [(9.0, True, "valid"), (0.0, True, "invalid"), (9.0, False, "invalid")]
)
def test_a_clock_check_with_slow_answers_is_repeated(
    monkeypatch: pytest.MonkeyPatch, slowest_s: float, is_timed: bool, result: str
) -> None:
    attempts: list[Lab] = []

    async def refuted_at_first(lab: Lab) -> None:
        attempts.append(lab)
        lab.is_timed = is_timed
        lab.broker.pace.note(time.monotonic() - slowest_s, 0)
        expect(len(attempts) > 1, "it came late")

    assert run_alone(monkeypatch, refuted_at_first).result == result


@pytest.mark.parametrize(("attempts", "result"), [(2, "valid"), (99, "unknown")])
def test_postponed_requests_are_repeated(monkeypatch: pytest.MonkeyPatch, attempts: int, result: str) -> None:
    monkeypatch.setattr(RUNS, "_PAUSE_S", 0)
    left = iter(range(attempts - 1))

    async def put_off(_lab: Lab) -> None:
        if next(left, None) is not None:
            raise UnavailableError("come again")

    assert run_alone(monkeypatch, put_off).result == result


def run_alone(monkeypatch: pytest.MonkeyPatch, scenario: Callable[[Lab], Any]) -> Row:
    """The result of one scenario."""
    check = Check(("G-LEASE-2",), Level.LIVE, __name__, "scenario")
    monkeypatch.setattr(RUNS, "all_scenarios", lambda: [(check, scenario)])
    monkeypatch.setattr(RUNS, "all_checkers", list)
    with stub(Html) as (url, _):
        [row] = run(url).rows
    return row
