"""What a program does with the published client `queen-mq`, whose package is named `queen` like ours.

Runs in an interpreter of its own: `python -I client_scenarios.py SCENARIO URL QUEUE`; the last line that it prints is
the outcome, as JSON.
"""

import asyncio
import base64
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import queen
from queen import Queen

Client = Any


async def push_and_pop(client: Client, queue: str) -> object:
    """Pushes one by one and as a list, to two partitions; pops and acks."""
    await client.queue(queue).create()
    statuses: list[Any] = []
    result = await client.queue(queue).push({"data": {"n": 0}})
    statuses += [item["status"] for item in result]
    result = await client.queue(queue).push([{"data": {"n": n}} for n in range(1, 5)])
    statuses += [item["status"] for item in result]
    await client.queue(queue).partition("side").push([{"data": {"n": n}} for n in range(5, 8)])
    one = await client.queue(queue).batch(1).pop()
    first_ack = await client.ack(one[0], True)
    rest = []
    while messages := await client.queue(queue).wait(False).pop():
        rest += messages
        await client.ack(messages, True)
    side = [message["data"]["n"] for message in one + rest if message["partition"] == "side"]
    main = [message["data"]["n"] for message in one + rest if message["partition"] == "Default"]
    again = await client.queue(queue).wait(False).pop()
    return {"statuses": statuses, "main": main, "side": side, "first_ack": first_ack, "again": again}


async def pop_of_a_partition_and_commit_on_delivery(client: Client, queue: str) -> object:
    await client.queue(queue).partition("a/b c").push([{"data": n} for n in range(3)])
    messages = await client.queue(queue).partition("a/b c").batch(2).commit_on_delivery().wait(False).pop()
    rest = await client.queue(queue).partition("a/b c").batch(10).wait(False).pop()
    return [[message["data"] for message in messages], [message["data"] for message in rest]]


async def pop_that_waits(client: Client, queue: str) -> object:
    """A long poll that a later push ends, and one that its timeout ends."""
    waiting = asyncio.create_task(client.queue(queue).group("g").timeout_millis(20_000).pop())
    empty = await client.queue(f"{queue}-empty").timeout_millis(200).pop()
    await client.queue(queue).push({"data": "x"})
    return {"got": [message["data"] for message in await waiting], "empty": empty}


