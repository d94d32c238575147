"""Ids of requests, and the log lines that name them; in one process and without a database."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import falcon.asgi
import httpx
import pytest

from queen.catalogue import TOPICS
from queen.config import from_environment
from queen.core.errors import BadRequestError, DatabaseUnavailableError, QueenError
from queen.http import problems, refusals
from queen.http.access import Levels
from queen.http.app import QueenApp
from queen.http.gate import Gate, SkippedPaths
from queen.http.query_shown import SHOWN
from queen.http.refusals import FewLines
from queen.http.request import REQUEST_ID, QueenRequest, read_body
from queen.http.request_log import RequestLog
from queen.http.routes import add_routes
from queen.security.authentication import role_names, verifier_of
from queen.server.logs import JsonFormatter
from tests.support.route_table import route_table
from tests.support.tokens import SECRET, token

QUEUE = "/api/v1/resources/queues/orders"
SIGNED = {"Authorization": f"Bearer {token()}"}


class Answered:
    """Stands for the resources: what is asked for is done, or fails as it is told."""

    problem: Exception | None = None
    about: tuple[dict[str, object], ...] = ()

    async def process_resource(
        self, req: QueenRequest, resp: falcon.asgi.Response, _resource: Any, _params: Any
    ) -> None:
        resp.complete = True
        req.about.extend(self.about)
        with suppress(BadRequestError):  # there is none
            await read_body(req, 10_000)
        if self.problem is not None:
            raise self.problem


@pytest.fixture
def answered() -> Answered:
    return Answered()


@pytest.fixture
def of_all() -> bool:
    return False


@pytest.fixture
def log(of_all: bool) -> RequestLog:
    return RequestLog(route_table(), of_all=of_all)


@pytest.fixture
def app(answered: Answered, log: RequestLog) -> Any:
    settings = from_environment({"JWT_ENABLED": "1", "JWT_SECRET": SECRET})
    table = route_table()
    gate = Gate(table, verifier_of(settings), Levels(role_names(settings)), SkippedPaths(("/health",)), None, None)
    app = falcon.asgi.App(middleware=[log, gate, answered], request_type=QueenRequest)
    app.add_error_handler(Exception, problems.on_unexpected)
    app.add_error_handler(falcon.HTTPError, problems.on_http_error)
    app.add_error_handler(QueenError, problems.on_queen_error)
    add_routes(app, table)
    return app


@pytest.fixture
async def http(app: Any, caplog: pytest.LogCaptureFixture) -> AsyncIterator[httpx.AsyncClient]:
    caplog.set_level(logging.INFO, "queen")
    transport = httpx.ASGITransport(app, client=("10.0.0.7", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://queen", headers=SIGNED) as client:
        yield client


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """What the log says, as the server writes it."""
    return [json.loads(JsonFormatter().format(record)) for record in caplog.records]


async def test_a_request_that_names_itself_is_answered_under_that_name(http: httpx.AsyncClient) -> None:
    answer = await http.post("/api/v1/push", headers={REQUEST_ID: "order-17/a:b"})
    assert answer.headers[REQUEST_ID] == "order-17/a:b"


async def test_a_request_that_does_not_gets_no_name_while_all_is_well(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await http.post("/api/v1/push")
    assert (answer.status_code, REQUEST_ID in answer.headers, lines(caplog)) == (200, False, [])


@pytest.mark.parametrize("given", ["", "x" * 129, 'a"b', "a b", "{}", "é"])
async def test_a_name_that_breaks_things_is_replaced(http: httpx.AsyncClient, given: str) -> None:
    answer = await http.post("/api/v1/push", headers={REQUEST_ID: given.encode()})
    assert len(answer.headers[REQUEST_ID]) == 36


@pytest.mark.parametrize(
    ("problem", "status", "level"),
    [(DatabaseUnavailableError("gone"), 503, "warning"), (ZeroDivisionError(), 500, "error")],
)
async def test_an_error_has_one_id_in_its_header_its_body_and_its_log_line(
    http: httpx.AsyncClient,
    answered: Answered,
    caplog: pytest.LogCaptureFixture,
    problem: Exception,
    status: int,
    level: str,
) -> None:
    answered.problem = problem
    answer = await http.post("/api/v1/push")
    [line] = lines(caplog)
    assert (answer.status_code, line["level"]) == (status, level)
    assert answer.json()["requestId"] == answer.headers[REQUEST_ID] == line["request_id"]
    assert (line["client"], line["subject"], line["path"]) == ("10.0.0.7", "alice", "/api/v1/push")


async def test_an_unknown_path_has_an_id_too(http: httpx.AsyncClient) -> None:
    answer = await http.get("/no/such/path")
    assert answer.json()["requestId"] == answer.headers[REQUEST_ID]


@pytest.mark.parametrize(
    ("authorization", "status", "reason"),
    [("", 401, "Authentication required"), (f"Bearer {token('read-only')}", 403, "Insufficient permissions")],
)
async def test_a_refused_sender_is_named_with_the_reason(
    http: httpx.AsyncClient,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    authorization: str,
    status: int,
    reason: str,
) -> None:
    monkeypatch.setattr(refusals.log, "filters", [FewLines()])
    answer = await http.delete(QUEUE, headers={"Authorization": authorization})
    [line] = lines(caplog)
    assert (answer.status_code, line["status"], line["logger"]) == (status, status, "queen.refused")
    assert reason in line["message"]
    assert (line["client"], line["path"], line["left_out"]) == ("10.0.0.7", QUEUE, 0)
    assert line["request_id"] == answer.headers[REQUEST_ID]


async def test_administrative_changes_are_logged_with_their_caller(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    body = b'{"enabled": true}'
    await http.delete(QUEUE)
    await http.post("/api/v1/system/maintenance", content=body)
    await http.request("DELETE", "/api/v1/dlq?queue=orders")
    deleted, switched, purged = lines(caplog)
    assert {line["logger"] for line in (deleted, switched, purged)} == {"queen.audit"}
    assert {line["subject"] for line in (deleted, switched, purged)} == {"alice"}
    assert {line["client"] for line in (deleted, switched, purged)} == {"10.0.0.7"}
    assert (deleted["method"], deleted["path"], deleted["status"]) == ("DELETE", QUEUE, 200)
    assert (switched["path"], switched["body"]) == ("/api/v1/system/maintenance", body.decode())
    assert (purged["path"], purged["query"]) == ("/api/v1/dlq", "queue=orders")


async def in_pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def test_a_change_is_written_down_as_it_was_carried_out(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it came in pieces, with space before it, or for the longest of names."""
    await http.post("/api/v1/system/maintenance", content=in_pieces(b" " * 2000, b'{"enabled":', b" true}"))
    names = "/".join("x" * 255 for _ in range(3))
    await http.delete(f"/api/v1/resources/queues/{names}")
    assert lines(caplog)[0]["body"] == '{"enabled": true}'
    assert lines(caplog)[1]["path"].endswith(names)


