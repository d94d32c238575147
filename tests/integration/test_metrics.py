"""Queen's metrics: all workers as one, right, bounded, described, and used by dashboards and alerts."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import yaml

from queen.core.statistics import GroupStatistics, LogStatistics, QueueStatistics
from queen.http.request_counters import RequestCounters
from queen.metrics import instance
from queen.metrics.http import ANSWER_SECONDS, ANSWERED
from tests.support.api import Api, open_client
from tests.support.clock import eventually
from tests.support.processes import ROOT, Server
from tests.support.scraping import Samples, families, scrape, total, value

DEPLOY = ROOT / "deploy"


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(server.port) as client:
        yield client


async def test_requests_of_all_workers_are_counted_by_route_and_status(
    server: Server, workers: list[Api], queue: str
) -> None:
    async with open_client(server.port) as http:
        before = await scrape(http)
        labels = {"method": "POST", "route": "/api/v1/push"}
        for api in workers:
            await api.http.request("PROPFIND", "/api/v1/push")
            await api.http.get(f"/api/v1/no/{queue}")
            await api.push(queue, 1)
            await api.http.post("/api/v1/push", content=b"{")

        async def counted() -> Samples | None:
            samples = await scrape(http)
            rise = {
                status: total(samples, "queen_http_requests_total", status=status, **labels)
                - total(before, "queen_http_requests_total", status=status, **labels)
                for status in ("201", "400")
            }
            # More, if an earlier test's requests were published only now; then others of this test may come later.
            unknown = total(samples, "queen_http_requests_total", route="unknown", status="404")
            return samples if min(unknown, *rise.values()) >= 2 else None

        samples = await eventually(counted, "both workers' requests")
        assert total(samples, "queen_http_request_seconds_total", status="201", **labels) > 0
        assert not [labels for _, labels in samples if queue in dict(labels).get("route", "")]
        assert total(samples, "queen_http_requests_total", route="/api/v1/push", method="other", status="405") >= 2
        assert not [labels for _, labels in samples if dict(labels).get("method") == "PROPFIND"]


async def test_the_engines_of_all_workers_are_one(server: Server, http: httpx.AsyncClient, queue: str) -> None:
    api = Api(http)
    await api.push(queue, 1)
    waiting = asyncio.create_task(api.pop(f"{queue}-empty", wait=True, timeout=60_000))

    async def published() -> Samples | None:
        """Workers publish each second, and each by itself."""
        samples = await scrape(http)
        jobs = total(samples, "queen_engine_jobs_total", kind="push")
        agrees = jobs >= 1 and total(samples, "queen_engine_batch_jobs_sum", kind="push") == jobs
        return samples if agrees and value(samples, "queen_waiters") else None

    samples = await eventually(published, "a parked long poll and all pushes")
    assert value(samples, "queen_workers") == len(server.workers())
    assert total(samples, "queen_engine_call_seconds_count", kind="push") >= 1
    assert value(samples, "queen_engine_calls_limit", kind="push") == 4 * len(server.workers())
    assert value(samples, "queen_connections", pool="hot") == 16
    assert value(samples, "queen_database_up") == 1
    assert value(samples, "queen_spool_active") == 0
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_lag_leases_and_messages_by_queue_and_group(http: httpx.AsyncClient, queue: str) -> None:
    api = Api(http)
    for partition in ("a", "b"):
        await api.push(queue, 1, 2, 3, partition=partition)
    popped = await api.pop(queue, "a", consumerGroup="billing", subscriptionMode="all", batch=2)
    await api.ack(popped.messages[:1])
    await http.post("/api/v1/stats/refresh")
    samples = await scrape(http)
    labels = {"queue": queue, "group": "billing"}
    assert value(samples, "queen_group_lag_messages", **labels) == 5
    assert value(samples, "queen_group_leases", **labels) == 1
    assert (value(samples, "queen_group_lag_seconds", **labels) or 0) > 0
    assert value(samples, "queen_queue_messages", queue=queue) == 6
    assert value(samples, "queen_queue_partitions", queue=queue) == 2
    assert (value(samples, "queen_oldest_undone_age_seconds") or 0) > 0
    await api.delete(queue)
    samples = await scrape(http)
    assert not [labels for _, labels in samples if dict(labels).get("queue") == queue], "its series are gone with it"


async def test_messages_are_counted_when_they_are_stored(http: httpx.AsyncClient, queue: str) -> None:
    api = Api(http)
    before = await scrape(http)
    await api.push(queue, *range(7))
    popped = await api.pop(queue, batch=5)
    await api.ack(popped.messages)

    async def counted() -> bool:
        samples = await scrape(http)
        return all(
            total(samples, "queen_messages_total", operation=operation)
            - total(before, "queen_messages_total", operation=operation)
            >= number
            for operation, number in (("push", 7), ("pop", 5), ("ack", 5))
        )

    await eventually(counted, "the next report")


async def test_only_metrics_with_given_names_are_shown(http: httpx.AsyncClient, queue: str) -> None:
    await Api(http).push(queue, 1)
    asked = {"name": ["queen_engine_jobs", "queen_database_up", "unknown"]}
    text = (await http.get("/metrics/prometheus", params=asked)).text
    names = set(re.findall(r"^(\w+)[ {]", text, re.MULTILINE))
    assert {"queen_engine_jobs_total", "queen_engine_jobs_waiting", "queen_database_up"} <= names
    assert all(name.startswith(("queen_engine_jobs", "queen_database_up")) for name in names)
    assert (await http.get("/metrics/prometheus", params={"name": "\0"})).status_code == 400


def test_series_are_bounded_and_what_has_none_is_counted() -> None:
    statistics = LogStatistics(
        5, 7, 1.0, None, [QueueStatistics("q", 1, 2, 3, 4, 5)], [GroupStatistics("q", "g", 1, 2.0, 3, 4)] * 2
    )
    samples = {sample.name: sample.value for family in instance.log(statistics) for sample in family.samples}
    assert samples["queen_queues_without_series"] == 4
    assert samples["queen_groups_without_series"] == 5
    assert samples["queen_statistics_age_seconds"] == 0


def test_a_counters_hands_over_each_request_once() -> None:
    counters = RequestCounters()
    counters.add("GET", "/counters", 200, 0.5)
    counters.add("GET", "/counters", 200, 0.25)
    counters.publish()
    counters.publish()
    labels = ("GET", "/counters", "200")
    assert [metric.labels(*labels)._value.get() for metric in (ANSWERED, ANSWER_SECONDS)] == [2, 0.75]


# What describes and uses them


def _described() -> set[str]:
    """The metrics in the tables of the documentation."""
    page = "".join((ROOT / "docs" / name).read_text() for name in ("metrics.md", "sqs.md"))
    return {name for row in re.findall(r"^\|(.+?)\|", page, re.MULTILINE) for name in re.findall(r"`(queen_\w+)`", row)}


async def test_every_metric_is_described_and_every_description_has_its_metric(http: httpx.AsyncClient) -> None:
    async def found() -> set[str] | None:
        names = {name for name in await families(http) if name.startswith("queen_")}
        # A worker publishes its requests a moment later, the first of them too.
        return names if "queen_http_requests_total" in names else None

    assert await eventually(found, "a request that was counted") == _described()


def _expressions() -> dict[str, list[str]]:
    """Everything in PromQL that is in deploy/, by where it stands."""
    found = {}
    for path in (DEPLOY / "grafana").glob("queen*.json"):
        dashboard = json.loads(path.read_text())
        found |= {
            f"{path.name}, panel {panel['title']}": [target["expr"] for target in panel["targets"]]
            for panel in dashboard["panels"]
            if panel["type"] != "row"
        }
        found |= {
            f"{path.name}, variable {each['name']}": [each["query"]]
            for each in dashboard["templating"]["list"]
            if each["type"] == "query"
        }
    for path in (DEPLOY / "prometheus").glob("queen*.rules.yaml"):
        rules: dict[str, Any] = yaml.safe_load(path.read_text())
        found |= {
            f"{path.name}, alert {rule['alert']}": [rule["expr"]]
            for group in rules["groups"]
            for rule in group["rules"]
        }
    return found


def _named(expression: str) -> set[str]:
    """The metrics in an expression, without what it groups and filters by."""
    plain = re.sub(r"\{[^}]*\}|\b(?:by|without|on|ignoring)\s*\([^)]*\)", "", expression)
    return set(re.findall(r"\b(?:queen|up)(?:_\w+)?\b", plain))


async def test_every_expression_names_metrics_that_exist(http: httpx.AsyncClient) -> None:
    exposed = await families(http)
    exposed |= {name + suffix for name in exposed for suffix in ("_bucket", "_count", "_sum")}
    exposed.add("up")  # Prometheus makes that one.
    expressions = _expressions()
    assert len(expressions) > 30
    for place, texts in expressions.items():
        for text in texts:
            assert _named(text), f"{place} names no metric: {text}"
            assert _named(text) <= exposed, f"{place}: {_named(text) - exposed}"
