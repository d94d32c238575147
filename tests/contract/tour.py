"""A tour through all operations of a live server: every answer is held against the contract, and kept as an example."""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from queen.http.operation import Operation
from tests.contract.contract import OPERATIONS, assert_as_promised

#: Lists in examples show no more of it.
_ELEMENTS_MAX = 2
_TEXT_MAX = 200


class Tour:
    """Calls operations by their names."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.examples: dict[str, Any] = {}

    async def call(
        self,
        name: str,
        status: int = 200,
        /,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        **parameters: Any,
    ) -> Any:
        """The body of an answer, which must have the status and be what the contract says."""
        operation = OPERATIONS[name]
        url, params = _place(operation, parameters)
        content = None if body is None else json.dumps(body)
        response = await self._http.request(operation.method, url, params=params, content=content, headers=headers)
        assert response.status_code == status, f"{name}: {response.status_code} {response.text[:1000]}"
        assert_as_promised(operation, response)
        value = response.json() if "json" in response.headers.get("content-type", "") else None
        if response.is_success:
            self._keep(name, status, parameters, body, value)
        return value

    def _keep(self, name: str, status: int, parameters: Mapping[str, Any], body: Any, value: Any) -> None:
        example = self.examples.setdefault(name, {"answers": {}})
        if str(status) not in example["answers"] and name != "getContract":
            if parameters:
                example.setdefault("parameters", dict(parameters))
            if body is not None:
                example.setdefault("body", body)
            if value is not None:
                example["answers"][str(status)] = _shortened(value)


def _place(operation: Operation, parameters: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    places = {parameter.name: parameter.place for parameter in operation.parameters}
    assert parameters.keys() <= places.keys(), f"{operation.name} has no {parameters.keys() - places.keys()}"
    url = operation.path
    for name, value in parameters.items():
        if places[name] == "path":
            url = url.replace(f"{{{name}}}", quote(str(value), safe=""))
    return url, {name: str(value) for name, value in parameters.items() if places[name] == "query"}


def _shortened(value: Any) -> Any:
    match value:
        case list():
            return [_shortened(each) for each in value[:_ELEMENTS_MAX]]
        case dict():
            return {name: _shortened(each) for name, each in value.items()}
        case str():
            return value[:_TEXT_MAX]
        case _:
            return value


async def visit(http: httpx.AsyncClient) -> dict[str, Any]:
    """Calls every operation but the WebSocket; returns the examples by operation."""
    tour = Tour(http)
    for part in (
        _deliver,
        _inspect,
        _stream,
        _look_at_status,
        _administer_groups,
        _bury,
        _time,
        _system,
        _simple_mq,
        _sqs,
    ):
        await part(tour)
    return tour.examples


async def _deliver(tour: Tour) -> None:
    call = tour.call
    await call(
        "configureQueue",
        body={"queue": "orders", "namespace": "shop", "task": "bill", "options": {"leaseTime": 60, "retryLimit": 3}},
    )
    await call("getConfiguration", queue="orders")
    await call("getConfiguration", 404, queue="unknown")
    order = {"queue": "orders", "partition": "alice"}
    items = [
        {**order, "payload": {"item": "tea"}, "transactionId": "order-1"},
        {**order, "payload": {"item": "milk"}},
        *[{**order, "payload": n} for n in range(6)],
    ]
    await call("push", 201, body={"items": items})
    await call("push", 201, body={"items": items[:1]})
    await call("push", 400, body={"items": [{}]})
    bill = {"consumerGroup": "billing", "subscriptionMode": "all"}
    popped = await call("popQueue", queue="orders", batch=4, **bill)
    first, second, third, fourth = popped["messages"]
    await call("popQueue", 204, queue="orders", wait="true", timeout=10, **bill)
    await call("popQueue", 400, queue="orders", batch=0)
    await call("extendLease", leaseId=popped["leaseId"], body={"seconds": 120})
    await call("extendLease", leaseId="unknown")
    await call("ack", body={**_ids(first), "consumerGroup": "billing"})
    await call("ack", 400, body={})
    batch = [_ids(second), {**_ids(third), "status": "failed", "error": "no stock"}, {**_ids(third), "leaseId": "x"}]
    await call("ackBatch", body={"consumerGroup": "billing", "acknowledgments": batch})
    pop = {"queue": "orders", "autoAck": True, "subscriptionMode": "all"}
    more = await call("ackBatch", body={"consumerGroup": "books", "acknowledgments": batch[:1], "pop": pop})
    assert more["pop"]["messages"]
    await call("ackBatch", body={"consumerGroup": "books", "acknowledgments": [], "pop": {**pop, "partition": "x"}})
    await call("ackBatch", 400, body={"acknowledgments": [], "pop": {}})
    operations = [
        {"type": "ack", **_ids(fourth), "consumerGroup": "billing"},
        {"type": "push", "items": [{"queue": "bills", "payload": {"of": "order-4"}, "transactionId": "bill-4"}]},
    ]
    await call("transact", body={"operations": operations})
    await call("transact", body={"operations": operations})
    await call("transact", 400, body={"operations": []})
    await call("popPartition", queue="orders", partition="alice", batch=2, autopilot="true")
    await call("popLabel", namespace="shop", task="bill", consumerGroup="new", autoAck="true", subscriptionMode="all")
    await call("popLabel", 400)


def _ids(message: Mapping[str, Any]) -> dict[str, Any]:
    return {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}


async def _inspect(tour: Tour) -> None:
    call = tour.call
    await call("listQueues", namespace="shop", limit=10)
    for on in (True, False):
        await call("pauseQueue", queue="orders", body={"paused": on})
        await call("pauseConsumerGroup", consumerGroup="billing", queue="orders", body={"paused": on})
    await call("pauseQueue", 404, queue="unknown", body={"paused": True})
    await call("pauseConsumerGroup", 404, consumerGroup="unknown", queue="orders", body={"paused": True})
    await call("listQueues", 400, limit=0)
    await call("getQueue", queue="orders")
    await call("getQueue", 404, queue="unknown")
    await call("getQueueDepth", queue="orders", group="billing")
    await call("getQueueDepth", 404, queue="unknown")
    await call("listPartitions", queue="orders")
    await call("listNamespaces")
    await call("listTasks")
    await call("getOverview")
    listed = await call("listMessages", queue="orders", limit=3)
    await call("listMessages", 400, status="unknown")
    newest = listed["messages"][0]
    place = {"partitionId": newest["partitionId"], "transactionId": newest["transactionId"]}
    await call("getMessage", **place)
    await call("getMessage", 404, **{**place, "transactionId": "unknown"})
    trace = {"data": {"text": "packed"}, "traceNames": ["tea"], "eventType": "info", "consumerGroup": "billing"}
    await call("recordTrace", 201, body={**place, **trace})
    await call("recordTrace", 404, body={**place, **trace, "transactionId": "unknown"})
    await call("recordTrace", 400, body={**trace})
    await call("listTracesOfMessage", **place)
    await call("listTracesByName", traceName="tea")
    await call("listTraceNames")
    await call("deleteMessage", **place)
    await call("deleteMessage", 404, **place)


async def _bury(tour: Tour) -> None:
    call = tour.call
    await call("push", 201, body={"items": [{"queue": "letters", "payload": n} for n in range(5)]})
    popped = await call("popQueue", queue="letters", batch=3)
    await call(
        "ackBatch",
        body={"acknowledgments": [{**_ids(m), "status": "dlq", "error": "cannot be read"} for m in popped["messages"]]},
    )
    first, second, third = (await call("listDeadLetters", queue="letters", consumerGroup="__QUEUE_MODE__"))["messages"]
    await call("replayDeadLetter", deadLetterId=first["id"], body={"queue": "letters", "partition": "second-chance"})
    await call("replayDeadLetter", 404, deadLetterId=first["id"])
    await call("deleteDeadLetter", deadLetterId=second["id"])
    await call("deleteDeadLetter", 404, deadLetterId=second["id"])
    place = {"partitionId": third["partitionId"], "transactionId": third["transactionId"]}
    await call("retryMessage", **place)
    await call("retryMessage", 404, **place)
    waiting = (await call("popQueue", queue="letters"))["messages"][0]
    place = {"partitionId": waiting["partitionId"], "transactionId": waiting["transactionId"]}
    await call("giveUpMessage", **place, body={"error": "not wanted"})
    await call("giveUpMessage", 409, **place)
    await call("listDeadLetterErrors", queue="letters")
    await call("replayDeadLetters", body={"queue": "letters", "error": "cannot be read", "limit": 1})
    await call("replayDeadLetters", 400, body={"queue": "letters", "limit": 0})
    await call("replayDeadLetters", 404, body={"queue": "unknown"})
    await call("purgeDeadLetters", queue="letters")
    await call("purgeDeadLetters", 400)
    await call("deleteQueue", queue="letters")
    await call("deleteQueue", queue="letters")


async def _time(tour: Tour) -> None:
    call = tour.call
    timer = {"queue": "reminders", "timerKey": "order-1"}
    payload = base64.b64encode(b'{"order":1}').decode()
    operations = [{"op": "schedule", **timer, "payload": payload, "delayMs": 60_000}, {"op": "fire", **timer}]
    await call("changeTimers", body={"operations": operations})
    await call("changeTimers", 400, body={"operations": [{"op": "schedule", **timer}]})
    await call("changeTimers", body={"operations": operations[:1]})
    await call("listTimers", queue="reminders", limit=10)
    await call("listTimers", 400, queue="reminders", limit=0)
    await call("getTimer", **timer)
    await call("cancelTimer", **timer)
    await call("cancelTimer", **timer)
    await call("getTimer", **timer)
    cron = {"queue": "reminders", "name": "daily", "cron": "30 7 * * MON-FRI", "timeZone": "Europe/Berlin"}
    await call("setSchedule", body={**cron, "payload": {"task": "report"}})
    await call("setSchedule", 400, body={**cron, "cron": "daily"})
    await call("listSchedules", queue="reminders")
    await call("deleteSchedule", queue="reminders", name="daily")
    await call("deleteSchedule", 404, queue="reminders", name="daily")
    await call("deleteQueue", queue="reminders")


async def _stream(tour: Tour) -> None:
    call = tour.call
    query = {"name": "per-minute", "source_queue": "orders", "config_hash": "a1", "sink_queue": "counts"}
    registered = await call("registerStream", body=query)
    await call("registerStream", 409, body={**query, "config_hash": "b2"})
    await call("registerStream", 400, body={})
    group = {"consumerGroup": "streams.per-minute", "subscriptionMode": "all"}
    message = (await call("popQueue", queue="orders", **group))["messages"][0]
    place = {"query_id": registered["query_id"], "partition_id": message["partitionId"]}
    cycle = {
        **place,
        "consumer_group": "streams.per-minute",
        "state_ops": [{"type": "upsert", "key": "window", "value": {"count": 1, "windowEnd": 60}}],
        "push_items": [{"queue": "counts", "payload": {"count": 1}}],
        "ack": {"transactionId": message["transactionId"], "leaseId": message["leaseId"], "count": 1},
    }
    await call("commitCycle", body=cycle)
    await call("commitCycle", body=cycle)
    await call("commitCycle", 400, body={})
    await call("readStreamState", body={**place, "key_prefix": "w", "ripe_at_or_before": 60})
    await call("readStreamState", body={**place, "query_id": "unknown"})
    await call("readStreamState", 400, body={})


async def _look_at_status(tour: Tour) -> None:
    for name in (
        "getStatus", "listQueueStatus", "getBuffers", "listDatabases",
        "getSystemMetrics", "getWorkerMetrics", "getQueueLag",
        "getQueueOperations", "getParkedPops", "getRetention", "getPostgresStatistics", "getMetrics",
        "getPrometheusMetrics",
    ):  # fmt: skip
        await tour.call(name)
    await tour.call("getQueueStatus", queue="orders")
    await tour.call("getQueueStatus", 404, queue="unknown")
    await tour.call("listQueueMessages", queue="orders", limit=2)
    await tour.call("listQueueMessages", 404, queue="unknown")
    await tour.call("getAnalytics", interval="hour", queue="orders")
    await tour.call("getAnalytics", 400, interval="year")
    await tour.call("getStatus", 400, **{"from": "yesterday"})


async def _administer_groups(tour: Tour) -> None:
    call, group = tour.call, "billing"
    await call("listConsumerGroups")
    await call("listLaggingPartitions", minLagSeconds=0)
    await call("getConsumerGroup", consumerGroup=group)
    await call("getConsumerGroup", consumerGroup="unknown")
    await call("listQueuesOfGroup", consumerGroup=group)
    await call("listQueuesOfGroup", consumerGroup="unknown")
    await call("updateSubscription", consumerGroup=group, body={"subscriptionTimestamp": "2026-01-01T00:00:00Z"})
    await call("updateSubscription", 400, consumerGroup=group, body={})
    place = {"consumerGroup": group, "queue": "orders"}
    await call("previewSeek", **place, toBeginning="true")
    await call("previewSeek", 400, **place)
    await call("previewSeek", 404, **{**place, "queue": "unknown"}, toEnd="true")
    await call("listConsumers", **place)
    await call("listConsumers", 404, consumerGroup="unknown", queue="orders")
    await call("getGroupLag", **place)
    await call("getGroupLag", 404, consumerGroup="unknown", queue="orders")
    await call("seekConsumerGroup", **place, body={"timestamp": "2026-01-01T00:00:00Z"})
    await call("seekConsumerGroup", 400, **place, body={})
    await call("seekPartition", **place, partition="alice", body={"toBeginning": True})
    await call("seekPartition", 404, **place, partition="unknown")
    await call("refreshStatistics")
    await call("deleteConsumerGroupOfQueue", **place, deleteMetadata="true")
    await call("deleteConsumerGroup", consumerGroup=group)
    await call("deleteConsumerGroup", 400, consumerGroup=group, deleteMetadata="perhaps")


async def _system(tour: Tour) -> None:
    call = tour.call
    for name in (
        "getHealth",
        "getLiveness",
        "getReadiness",
        "getIdentity",
        "getContract",
        "getDocumentation",
        "getDashboard",
    ):
        await call(name)
    await call("getPopMaintenance")
    await call("getDocumentationAsset", asset="docs.js")
    await call("getDocumentationAsset", 404, asset="unknown")
    await call("getDashboardFile", file="app.js")
    await call("getDashboardFile", 404, file="unknown")
    await call("getMaintenance")
    await call("setMaintenance", body={"enabled": True})
    await call("push", 201, body={"items": [{"queue": "orders", "payload": "waits", "transactionId": "w"}]})
    await call("setMaintenance", body={"enabled": False})
    await call("setMaintenance", 400, body={})
    await call("setPopMaintenance", body={"enabled": True})
    await call("setPopMaintenance", body={"enabled": False})
    await call("notify", 403, body={"queue": "orders"})
    while (await call("getBuffers"))["spooling"]:
        await asyncio.sleep(0.05)


async def _simple_mq(tour: Tour) -> None:
    call = tour.call
    for name in ("getActuatorHealth", "getActuatorInfo", "listActuatorMetrics", "getActuatorPrometheus"):
        await call(name)
    settings = {"queueName": "mail", "queueSize": 5, "visibilityTimeout": 0, "maxDeliveries": 1}
    queue = (await call("createSimpleMqQueue", 201, body=settings))["queue_id"]
    await call("createSimpleMqQueue", 400, body={})
    await call("createSimpleMqQueue", 415, body=settings, headers={"Content-Type": "text/plain"})
    await call("enqueue", 201, queue_id=queue, body={"data": "first", "messageGroup": "a"})
    await call("enqueue", 201, queue_id=queue, body={"messages": [{"data": "second"}, {"data": "third"}]})
    await call("enqueue", 429, queue_id=queue, body={"messages": [{"data": "x"}] * 6})
    await call("enqueue", 404, queue_id="00000000-0000-4000-8000-000000000000", body={"data": "x"})
    await call("peek", queue_id=queue, limit=2)
    await call("peek", 400, queue_id=queue)
    await call("dequeue", queue_id=queue)
    await call("dequeue", queue_id=queue, limit=10)
    await call("dequeue", queue_id=queue, limit=10, wait=0.01)
    described = await call("getSimpleMqQueue", queue_id=queue)
    await call("listSimpleMqQueues", search="mail", limit=1)
    await call("listSimpleMqQueues", 400, cursor="x")
    dead = described["dlq_id"]
    assert dead is not None, "with one delivery and no time to hide, a second poll finds dead messages only"
    burial = (await call("peek", queue_id=dead, limit=1))["messages"][0]
    await call("requeueMessage", queue_id=dead, message_id=burial["message_id"])
    await call("requeueSimpleMqQueue", queue_id=dead)
    await call("requeueSimpleMqQueue", 409, queue_id=queue)
    await call("deleteSimpleMqQueue", 409, queue_id=dead)
    first, second, third = (await call("peek", queue_id=queue, limit=10))["messages"]
    await call("acknowledgeMessages", queue_id=queue, body={"message_ids": [first["message_id"], queue]})
    await call("acknowledgeMessage", queue_id=queue, message_id=second["message_id"])
    await call("acknowledgeMessage", 404, queue_id=queue, message_id=second["message_id"])
    place = {"queue_id": queue, "message_id": third["message_id"]}
    await call("extendVisibility", 409, **place, body={"visibilityTimeout": 60})
    slow = (await call("createSimpleMqQueue", 201, body={**settings, "visibilityTimeout": 60}))["queue_id"]
    await call("enqueue", 201, queue_id=slow, body={"data": "slow"})
    taken = (await call("dequeue", queue_id=slow))["message"]
    await call("extendVisibility", queue_id=slow, message_id=taken["message_id"], body={"visibilityTimeout": 120})
    for each in (slow, queue):
        await call("deleteSimpleMqQueue", queue_id=each)
    await call("deleteSimpleMqQueue", 404, queue_id=queue)


async def _sqs(tour: Tour) -> None:
    async def call(name: str, action: str, status: int = 200, body: Any = None, **parameters: Any) -> Any:
        # The name of the host is in the answer.
        headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Host": "localhost:6632"}
        return await tour.call(name, status, body=body, headers=headers, **parameters)

    created = await call("sqs", "CreateQueue", body={"QueueName": "orders", "Attributes": {"DelaySeconds": "0"}})
    await call("sqs", "GetQueueUrl", 400, body={"QueueName": "unknown"})
    await call("sqs", "Unknown", 400, body={})
    queue = created["QueueUrl"].partition("/sqs/")[2]
    await call("sqsOfQueue", "SendMessage", body={"MessageBody": "tea"}, queue=queue)
    await call("sqsOfQueue", "SendMessage", 400, body={"MessageBody": 1}, queue=queue)
    await tour.call("sqsQuery", Action="ListQueues")
    await tour.call("sqsQuery", 400, Action="Unknown")
    await tour.call("sqsQueryOfQueue", Action="ReceiveMessage", queue=queue)
    await tour.call("sqsQueryOfQueue", Action="DeleteQueue", queue=queue)
    await tour.call("sqsQueryOfQueue", 400, Action="DeleteQueue", queue=queue)


def unvisited(examples: Mapping[str, Any]) -> Sequence[str]:
    """Operations without a good answer, but for the WebSocket and what only instances may say."""
    return sorted(OPERATIONS.keys() - examples.keys() - {"subscribe", "notify"})
