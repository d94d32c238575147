"""OpenTelemetry on live servers, with a collector that decodes what it gets: spans, contexts of messages, metrics."""

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import INVALID_SPAN_CONTEXT
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from queen.config import Settings
from queen.config.areas import Telemetry
from queen.telemetry.exchange import Exchange, header_of
from queen.telemetry.metrics import metrics_data
from queen.telemetry.sending import metrics_sender, tracing
from tests.support.api import Api, open_client, worker_apis
from tests.support.clock import eventually
from tests.support.otlp import Collector, Span, collecting
from tests.support.processes import ROOT, Server, clean_environment, end, open_folder, wait_until
from tests.support.scraping import scrape
from tests.support.servers import serving_database, start_on_database
from tests.support.sockets import open_socket
from tests.support.sqs_clients import queues_of, receive, refused, sqs_client

KEY = "33" * 32
SERVER_KIND = 2
ENVIRONMENT = {
    "QUEEN_OTEL_ENABLED": "true",
    "OTEL_BSP_SCHEDULE_DELAY": "50",
    "OTEL_METRIC_EXPORT_INTERVAL": "200",
    "QUEEN_ENCRYPTION_KEY": KEY,
}


def new_context(flags: str = "01") -> tuple[str, tuple[str, str]]:
    """The header ``traceparent`` of a client, and where in its trace it stands."""
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    return f"00-{trace}-{span}-{flags}", (trace, span)