async def consume_batches(client: Client, queue: str) -> object:
    """The default consumer: a handler that gets lists."""
    number, seen, sizes = 500, [], []
    for partition in range(5):
        await (
            client.queue(queue).partition(f"p{partition}").push([{"data": [partition, n]} for n in range(number // 5)])
        )

    async def handle(messages: list[Any]) -> None:
        sizes.append(len(messages))
        seen.extend(message["data"] for message in messages)

    consumer = client.queue(queue).group("g").subscription_mode("all").concurrency(4).idle_millis(500)
    await consumer.timeout_millis(300).consume(handle)
    left = await client.queue(queue).group("g").wait(False).pop()
    return {"seen": seen, "largest": max(sizes), "left": len(left)}


async def consume_each(client: Client, queue: str) -> object:
    """One message a call, one ack each."""
    await client.queue(queue).push([{"data": n} for n in range(30)])
    seen = []

    async def handle(message: Any) -> None:
        seen.append(message["data"])

    await client.queue(queue).batch(7).limit(30).timeout_millis(300).each().consume(handle)
    return {"seen": seen, "left": len(await client.queue(queue).wait(False).pop())}


async def consume_until_dead(client: Client, queue: str) -> object:
    """A handler that always fails for one message: how often it is delivered, and what comes after."""
    await client.queue(queue).config({"retry_limit": 2}).create()
    await client.queue(queue).push([{"data": "poison"}, {"data": "good"}])
    seen: list[Any] = []

    async def handle(message: Any) -> None:
        seen.append([message["data"], message["deliveryAttempt"]])
        if message["data"] == "poison":
            raise ValueError("cannot be handled")

    consumer = client.queue(queue).batch(1).idle_millis(1000).timeout_millis(500).each()
    await consumer.consume(handle)
    return seen


async def nack_until_dead(client: Client, queue: str) -> object:
    await client.queue(queue).config({"retry_limit": 1}).create()
    await client.queue(queue).push({"data": "poison"})
    deliveries = 0
    while messages := await client.queue(queue).timeout_millis(500).pop():
        deliveries += 1
        await client.ack(messages[0], False, {"error": f"failure {deliveries}"})
    return deliveries


async def renew(client: Client, queue: str) -> object:
    """A lease of one second, renewed by hand and by the consumer, while the work takes longer."""
    await client.queue(queue).config({"lease_time": 1}).create()
    await client.queue(queue).push({"data": 1})
    (message,) = await client.queue(queue).pop()
    renewed = await client.renew(message)
    # The work: longer than the lease, which cannot be seen to end while it is renewed.
    await asyncio.sleep(1.3)
    meanwhile = await client.queue(queue).wait(False).pop()
    acked = await client.ack(message, True)
    late = await client.renew(message)
    unknown = await client.renew("00000000-0000-4000-8000-000000000000")

    await client.queue(queue).push({"data": 2})
    seen = []

    async def handle(messages: list[Any]) -> None:
        seen.extend(m["data"] for m in messages)
        await asyncio.sleep(1.5)  # the work, longer than the lease

    await client.queue(queue).renew_lease(True, 300).limit(1).timeout_millis(500).consume(handle)
    left = await client.queue(queue).wait(False).pop()
    return {
        "renewed": renewed["success"], "meanwhile": meanwhile, "acked": acked["success"], "late": late["success"],
        "unknown": unknown["success"], "seen": seen, "left": left,
    }  # fmt: skip


async def transact(client: Client, queue: str) -> object:
    """Input to output in one transaction; a second commit of the same fails and makes nothing."""
    await client.queue(queue).push({"data": 1})
    (message,) = await client.queue(queue).pop()

    def transaction() -> Any:
        return client.transaction().ack(message).queue(f"{queue}-out").push([{"data": {"from": message["data"]}}])

    result = await transaction().commit()
    try:
        await transaction().commit()
        second = "committed"
    except Exception as error:
        second = str(error)
    out = await client.queue(f"{queue}-out").batch(10).wait(False).pop()
    left = await client.queue(queue).wait(False).pop()
    return {"success": result["success"], "second": second, "out": [m["data"] for m in out], "left": left}


async def push_buffered(client: Client, queue: str) -> object:
    for n in range(250):
        await client.queue(queue).buffer({"message_count": 100, "time_millis": 50}).push({"data": n})
    await client.flush_all_buffers()
    seen: list[Any] = []
    while messages := await client.queue(queue).batch(100).wait(False).pop():
        seen += [message["data"] for message in messages]
        await client.ack(messages, True)
    return seen


async def push_duplicates(client: Client, queue: str) -> object:
    calls: list[Any] = []

    async def on_duplicate(items: Any, _error: Any) -> None:
        calls.append(["duplicate", [item["transactionId"] for item in items]])

    async def on_success(items: Any) -> None:
        calls.append(["success", [item["transactionId"] for item in items]])

    for data in ("first", "again"):
        pushing = client.queue(queue).push([{"data": data, "transactionId": "order-1"}])
        await pushing.on_success(on_success).on_duplicate(on_duplicate)
    messages = await client.queue(queue).batch(10).wait(False).pop()
    return {"calls": calls, "data": [message["data"] for message in messages]}


async def delete(client: Client, queue: str) -> object:
    await client.queue(queue).delete()
    await client.queue(queue).create()
    await client.queue(queue).push({"data": "old"})
    await client.queue(queue).delete()
    gone = await client.queue(queue).wait(False).pop()
    await client.queue(queue).push({"data": "new"})
    return {"gone": gone, "data": [message["data"] for message in await client.queue(queue).wait(False).pop()]}


async def names(client: Client, queue: str) -> object:
    """Names that the client puts into the path as they are."""
    found = {}
    for name in ("a b", "a/b", "it's", "größe", "注文", "📬", "a.b.c"):
        full = f"{queue}/{name}"
        await client.queue(full).partition(name).push({"data": name})
        messages = await client.queue(full).partition(name).group(name).subscription_mode("all").wait(False).pop()
        acked = await client.ack(messages, True, {"group": name})
        found[name] = [[message["data"] for message in messages], acked["success"]]
        await client.queue(full).delete()
    return found


async def consume_through_an_outage(client: Client, queue: str) -> object:
    """A consumer whose first ack comes when the database is down, for so long that all tries of the ack fail.

    The one who runs this says when that is. The message comes again when its lease is over.
    """
    await client.queue(queue).config({"leaseTime": 60}).create()
    await client.queue(queue).push([{"data": "before"}])
    seen = []

    async def handle(message: Any) -> None:
        seen.append(message["data"])
        if len(seen) == 1:
            await client.queue(queue).push([{"data": "pushed by the client"}])
            print("handling", flush=True)
            await asyncio.to_thread(sys.stdin.readline)

    await client.queue(queue).group("g").subscription_mode("all").batch(1).limit(4).each().consume(handle)
    left = await client.queue(queue).group("g").wait(False).pop()
    return {"seen": seen, "left": len(left)}


async def administer(client: Client, queue: str) -> object:
    """The methods of the client's administration, each on something that is there."""
    admin, group = client.admin, f"g/{queue}"
    await client.queue(queue).namespace(queue).task("t").create()
    await client.queue(queue).push([{"data": n, "transactionId": f"t/{n}"} for n in range(4)])
    first, second = await client.queue(queue).group(group).subscription_mode("all").batch(2).wait(False).pop()

    async def trace(message: Any) -> None:
        await message["trace"]({"traceName": queue, "data": {"text": "seen"}})

    await client.queue(queue).group("tracer").subscription_mode("all").batch(1).limit(1).consume(trace)
    await client.ack(first, True, {"group": group})
    listed = (await admin.list_messages(queue=queue))["messages"]
    found: dict[str, Any] = {
        "overview": (await admin.get_overview())["messages"]["total"] >= 4,
        "namespaces": [
            each["queues"] for each in (await admin.get_namespaces())["namespaces"] if each["namespace"] == queue
        ],
        "tasks": "t" in [each["task"] for each in (await admin.get_tasks())["tasks"]],
        "queues": queue in [each["name"] for each in (await admin.list_queues(namespace=queue))["queues"]],
        "queue": (await admin.get_queue(queue))["totals"]["total"],
        "depth": (await admin.get_queue_depth(queue, group))["pending"],
        "partitions": [each["name"] for each in (await admin.get_partitions(queue=queue))["partitions"]],
        "messages": [each["data"] for each in listed],
        "message": (await admin.get_message(first["partitionId"], first["transactionId"]))["status"],
        "traces": [each["data"] for each in (await admin.get_traces_by_name(queue))["traces"]],
        "trace_names": queue in [each["trace_name"] for each in (await admin.get_trace_names())["trace_names"]],
        "own_traces": len((await admin.get_traces_for_message(first["partitionId"], first["transactionId"]))["traces"]),
        "status": (await admin.get_status(queue=queue))["messages"]["total"],
        "queue_stats": len((await admin.get_queue_stats(namespace=queue))["queues"]),
        "queue_detail": (await admin.get_queue_detail(queue))["queue"]["name"] == queue,
        "analytics": len((await admin.get_analytics(queue=queue))["dataPoints"]) > 0,
        "groups": group in [each["name"] for each in await admin.list_consumer_groups()],
        "group": [each["offsetLag"] for each in (await admin.get_consumer_group(group))[queue]["partitions"]],
        "lagging": isinstance(await admin.get_lagging_consumers(0), list),
        "refreshed": (await admin.refresh_consumer_stats())["queue"]["queuesUpdated"] >= 1,
        "health": (await admin.health())["status"],
        "metrics": (await admin.metrics())["requests"]["total"] > 0,
        "system": "replicas" in await admin.get_system_metrics(),
        "workers": "summary" in await admin.get_worker_metrics(),
    }
    await admin.delete_message(second["partitionId"], second["transactionId"])
    found["sought"] = (await admin.seek_consumer_group(group, queue, {"timestamp": "2020-01-01T00:00:00Z"}))[
        "partitionsUpdated"
    ]
    again = await client.queue(queue).group(group).batch(9).wait(False).pop()
    found["again"] = [message["data"] for message in again]
    found["timestamp"] = (await client.update_consumer_group_timestamp(group, "2024-01-01T00:00:00Z"))["rowsUpdated"]
    found["group_of_queue"] = (await admin.delete_consumer_group_for_queue(group, queue, True))["deletedPartitions"]
    found["deleted_group"] = (await client.delete_consumer_group(group))["success"]
    return found


async def dead_letters(client: Client, queue: str) -> object:
    """A poisonous message: looked at among the dead letters, and retried."""
    await client.queue(queue).config({"retry_limit": 0}).create()
    await client.queue(queue).push([{"data": "poison", "transactionId": "p/1"}, {"data": "good"}])
    (message,) = await client.queue(queue).batch(1).wait(False).pop()
    await client.ack(message, False, {"error": "cannot be handled"})
    letters = await client.queue(queue).dlq().limit(10).get()
    elsewhere = await client.queue(queue).partition("other").dlq().get()
    retried = await client.admin.retry_message(message["partitionId"], message["transactionId"])
    rest = await client.queue(queue).batch(9).wait(False).pop()
    return {
        "letters": [[each["data"], each["errorMessage"]] for each in letters["messages"]],
        "total": letters["total"],
        "elsewhere": elsewhere["total"],
        "retried": retried["result"],
        "rest": [each["data"] for each in rest],
        "left": (await client.queue(queue).dlq().get())["total"],
    }


async def options_of_pops(client: Client, queue: str) -> object:
    """Everything that a pop can be asked with the builder."""
    await client.queue(queue).namespace(f"ns/{queue}").task("t").create()
    for partition in ("a", "b", "c"):
        await client.queue(queue).partition(partition).push([{"data": f"{partition}{n}"} for n in range(2)])
    by_label = (
        await client.queue()
        .namespace(f"ns/{queue}")
        .task("t")
        .group("label")
        .subscription_mode("all")
        .wait(False)
        .pop()
    )
    plain = client.queue(queue).group("plain").autopilot(False).subscription_from("2020-01-01T00:00:00Z").wait(False)
    one, two = await plain.pop(), await plain.partitions(2).batch(10).pop()
    result = await client.queue(queue).group("sized").subscription_mode("all").wait(False).pop_result()
    late = await client.queue(queue).group("late").subscription_from("now").wait(False).pop()
    return {
        "label": len(by_label),
        "one": len(one),
        "two": [len(two), len({message["partition"] for message in two})],
        "sized": [len(result.messages), result.autopilot is not None],
        "late": late,
    }


async def callbacks(client: Client, queue: str) -> object:
    """A consumer that acks by itself, by what becomes of its handler."""
    await client.queue(queue).config({"retry_limit": 0}).create()
    await client.queue(queue).push([{"data": n} for n in range(4)])
    calls: list[Any] = []

    async def handle(message: Any) -> None:
        if message["data"] == 2:
            raise ValueError("not two")

    async def done(message: Any, _result: Any) -> None:
        calls.append(["done", message["data"]])
        await client.ack(message, True)

    async def failed(message: Any, error: Exception) -> None:
        calls.append(["failed", message["data"], str(error)])
        await client.ack(message, False, {"error": str(error)})

    consumer = client.queue(queue).auto_ack(False).batch(1).limit(4).timeout_millis(300).each().consume(handle)
    await consumer.on_success(done).on_error(failed)
    letters = client.queue(queue).dlq()
    first = await letters.limit(10).offset(0).from_("2020-01-01T00:00:00Z").to("2999-01-01T00:00:00Z").get()
    second = await client.queue(queue).dlq("__QUEUE_MODE__").offset(1).get()
    return {"calls": calls, "letters": [m["data"] for m in first["messages"]], "beyond": second["messages"]}


async def buffers(client: Client, queue: str) -> object:
    """What waits in the client, and goes when it is told to."""
    place = client.queue(queue).buffer({"message_count": 100, "time_millis": 60_000})
    await place.push({"data": 1})
    before = client.get_buffer_stats()
    await place.flush_buffer()
    after = client.get_buffer_stats()
    got = await client.queue(queue).wait(False).pop()
    return {
        "before": before["totalBufferedMessages"],
        "after": after["totalBufferedMessages"],
        "data": [message["data"] for message in got],
    }


async def transact_partitions(client: Client, queue: str) -> object:
    """A transaction with several outputs, and one that dead-letters its input."""
    await client.queue(queue).push([{"data": n} for n in range(2)])
    first, second = await client.queue(queue).batch(2).wait(False).pop()
    transaction = client.transaction().ack(first).ack(second, "dlq")
    out = transaction.queue(f"{queue}-out").partition("x").push([{"data": "x"}])
    await out.queue(f"{queue}-out").partition("y").push({"data": "y"}).commit()
    got = await client.queue(f"{queue}-out").batch(9).partitions(9).wait(False).pop()
    letters = await client.queue(queue).dlq().get()
    return {
        "out": sorted([message["partition"], message["data"]] for message in got),
        "dead": [message["data"] for message in letters["messages"]],
    }


async def timers(client: Client, queue: str) -> object:
    """Every method of the timers: set, looked at, replaced, cancelled, fired."""
    first = await client.timers.schedule(queue, "order/1", {"n": 1}, delay_ms=3_600_000, partition="p")
    peeked = await client.timers.peek(queue, "order/1")
    again = await client.timers.reschedule(queue, "order/1", {"n": 2}, delay=timedelta(milliseconds=50))
    builder = client.timer(queue).key("order/2").payload("text").after(timedelta(hours=1)).partition("p").txn("t2")
    built = await builder.schedule()
    rebuilt = await client.timers.timer(queue).key("order/2").payload([1]).after_ms(3_600_000).reschedule()
    listed = await client.timers.list(queue, limit=1, after="order/1")
    cancelled = await builder.cancel()
    absent = await client.timers.cancel(queue, "order/2", txn="t2")
    mixed = await client.timers.batch(
        [client.timers.op.schedule(queue, "a", 1, delay_ms=-1), client.timers.op.cancel(queue, "none", txn="x")]
    )
    got = []
    while len(got) < 2:
        got += await client.queue(queue).batch(10).timeout_millis(20_000).pop()
    try:
        await client.timers.schedule("q" * 256, "k", 1, delay_ms=1)
        refused = None
    except queen.TimerError as error:
        refused = [error.status, error.code]
    return {
        "first": [bool(first), first["status"], first["messageId"]],
        "peeked": [bool(peeked), base64.b64decode(peeked["payload"]).decode(), peeked["txn"] == first["txn"]],
        "missed": bool(await client.timers.peek(queue, "none")),
        "again": [again["status"], again["deliverAt"] < first["deliverAt"], built["status"], rebuilt["status"]],
        "listed": [[row["timerKey"] for row in listed["rows"]], listed["truncated"]],
        "gone": [
            cancelled["status"],
            cancelled["txn"] == rebuilt["txn"],
            bool(absent),
            absent["status"],
            absent["txn"],
        ],
        "mixed": [[bool(result), result["status"]] for result in mixed],
        "got": sorted([str(each["data"]), each["transactionId"] == again["txn"]] for each in got),
        "left": await client.timers.list_all(queue),
        "refused": refused,
    }


SCENARIOS: dict[str, Callable[[Client, str], Awaitable[object]]] = {
    scenario.__name__: scenario
    for scenario in (
        push_and_pop, pop_of_a_partition_and_commit_on_delivery, pop_that_waits, consume_batches, consume_each,
        consume_until_dead, nack_until_dead, renew, transact, push_buffered, push_duplicates, delete, names,
        consume_through_an_outage, administer, dead_letters, options_of_pops, callbacks, buffers, transact_partitions,
        timers,
    )
}  # fmt: skip


async def main(scenario: str, url: str, queue: str, token: str | None = None) -> None:
    async with Queen(url, bearer_token=token) as client:
        outcome = await SCENARIOS[scenario](client, queue)
    print(json.dumps(outcome))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
