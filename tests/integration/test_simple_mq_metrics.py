"""simple-mq's metrics: one for all workers, right, and gone with their queues."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from queen.simple_mq.metrics import METER_NAMES
from tests.support.api import open_client
from tests.support.clock import eventually
from tests.support.processes import ROOT, Server
from tests.support.scraping import Samples, scrape, value

DEPLOY = ROOT / "deploy"


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(server.port) as client:
        yield client


async def create(http: httpx.AsyncClient, **change: int) -> str:
    body: dict[str, Any] = {"queueName": "n", "queueSize": 10, "visibilityTimeout": 30, "maxDeliveries": 1} | change
    return str((await http.post("/api/queues", json=body)).json()["queue_id"])


async def test_counters_of_all_workers_are_one_and_compare_with_what_happened(http: httpx.AsyncClient) -> None:
    queue, small = await create(http), await create(http, queueSize=1, visibilityTimeout=0)
    before = await scrape(http)
    path = f"/api/queues/{queue}/messages"
    # As many connections as requests, so that both workers have some.
    sent = await asyncio.gather(*(http.post(path, json={"data": "x"}) for _ in range(14)))
    polled = await asyncio.gather(*(http.get(path) for _ in range(12)))
    messages = [response.json()["message"] for response in polled if response.json()["message"]]
    acks = await asyncio.gather(*(http.delete(f"{path}/{message['message_id']}") for message in messages[:4] * 2))
    for _ in range(2):
        await http.post(f"/api/queues/{small}/messages", json={"data": "x"})
        for _ in range(2):
            await http.get(f"/api/queues/{small}/messages")
    unknown = f"/api/queues/{small[:-1]}{'0' if small[-1] != '0' else '1'}"
    await http.get(f"{unknown}/messages")
    await http.post(f"{unknown}/messages", json={"data": "x"})

    def outcomes(samples: Samples, of: str) -> dict[tuple[str, str], float]:
        return {
            (name.removeprefix("simplemq_").removesuffix("_total"), dict(labels)["outcome"]): number
            for (name, labels), number in samples.items()
            if name.endswith("_total") and dict(labels).get("queue_id") == of
        }

    expected = {
        ("enqueue", "success"): sum(response.status_code == 201 for response in sent),
        ("enqueue", "queue_full"): sum(response.status_code == 429 for response in sent),
        ("dequeue", "success"): len(messages),
        ("dequeue", "empty"): 12 - len(messages),
        ("ack", "success"): sum(response.status_code == 200 for response in acks),
        ("ack", "message_not_found"): sum(response.status_code == 404 for response in acks),
    }
    assert expected["enqueue", "success"] == expected["dequeue", "success"] == 10

    async def as_expected() -> Samples | None:
        samples = await scrape(http)
        return samples if outcomes(samples, queue) == expected else None

    samples = await eventually(as_expected, "the counters of another worker", 5)
    assert outcomes(samples, small) == {
        ("enqueue", "success"): 2, ("dequeue", "success"): 2, ("dequeue", "empty"): 2, ("dlq_moved", "success"): 1,
        ("dlq_failed", "capacity_exceeded"): 1,
    }  # fmt: skip
    for name in ("simplemq_dequeue_total", "simplemq_enqueue_total"):
        labels = {"queue_id": "", "outcome": "queue_not_found"}
        assert (value(samples, name, **labels) or 0) - (value(before, name, **labels) or 0) == 1
    assert value(samples, "simplemq_queue_depth", queue_id=queue, type="queue") == 6
    assert value(samples, "simplemq_queue_inflight_count", queue_id=queue, type="queue") == 6
    assert value(samples, "simplemq_queue_oldest_waiting_message_age_seconds", queue_id=queue, type="queue") == 0
    dlq = (await http.get(f"/api/queues/{small}")).json()["dlq_id"]
    assert value(samples, "simplemq_queue_depth", queue_id=dlq, type="dlq") == 1
    assert value(samples, "simplemq_queue_oldest_waiting_message_age_seconds", queue_id=dlq, type="dlq")

    def requests(samples: Samples, **labels: str) -> float:
        return sum(
            number
            for (name, own), number in samples.items()
            if name == "http_server_requests_seconds_count" and labels.items() <= dict(own).items()
        )

    uri = "/api/queues/{queue_id}/messages"
    assert requests(samples, uri=uri, method="POST") - requests(before, uri=uri, method="POST") == 17
    for each in (queue, small, dlq):
        assert (await http.delete(f"/api/queues/{each}")).status_code == 200


@pytest.mark.nightly
async def test_series_go_with_their_queue_and_do_not_pile_up(http: httpx.AsyncClient) -> None:
    queues = set()
    for _ in range(20):
        queue = await create(http)
        queues.add(queue)
        await http.post(f"/api/queues/{queue}/messages", json={"data": "x"})
        samples = await scrape(http)
        assert value(samples, "simplemq_queue_depth", queue_id=queue, type="queue") == 1
        assert (await http.delete(f"/api/queues/{queue}")).status_code == 200
        samples = await scrape(http)
        assert not [labels for _, labels in samples if queues.intersection(dict(labels).values())]


async def test_metrics_of_a_worker_survive_its_end(server: Server, http: httpx.AsyncClient) -> None:
    queue = await create(http)
    for _ in range(10):
        await http.get(f"/api/queues/{queue}/messages/peek?limit=1")

    async def peeks() -> float:
        samples = await scrape(http)
        return sum(
            number
            for (name, labels), number in samples.items()
            if name == "http_server_requests_seconds_count" and dict(labels)["uri"].endswith("peek")
        )

    before = await peeks()
    old = server.workers()
    os.kill(min(old), signal.SIGKILL)
    await eventually(lambda: _replaced(server, old), "a new worker")
    async with open_client(server.port) as fresh:
        await eventually(lambda: _healthy(fresh), "healthy")
    async with open_client(server.port) as fresh:
        assert (await fresh.get("/metrics/prometheus")).status_code == 200
        samples = await scrape(fresh)
        after = sum(
            number
            for (name, labels), number in samples.items()
            if name == "http_server_requests_seconds_count" and dict(labels)["uri"].endswith("peek")
        )
        assert after >= before
        await fresh.delete(f"/api/queues/{queue}")


async def _replaced(server: Server, old: set[int]) -> bool:
    return len(server.workers() - old) == 1


async def _healthy(http: httpx.AsyncClient) -> bool:
    return (await http.get("/health")).status_code == 200


# What is in deploy/


#: Clauses of PromQL that hold labels: matchers, and those behind by, without, on and ignoring.
_MATCHERS = re.compile(r"\{([^}]*)\}")
_CLAUSE = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_VARIABLE = re.compile(r"^label_values\((\w+), (\w+)\)$")


def _named(expression: str) -> tuple[set[str], set[str]]:
    """The metrics and the labels in an expression of PromQL, or in the query of a variable."""
    if variable := _VARIABLE.match(expression):
        return {variable[1]}, {variable[2]}
    plain = re.sub(r'"[^"]*"|\[[^\]]*\]', "", expression)
    matched = [re.split(r"[=!]", part)[0].strip() for each in _MATCHERS.findall(plain) for part in each.split(",")]
    grouped = [part.strip() for each in _CLAUSE.findall(plain) for part in each.split(",")]
    bare = _CLAUSE.sub(" ", _MATCHERS.sub("", plain))
    # What stands before a bracket is a function.
    metrics = set(re.findall(r"\b[a-zA-Z_]\w*\b(?!\s*\()", bare)) - {"and", "or", "unless", "bool"}
    return metrics, {*matched, *grouped}


def test_metrics_and_labels_are_found_in_an_expression() -> None:
    text = 'sum by (le, a) (rate(x_bucket{b=~"y{}", c!="z"}[$__rate_interval])) / max(other) > 0.5 and third'
    assert _named(text) == ({"x_bucket", "other", "third"}, {"le", "a", "b", "c"})
    assert _named("label_values(x, y)") == ({"x"}, {"y"})


def _expressions() -> dict[str, list[str]]:
    dashboard = json.loads((DEPLOY / "grafana" / "simple-mq.json").read_text())
    rules = yaml.safe_load((DEPLOY / "prometheus" / "simple-mq.rules.yaml").read_text())
    found = {
        f"panel {panel['title']}": [target["expr"] for target in panel["targets"]]
        for panel in dashboard["panels"]
        if panel["type"] != "row"
    }
    found |= {
        f"variable {each['name']}": [each["query"]]
        for each in dashboard["templating"]["list"]
        if each["type"] == "query"
    }
    found |= {f"alert {rule['alert']}": [rule["expr"]] for group in rules["groups"] for rule in group["rules"]}
    return found


async def test_every_expression_names_metrics_and_labels_that_exist(http: httpx.AsyncClient) -> None:
    queue = await create(http, visibilityTimeout=0, queueSize=1)
    path = f"/api/queues/{queue}/messages"
    for _ in range(2):
        await http.post(path, json={"data": "x"})
        for _ in range(2):
            await http.get(path)
    await http.delete(f"{path}/{queue}")
    await http.post(f"{path}/{queue}/requeue")
    dlq = (await http.get(f"/api/queues/{queue}")).json()["dlq_id"]
    gone = await create(http)
    await http.delete(f"/api/queues/{gone}")
    # bench/probes.py writes the one, and Prometheus the other.
    exposed: dict[str, set[str]] = {"probe_success": {"job"}, "up": {"job"}}

    async def everything_is_there() -> bool:
        for name, labels in await scrape(http):
            exposed.setdefault(name, set()).update(dict(labels))
        wanted = {metric for texts in _expressions().values() for text in texts for metric in _named(text)[0]}
        return wanted <= set(exposed)

    try:
        await eventually(everything_is_there, f"all metrics; there are {sorted(exposed)}")
    finally:
        for each in (queue, dlq):
            await http.delete(f"/api/queues/{each}")
    expressions = _expressions()
    assert len(expressions) > 15
    for place, texts in expressions.items():
        for text in texts:
            metrics, labels = _named(text)
            assert metrics, f"{place} names no metric: {text}"
            known = set[str]().union(*(exposed[metric] for metric in metrics))
            assert labels <= known, f"{place}: no metric there has the label {labels - known}"


def test_the_list_of_meters_is_that_of_the_exposition() -> None:
    source = Path(ROOT / "queen" / "simple_mq" / "metrics.py").read_text()
    for name in METER_NAMES:
        plain = name.replace(".", "_").removesuffix("_total")
        assert plain in source or plain in (ROOT / "queen" / "metrics" / "http.py").read_text(), name