async def test_a_change_of_many_dead_letters_tells_its_body_once(
    http: httpx.AsyncClient, answered: Answered, caplog: pytest.LogCaptureFixture
) -> None:
    answered.about = tuple({"dead_letter": {"transactionId": str(number)}} for number in range(100))
    await http.post("/api/v1/dlq/replay", content=b'{"note": "' + b"x" * 9_000 + b'"}')
    told = lines(caplog)
    assert [line["dead_letter"]["transactionId"] for line in told] == [str(number) for number in range(100)]
    assert {line["status"] for line in told} == {200}
    assert len(told[0]["body"]) > 9_000
    assert all(not {"body", "answer"} & line.keys() for line in told[1:])


@pytest.mark.parametrize("forwarded", ['for="_h:_p"', 'for="a:b"', "for=1.2.3.4", "nonsense", 'for="'])
async def test_forwarded_headers_of_clients_are_ignored(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, forwarded: str
) -> None:
    monkeypatch.setattr(refusals.log, "filters", [])
    refused = await http.delete(QUEUE, headers={"Authorization": "", "Forwarded": forwarded})
    done = await http.delete(QUEUE, headers={"Forwarded": forwarded, "X-Forwarded-For": "8.8.8.8"})
    assert (refused.status_code, done.status_code) == (401, 200)
    assert [line["client"] for line in lines(caplog)] == ["10.0.0.7"] * 2


async def test_a_change_whose_client_left_is_written_down(
    answered: Answered, caplog: pytest.LogCaptureFixture, log: RequestLog, app: Any
) -> None:
    answered.problem = asyncio.CancelledError()
    caplog.set_level(logging.INFO, "queen")
    whole = QueenApp(app, Mock(), Mock(), log)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(whole), base_url="http://queen", headers=SIGNED)
    for method, path in [("DELETE", QUEUE), ("GET", QUEUE)]:
        with pytest.raises(asyncio.CancelledError):
            await client.request(method, path)
    [line] = lines(caplog)
    assert (line["logger"], line["level"], line["method"]) == ("queen.audit", "warning", "DELETE")
    assert "outcome unknown" in line["message"]


async def test_reads_and_refused_requests_are_not_logged_as_changes(
    http: httpx.AsyncClient, answered: Answered, caplog: pytest.LogCaptureFixture
) -> None:
    await http.get(QUEUE)
    answered.problem = falcon.HTTPNotFound()
    await http.delete(QUEUE)
    assert lines(caplog) == []


@pytest.mark.parametrize("of_all", [True])
async def test_every_request_has_a_line_where_that_is_wanted(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await http.post("/api/v1/push")
    [line] = lines(caplog)
    assert (line["logger"], line["status"], line["method"]) == ("queen.requests", 200, "POST")
    assert line["took_ms"] >= 0
    assert line["request_id"] == answer.headers[REQUEST_ID]


@pytest.mark.parametrize("of_all", [True])
async def test_a_query_is_logged_without_what_may_be_secret(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await http.delete("/api/v1/dlq?queue=orders&access_token=hush&p%61ssword=hush&hush&x=&offset=1&sig=a=hush")
    shown = "queue=orders&access_token=***&p%61ssword=***&***&x=&offset=1&sig=***"
    assert [line["query"] for line in lines(caplog)] == [shown, shown]
    assert "hush" not in caplog.text


def test_every_parameter_of_the_interface_is_shown() -> None:
    known = {
        each.name
        for topic in TOPICS
        for operation in topic.operations
        for each in operation.parameters
        if each.place == "query"
    }
    assert known == SHOWN


def test_many_refusals_leave_few_lines_that_say_how_many_were_left_out() -> None:
    now = 0.0
    few = FewLines(lambda: now)

    def record(client: str) -> logging.LogRecord:
        return logging.makeLogRecord({"client": client})

    assert [few.filter(record("a")) for _ in range(3)] == [True, False, False]
    assert sum(few.filter(record(f"b{number}")) for number in range(100)) == 4
    now = 1.0
    line = record("a")
    assert few.filter(line)
    assert vars(line)["left_out"] == 96, "the others were said before"
    assert sum(few.filter(record(f"b{number % 7}")) for number in range(1000)) == 4