def place_of(traceparent: str) -> tuple[str, str]:
    version, trace, span, _ = traceparent.split("-")
    assert version == "00"
    return trace, span


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_folder() as place:
        yield place


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@pytest.fixture(scope="module")
def traced_server(server: Server, collector: Collector, folder: Path) -> Iterator[Server]:
    """Two workers with telemetry."""
    environment = {**ENVIRONMENT, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    with serving_database(server.dsn, folder, "--workers", "2", **environment) as running:
        running.wait_until_all_are_healthy(2)
        yield running


@pytest.fixture
async def http(traced_server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(traced_server.port) as client:
        yield client


@pytest.fixture
async def traced(traced_server: Server) -> AsyncIterator[list[Api]]:
    """The operations through each of the two workers."""
    async with worker_apis(traced_server.port) as apis:
        yield apis


async def span_of(collector: Collector, what: str, fits: Callable[[Span], bool]) -> Span:
    """The one span that fits, when it has come in."""

    async def look() -> list[Span]:
        return [span for span in list(collector.spans) if fits(span)]

    found = await eventually(look, what)
    assert len(found) == 1, found
    return found[0]


async def child_of(collector: Collector, place: tuple[str, str]) -> Span:
    return await span_of(collector, f"a span under {place}", lambda span: span.parent == place)


async def push(http: httpx.AsyncClient, items: list[dict[str, Any]], header: str | None = None) -> None:
    headers = {} if header is None else {"traceparent": header}
    response = await http.post("/api/v1/push", json={"items": items}, headers=headers)
    assert response.status_code == 201, response.text


async def pop(http: httpx.AsyncClient, queue: str, header: str | None = None, **query: Any) -> list[dict[str, Any]]:
    headers = {} if header is None else {"traceparent": header}
    params = {"batch": 100, "autoAck": "true", **query}
    response = await http.get(f"/api/v1/pop/queue/{queue}", params=params, headers=headers)
    assert response.status_code == 200, response.text
    messages: list[dict[str, Any]] = response.json()["messages"]
    return messages


async def test_from_push_to_pop_and_ack_through_two_workers(
    traced: list[Api], collector: Collector, queue: str
) -> None:
    pushing, popping = (api.http for api in traced)
    sent, sender = new_context()
    items = [{"queue": queue, "partition": "p", "payload": number} for number in range(3)]
    await push(pushing, items, sent)
    asked, receiver = new_context()
    messages = await pop(popping, queue, asked, autoAck="false", consumerGroup="g", access_token="hush")
    assert [(message["data"], message["traceparent"]) for message in messages] == [(n, sent) for n in range(3)]
    settled, settler = new_context()
    acks = [
        {
            "transactionId": message["transactionId"], "partitionId": message["partitionId"],
            "leaseId": message["leaseId"], "status": "completed",
        }
        for message in messages
    ]  # fmt: skip
    body = {"consumerGroup": "g", "acknowledgments": acks}
    response = await popping.post("/api/v1/ack/batch", json=body, headers={"traceparent": settled})
    assert response.status_code == 200
    assert all(result["success"] for result in response.json())

    push_span = await child_of(collector, sender)
    pop_span = await child_of(collector, receiver)
    ack_span = await child_of(collector, settler)
    assert {span.kind for span in (push_span, pop_span, ack_span)} == {SERVER_KIND}
    assert push_span.name == "POST /api/v1/push"
    about = {"messaging.system": "queen", "messaging.destination.name": queue}
    assert push_span.attributes.items() >= {
        **about, "messaging.operation.name": "push", "messaging.operation.type": "send",
        "messaging.destination.partition.id": "p", "messaging.batch.message_count": 3, "http.request.method": "POST",
        "http.route": "/api/v1/push", "url.path": "/api/v1/push", "url.scheme": "http",
        "http.response.status_code": 201, "client.address": "127.0.0.1", "server.address": "127.0.0.1",
    }.items()  # fmt: skip
    assert push_span.links == ()
    assert pop_span.name == "GET /api/v1/pop/queue/{path:path}"
    assert pop_span.attributes.items() >= {
        **about, "messaging.operation.name": "pop", "messaging.operation.type": "receive",
        "messaging.consumer.group.name": "g", "messaging.batch.message_count": 3, "http.response.status_code": 200,
        "url.query": "batch=100&autoAck=false&consumerGroup=g&access_token=***",
    }.items()  # fmt: skip
    assert [(link.place, link.attributes) for link in pop_span.links] == [
        (sender, {"messaging.batch.message_count": 3})
    ]
    assert ack_span.attributes.items() >= {
        **about, "messaging.operation.name": "ack", "messaging.operation.type": "settle",
        "messaging.consumer.group.name": "g", "messaging.batch.message_count": 3,
    }.items()  # fmt: skip
    assert push_span.resource["service.name"] == "queen"
    assert push_span.resource["service.instance.id"] == pop_span.resource["service.instance.id"]
    assert push_span.resource["process.pid"] != pop_span.resource["process.pid"]
    assert not any(span.failed for span in (push_span, pop_span, ack_span))


async def test_a_timer_keeps_the_context_in_which_it_was_set(http: httpx.AsyncClient, queue: str) -> None:
    sent, _ = new_context()
    await push(http, [{"queue": queue, "payload": 1, "delaySeconds": 0.1, "transactionId": "chosen"}], sent)
    [message] = await pop(http, queue, wait="true", timeout=30_000)
    assert (message["data"], message["traceparent"], message["transactionId"]) == (1, sent, "chosen")


async def test_a_push_without_a_context_is_one_itself(
    http: httpx.AsyncClient, collector: Collector, queue: str
) -> None:
    await push(http, [{"queue": queue, "payload": 1}])
    [message] = await pop(http, queue)
    origin = await span_of(
        collector, "the span of the push", lambda span: span.place == place_of(message["traceparent"])
    )
    assert origin.name == "POST /api/v1/push"
    assert origin.parent[1] == ""


@pytest.mark.parametrize("header", ["nonsense", "00-0-0-00", f"00-{'0' * 32}-{'0' * 16}-01", "ff-" + "1" * 52])
async def test_a_malformed_context_is_none(
    http: httpx.AsyncClient, collector: Collector, queue: str, header: str
) -> None:
    await push(http, [{"queue": queue, "payload": 1}], header)
    [message] = await pop(http, queue)
    await span_of(collector, "the span of the push", lambda span: span.place == place_of(message["traceparent"]))


async def test_a_context_that_is_not_sampled_is_kept_and_makes_no_span(
    http: httpx.AsyncClient, collector: Collector, queue: str
) -> None:
    sent, sender = new_context(flags="00")
    await push(http, [{"queue": queue, "payload": 1}], sent)
    asked, receiver = new_context()
    [message] = await pop(http, queue, asked)
    assert message["traceparent"] == sent
    pop_span = await child_of(collector, receiver)
    assert [link.place for link in pop_span.links] == [sender]
    assert not [span for span in collector.spans if span.place[0] == sender[0]]


async def test_each_message_keeps_its_own_whatever_else_it_carries(
    http: httpx.AsyncClient, collector: Collector, queue: str
) -> None:
    (first, one), (second, two) = new_context(), new_context()
    trace_id = "4b6d3a3e-0f43-4a9c-9a67-1f2f4a4f7c11"
    payload = {"traceparent": "mine", "text": 'ü"\\\u0001', "list": [{"payload": 1}]}
    await push(http, [{"queue": queue, "payload": payload}, {"queue": queue, "payload": None}], first)
    await push(
        http,
        [
            {"queue": queue, "payload": 7, "transactionId": "tx", "traceId": trace_id},
            {"queue": queue, "payload": 8, "transactionId": "tx"},  # a duplicate
        ],
        second,
    )
    operations = [{"type": "push", "items": [{"queue": queue, "payload": "t"}]}]
    response = await http.post("/api/v1/transaction", json={"operations": operations}, headers={"traceparent": second})
    assert response.json()["success"], response.text
    asked, receiver = new_context()
    messages = await pop(http, queue, asked)
    assert [(message["data"], message["traceparent"]) for message in messages] == [
        (payload, first), (None, first), (7, second), ("t", second),
    ]  # fmt: skip
    assert (messages[2]["transactionId"], messages[2]["traceId"]) == ("tx", trace_id)
    links = (await child_of(collector, receiver)).links
    assert {link.place: link.attributes["messaging.batch.message_count"] for link in links} == {one: 2, two: 2}


async def test_a_context_among_the_headers_of_a_message_goes_before_that_of_its_push(
    http: httpx.AsyncClient, collector: Collector, queue: str
) -> None:
    (made, maker), (sent, sender) = new_context(), new_context()
    headers: list[dict[str, str]] = [{"traceparent": made}, {"traceparent": "mine"}, {"x": "traceparent"}, {}]
    await push(http, [{"queue": queue, "payload": 1, "headers": each} for each in headers], sent)
    await push(http, [{"queue": queue, "payload": 2, "headers": headers[0]}])
    asked, receiver = new_context()
    messages = await pop(http, queue, asked)
    assert [message.get("headers", {}) for message in messages] == [*headers, headers[0]]
    assert [message["traceparent"] for message in messages[:4]] == [sent] * 4
    links = (await child_of(collector, receiver)).links
    assert {link.place: link.attributes["messaging.batch.message_count"] for link in links} == {maker: 2, sender: 3}


async def test_encrypted_messages_and_those_over_a_socket_keep_theirs(
    http: httpx.AsyncClient, traced_server: Server, queue: str
) -> None:
    body = {"queue": queue, "options": {"encryptionEnabled": True}}
    assert (await http.post("/api/v1/configure", json=body)).status_code in {200, 201}
    sent, _ = new_context()
    await push(http, [{"queue": queue, "payload": {"secret": 1}}], sent)
    async with open_socket(traced_server.port) as consumer:
        await consumer.subscribe(queue=queue, credit=10)
        batch = await consumer.expect("batch")
    assert [(message["data"], message["traceparent"]) for message in batch["messages"]] == [({"secret": 1}, sent)]


async def test_messages_that_went_through_the_spool_keep_theirs(http: httpx.AsyncClient, queue: str) -> None:
    await switch_maintenance(http, on=True)
    try:
        sent, _ = new_context()
        await push(http, [{"queue": queue, "payload": 1}], sent)
    finally:
        await switch_maintenance(http, on=False)
    [message] = await pop(http, queue, wait="true", timeout="20000")
    assert (message["data"], message["traceparent"]) == (1, sent)


async def switch_maintenance(http: httpx.AsyncClient, *, on: bool) -> None:
    response = await http.post("/api/v1/system/maintenance", json={"enabled": on})
    assert response.json()["maintenanceMode"] is on, response.text


async def test_simple_mq_keeps_contexts_too(http: httpx.AsyncClient, collector: Collector) -> None:
    body = {"queueName": "n", "queueSize": 10, "visibilityTimeout": 30, "maxDeliveries": 3}
    queue = (await http.post("/api/queues", json=body)).json()["queue_id"]
    path = f"/api/queues/{queue}/messages"
    (first, one), (asked, receiver) = new_context(), new_context()
    messages = {"messages": [{"data": "a"}, {"data": "b", "messageGroup": "g"}]}
    response = await http.post(path, json=messages, headers={"traceparent": first})
    assert response.status_code == 201, response.text
    response = await http.get(path, params={"limit": 10}, headers={"traceparent": asked})
    polled = response.json()["messages"]
    assert [(message["data"], message["traceparent"]) for message in polled] == [("a", first), ("b", first)]
    send, receive = await child_of(collector, one), await child_of(collector, receiver)
    about = {"messaging.system": "simple_mq", "messaging.destination.name": queue}
    assert send.name == "POST /api/queues/{queue_id}/messages"
    assert send.attributes.items() >= {**about, "messaging.operation.name": "enqueue"}.items()
    assert receive.attributes.items() >= {**about, "messaging.batch.message_count": 2}.items()
    assert [link.place for link in receive.links] == [one]


async def test_sqs_keeps_contexts_too(traced_server: Server, collector: Collector) -> None:
    """A message has the context of its attribute, else of its trace header, else of its request."""

    def asking(header: str) -> Any:
        made = sqs_client(traced_server.port)
        made.meta.events.register("before-send.sqs.*", lambda request, **_: request.headers.update(traceparent=header))
        return made

    (sent, sender), (made, maker), (asked, receiver), (done, deleter) = (new_context() for _ in range(4))
    (_, xrayed), (late, changer), (wrong, stranger) = (new_context() for _ in range(3))
    with queues_of(sqs_client(traced_server.port)) as make:
        url = make()
        name = url.rpartition("/")[2]
        attribute = {"traceparent": {"StringValue": made, "DataType": "String"}}
        trace, span = xrayed
        header = f"Root=1-{trace[:8]}-{trace[8:]};Parent={span};Sampled=1"
        system = {"AWSTraceHeader": {"StringValue": header, "DataType": "String"}}
        entries: list[dict[str, Any]] = [
            {"Id": "1", "MessageBody": "a"},
            {"Id": "2", "MessageBody": "b", "MessageAttributes": attribute},
            {"Id": "3", "MessageBody": "c", "MessageSystemAttributes": system},
        ]
        asking(sent).send_message_batch(QueueUrl=url, Entries=entries)
        messages = receive(asking(asked), url, MessageAttributeNames=["All"], AttributeNames=["AWSTraceHeader"])
        assert messages[1]["MessageAttributes"] == attribute
        trace, span = sender
        assert {message["Body"]: message.get("Attributes") for message in messages} == {
            "a": {"AWSTraceHeader": f"Root=1-{trace[:8]}-{trace[8:]};Parent={span};Sampled=1"},
            "b": {}, "c": {"AWSTraceHeader": header},
        }  # fmt: skip
        handle = messages[0]["ReceiptHandle"]
        asking(late).change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=9)
        asking(done).delete_message(QueueUrl=url, ReceiptHandle=handle)
        refused(asking(wrong).send_message, QueueUrl=f"{url}-unknown", MessageBody="x")
    send, received, changed, deleted = [
        await child_of(collector, each) for each in (sender, receiver, changer, deleter)
    ]
    about = {"messaging.system": "aws_sqs", "messaging.destination.name": name}
    for found, action, operation, kind, number in (
        (send, "SendMessageBatch", "send", "send", 3), (received, "ReceiveMessage", "receive", "receive", 3),
        (changed, "ChangeMessageVisibility", "change_visibility", None, 1),
        (deleted, "DeleteMessage", "delete", "settle", 1),
    ):  # fmt: skip
        assert found.name == f"SQS {action}"
        assert found.attributes.items() >= {
            **about, "rpc.method": action, "messaging.operation.name": operation,
            "messaging.batch.message_count": number, "http.route": "/sqs", "http.response.status_code": 200,
        }.items()  # fmt: skip
        assert found.attributes.get("messaging.operation.type") == kind
    assert {link.place for link in received.links} == {sender, maker, xrayed}
    refusal = await child_of(collector, stranger)
    assert (refusal.name, refusal.attributes["http.response.status_code"]) == ("SQS SendMessage", 400)
    assert not refusal.failed


async def test_refusals_are_answers_and_requests_of_no_queue_leave_no_trace(
    http: httpx.AsyncClient, collector: Collector, queue: str
) -> None:
    (bad, one), (unknown, two) = new_context(), new_context()
    response = await http.post("/api/v1/push", content=b"{", headers={"traceparent": bad})
    assert response.status_code == 400
    assert (await http.get("/api/v9/nothing", headers={"traceparent": unknown})).status_code == 404
    (probe, three), (last, four) = new_context(), new_context()
    for path in ("/health", "/metrics/prometheus", "/", "/openapi.json"):
        assert (await http.get(path, headers={"traceparent": probe})).status_code == 200
    await push(http, [{"queue": queue, "payload": 1}], last)
    refused, missing = await child_of(collector, one), await child_of(collector, two)
    assert (refused.name, refused.attributes["http.response.status_code"]) == ("POST /api/v1/push", 400)
    assert (missing.name, missing.attributes["http.response.status_code"]) == ("GET", 404)
    assert not refused.failed
    await child_of(collector, four)
    assert not [span for span in collector.spans if span.place[0] == three[0]]


async def test_metrics_are_those_of_prometheus_once_for_all_workers(
    http: httpx.AsyncClient, traced: list[Api], collector: Collector, queue: str
) -> None:
    for api in traced:
        await push(api.http, [{"queue": queue, "payload": 1}])
    names = {re.sub("_(bucket|count|sum|created)$", "", name) for name, _ in await scrape(http)}
    # Series of queues and groups come and go with them.
    scraped = {name for name in names if not name.startswith(("queen_queue_", "queen_group_", "simplemq_"))}
    assert len(scraped) > 30

    async def pushes() -> float:
        _, points = collector.exports[-1].metrics.get("queen_http_requests_total", ("", []))
        return sum(
            point.as_double
            for point in points
            if {pair.key: pair.value.string_value for pair in point.attributes}
            == {"method": "POST", "route": "/api/v1/push", "status": "201"}
        )

    async def both_are_in() -> bool:
        return bool(collector.exports) and await pushes() >= 2 and scraped <= set(collector.exports[-1].metrics)

    await eventually(both_are_in, "an export with the pushes of both workers")
    export = collector.exports[-1]
    assert export.resource["service.name"] == "queen"
    assert "process.pid" not in export.resource
    assert export.metrics["queen_workers"][0] == "gauge"
    assert [point.as_double for point in export.metrics["queen_workers"][1]] == [2.0]
    kind, points = export.metrics["queen_engine_call_seconds"]
    assert kind == "histogram"
    assert all(sum(point.bucket_counts) == point.count for point in points)
    assert all(len(point.bucket_counts) == len(point.explicit_bounds) + 1 for point in points)


async def more_than(collector: Collector, exports: int) -> bool:
    return len(collector.exports) > exports


async def test_metrics_go_on_whichever_worker_ends(
    http: httpx.AsyncClient, traced_server: Server, collector: Collector, queue: str
) -> None:
    await push(http, [{"queue": queue, "payload": 1}])
    for worker in sorted(traced_server.workers()):
        os.kill(worker, signal.SIGKILL)
        traced_server.wait_until_all_are_healthy(2)
        before = len(collector.exports)
        await eventually(partial(more_than, collector, before + 1), "exports after the end of a worker")
        # Two exports at a time would be two that speak.
        times = [
            export.metrics["queen_workers"][1][0].time_unix_nano
            for export in collector.exports
            if "queen_workers" in export.metrics
        ]
        assert times == sorted(times)
        assert len(set(times)) == len(times)


@pytest.mark.nightly
@pytest.mark.parametrize("worker_class", ["asgi", "gthread"])
async def test_other_worker_classes_trace_too(
    server: Server, collector: Collector, folder: Path, queue: str, worker_class: str
) -> None:
    environment = {**ENVIRONMENT, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": worker_class}
    options = ("--workers", "1", "--worker-class", worker_class)
    (sent, sender), (asked, receiver) = new_context(), new_context()
    with serving_database(server.dsn, folder, *options, **environment) as running:
        async with open_client(running.port) as http:
            await push(http, [{"queue": queue, "payload": 1}], sent)
            [message] = await pop(http, queue, asked)
    assert message["traceparent"] == sent
    push_span = await child_of(collector, sender)
    assert push_span.resource["service.name"] == worker_class
    assert [link.place for link in (await child_of(collector, receiver)).links] == [sender]


@pytest.mark.nightly
async def test_a_collector_that_never_answers_harms_no_request_and_no_stop(
    server: Server, folder: Path, queue: str
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as silent:
        environment = {**ENVIRONMENT, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
                       "OTEL_BSP_MAX_QUEUE_SIZE": "16", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4"}  # fmt: skip
        with serving_database(server.dsn, folder, "--workers", "1", **environment) as running:
            async with open_client(running.port) as http:
                for number in range(40):  # more than it keeps for later
                    await push(http, [{"queue": queue, "payload": number}])
                assert [message["data"] for message in await pop(http, queue)] == list(range(40))
            end(running)
            assert running.process.returncode == 0
            assert "SIGKILL" not in running.output.read_text()


def test_without_exporters_contexts_are_kept_and_nothing_is_sent() -> None:
    async def gather() -> list[Metric]:
        return []

    settings = Settings(telemetry=Telemetry(enabled=True, traces="none", metrics="none"))
    with tracing(settings).get_tracer("test").start_as_current_span("a") as span:
        assert Exchange(span, INVALID_SPAN_CONTEXT).traceparent == header_of(span.get_span_context())
    assert metrics_sender(settings, gather) is None


@pytest.mark.parametrize(
    "variables", [{}, {"QUEEN_OTEL_ENABLED": "1", "OTEL_SDK_DISABLED": "TRUE"}], ids=["off", "sdk"]
)
def test_telemetry_off_imports_nothing(variables: dict[str, str]) -> None:
    code = (
        "import queen.server.config, queen.app, sys;"
        "print(sorted(name for name in sys.modules if name.startswith('opentelemetry')))"
    )
    environment = clean_environment(DATABASE_URL="postgresql://postgres@127.0.0.1:1/queen", **variables)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_a_missing_package_is_named_at_the_start(server: Server, folder: Path) -> None:
    shadow = folder / "shadow" / "opentelemetry"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").touch()  # hides the package of the same name
    running = start_on_database(server.dsn, folder, PYTHONPATH=str(shadow.parent), QUEEN_OTEL_ENABLED="true")
    wait_until(lambda: running.process.poll() is not None, "the end of a server that cannot start")
    assert running.process.returncode == 1
    output = running.output.read_text()
    assert "pip install 'queen-for-python[otel]'" in output
    assert "Traceback" not in output


def test_families_become_metrics() -> None:
    counter = CounterMetricFamily("done", "What was done.", labels=("kind",))
    counter.add_metric(("a",), 3)
    histogram = HistogramMetricFamily("time_seconds", "How long.", labels=("kind",))
    histogram.add_metric(("a",), [("1.0", 2), ("2.0", 5), ("+Inf", 6)], 9.5)
    gauge = GaugeMetricFamily("now", "How many.", value=4)
    empty = GaugeMetricFamily("none", "Nothing.", labels=("queue",))
    scope = InstrumentationScope("queen")
    data = metrics_data([counter, histogram, gauge, empty], Resource({}), scope, 5, 7)
    done, times, now = data.resource_metrics[0].scope_metrics[0].metrics
    assert (done.name, done.description) == ("done_total", "What was done.")
    [point] = done.data.data_points
    assert (point.value, point.attributes, point.start_time_unix_nano, point.time_unix_nano) == (3, {"kind": "a"}, 5, 7)
    [bars] = times.data.data_points
    assert (times.name, bars.count, bars.sum) == ("time_seconds", 6, 9.5)
    assert (list(bars.explicit_bounds), list(bars.bucket_counts)) == ([1.0, 2.0], [2, 3, 1])
    assert [point.value for point in now.data.data_points] == [4]
