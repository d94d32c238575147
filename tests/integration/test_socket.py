"""Consumption over a WebSocket, with a client of another maker."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from websockets.exceptions import ConnectionClosed

from queen.log.ids import parse_partition_id
from spec.guarantees import Level, checks
from tests.support.api import Api, ack_of
from tests.support.clock import eventually
from tests.support.processes import Server
from tests.support.sockets import Socket, data_of, open_socket

NO_LEASE = "00000000-0000-4000-8000-000000000000"
CURSORS = """
    SELECT count(*) FROM queen.partition_consumers AS c
    JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id JOIN queen.queues AS q ON q.id = g.queue_id
    WHERE q.name = $1 AND g.name = $2
"""


@pytest.fixture
async def socket(server: Server) -> AsyncIterator[Socket]:
    async with open_socket(server.port) as socket:
        yield socket


@checks("G-POP-1", "G-ACK-2", level=Level.LIVE)
async def test_a_batch_is_what_a_pop_answers_and_is_acked_as_a_whole(socket: Socket, api: Api, queue: str) -> None:
    await api.push(queue, {"n": 1}, "two", ids=["t1", "t2"])
    answer = await socket.subscribe(queue, consumerGroup="g")
    assert (answer["consumerGroup"], answer["credit"], answer["window"]) == ("g", 100, None)
    batch = await socket.expect("batch")
    assert (batch["batch"], data_of(batch), batch["consumerGroup"]) == (1, [{"n": 1}, "two"], "g")
    assert [message["transactionId"] for message in batch["messages"]] == ["t1", "t2"]
    assert batch["messages"][0]["leaseId"] == batch["leaseId"]
    assert (await api.pop(queue, consumerGroup="g")).messages == []
    answer = await socket.acked(batch)
    assert (answer["acked"], answer["dlq"], answer["refused"], answer["held"]) == (2, 0, [], 0)
    await api.push(queue, "next")
    assert data_of(await socket.expect("batch")) == ["next"], "of those before it nothing comes again"
    assert (await api.pop(queue, consumerGroup="g")).messages == []


@checks("G-WAIT-1", level=Level.LIVE)
async def test_messages_that_come_later_are_delivered_as_they_come(
    socket: Socket, workers: list[Api], queue: str
) -> None:
    await socket.subscribe(queue, consumerGroup="g")
    for turn in range(4):
        await workers[turn % 2].push(queue, turn)
        batch = await socket.expect("batch")
        assert (batch["batch"], data_of(batch)) == (turn + 1, [turn])
        await socket.acked(batch)


async def test_a_partition_or_a_namespace_is_subscribed_to(
    socket: Socket, server: Server, api: Api, queue: str
) -> None:
    await api.configure(f"{queue}-a", namespace=queue, task="t")
    await api.push(f"{queue}-a", 1, partition="p")
    await api.push(f"{queue}-a", 2, partition="q")
    await socket.subscribe(f"{queue}-a", partition="q")
    assert data_of(await socket.expect("batch")) == [2]
    async with open_socket(server.port) as other:
        await other.subscribe(namespace=queue, task="t", consumerGroup="g")
        assert sorted(data_of(await other.expect("batch"))) == [1, 2]


async def test_a_group_starts_where_its_subscription_says(
    socket: Socket, api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.push(queue, "old")
    await socket.subscribe(queue, consumerGroup="g", subscriptionMode="new")

    async def has_begun() -> bool:
        return bool(await database.fetchval(CURSORS, queue, "g"))

    await eventually(has_begun, "the group has a cursor")
    await api.push(queue, "new")
    assert data_of(await socket.expect("batch")) == ["new"]


async def test_single_messages_are_acked_with_the_fields_of_http(socket: Socket, api: Api, queue: str) -> None:
    await api.configure(queue, retryLimit=0)
    await api.push(queue, *range(4), ids=["a", "b", "c", "d"])
    await socket.subscribe(queue)
    messages = (await socket.expect("batch"))["messages"]
    items = [ack_of(messages[0]), ack_of(messages[1], "failed", error="boom"), ack_of(messages[2], leaseId=NO_LEASE)]
    answer = await socket.ask(type="ack", acknowledgments=items)
    assert (answer["type"], answer["acked"], answer["dlq"], answer["held"]) == ("acked", 2, 1, 2)
    [refused] = answer["refused"]
    assert (refused["index"], refused["transactionId"], refused["error"]) == (2, "c", "Invalid or expired lease")
    assert refused["partitionId"] == messages[2]["partitionId"]
    answer = await socket.ask(type="ack", acknowledgments=[ack_of(message) for message in messages[2:]])
    assert (answer["acked"], answer["held"]) == (2, 0)


@pytest.mark.parametrize(("acks", "first"), [(60, "pong"), (300, "error")])
async def test_acks_are_pipelined_up_to_a_bound(
    socket: Socket, api: Api, database: "asyncpg.Connection[Any]", queue: str, acks: int, first: str
) -> None:
    """Nothing is acked while the cursor is locked; what comes behind the acks is read if there is room for them."""
    await api.push(queue, *range(acks))
    await socket.subscribe(queue, credit=acks, batch=acks)
    messages = (await socket.expect("batch"))["messages"]
    part_id = parse_partition_id(messages[0]["partitionId"])
    async with database.transaction():
        await database.execute("SELECT FROM queen.partition_consumers WHERE part_id = $1 FOR UPDATE", part_id)
        for message in messages:
            await socket.send(type="ack", acknowledgments=[ack_of(message)])
        await socket.send(type="ping")
        assert (await socket.receive())["type"] == first
    socket.connection.transport.abort()  # to close in order would take reading all the answers


@checks("G-LEASE-5", "G-ACK-3", level=Level.LIVE)
async def test_failed_messages_are_delivered_again(socket: Socket, api: Api, queue: str) -> None:
    await api.configure(queue, retryLimit=1)
    await api.push(queue, 1, 2)
    await socket.subscribe(queue)
    for attempt in (1, 2):
        batch = await socket.expect("batch")
        assert [(m["data"], m["deliveryAttempt"]) for m in batch["messages"]] == [(1, attempt), (2, attempt)]
        answer = await socket.acked(batch, "failed", error="no")
        assert (answer["acked"], answer["dlq"], answer["held"]) == (2, 2 * (attempt - 1), 0)
    await api.push(queue, 3)
    assert data_of(await socket.expect("batch")) == [3], "what was given up does not come again"


@checks("G-STR-3", level=Level.LIVE)
async def test_credit_bounds_what_is_held(socket: Socket, api: Api, queue: str) -> None:
    await api.push_items([{"queue": queue, "partition": f"p{n % 5}", "payload": n} for n in range(50)])
    await socket.subscribe(queue, credit=7, batch=3)
    batches = []
    while len(socket.held) < 7:
        batches.append(await socket.expect("batch"))
    socket.credit = 9
    answer = await socket.ask(type="credit", messages=9)
    assert (answer["type"], answer["messages"], answer["held"]) == ("credit", 9, 7)
    while len(socket.held) < 9:
        batches.append(await socket.expect("batch"))
    assert (await socket.ask(type="credit", messages=2))["held"] == 9
    while len(socket.held) > 2:
        await socket.acked(batches.pop(0))
    socket.credit = 2
    for batch in batches:
        await socket.ack(batch)
    while (frame := await socket.receive())["type"] != "batch":
        pass
    assert len(frame["messages"]) <= 2


@checks("G-STR-3", level=Level.LIVE)
async def test_no_credit_pauses_the_delivery(socket: Socket, api: Api, queue: str) -> None:
    answer = await socket.subscribe(queue, credit=0)
    assert (answer["credit"], answer["batch"]) == (0, 200)
    await api.push(queue, 0)
    other = await api.pop(queue)
    assert other.data == [0], "it is not held for a socket without credit"
    await api.ack(other.messages)
    socket.credit = 5
    assert (await socket.ask(type="credit", messages=5))["held"] == 0
    await api.push(queue, 1)
    await socket.acked(await socket.expect("batch"))
    # While a pop is waiting already, with more than the new credit.
    socket.credit = 1
    assert (await socket.ask(type="credit", messages=1))["messages"] == 1
    await api.push(queue, 2, 3)
    batch = await socket.expect("batch")
    assert data_of(batch) == [2]
    await socket.acked(batch)
    assert data_of(await socket.expect("batch")) == [3]


@checks("G-LEASE-2", "G-STR-3", level=Level.LIVE)
async def test_what_is_not_acked_in_time_comes_again_and_frees_credit(socket: Socket, api: Api, queue: str) -> None:
    await api.push(queue, 1)
    await socket.subscribe(queue, credit=1, leaseSeconds=3)
    first = await socket.expect("batch")
    socket.held.clear()
    second = await socket.expect("batch")
    assert [m["deliveryAttempt"] for batch in (first, second) for m in batch["messages"]] == [1, 2]
    error = await socket.ask(type="ack", batch=first["batch"])
    assert (error["type"], error["problem"]["field"]) == ("error", "batch")
    assert (await socket.acked(second))["acked"] == 1


@checks("G-LEASE-4", level=Level.LIVE)
async def test_a_renewed_lease_lasts(socket: Socket, api: Api, queue: str) -> None:
    """Longer than one that began after it and was not renewed."""
    for partition in ("renewed", "expires"):
        await api.push(queue, partition, partition=partition)
    await socket.subscribe(queue, batch=1, leaseSeconds=3)
    batch, other = await socket.expect("batch"), await socket.expect("batch")
    assert (data_of(batch), data_of(other)) == (["renewed"], ["expires"])
    answer = await socket.ask(type="renew", leaseId=batch["leaseId"], seconds=300)
    assert (answer["type"], answer["success"], answer["error"]) == ("renewed", True, None)
    assert data_of(await socket.expect("batch")) == ["expires"]
    assert (await socket.acked(batch))["acked"] == 1
    answer = await socket.ask(type="renew", leaseId=batch["leaseId"])
    assert (answer["success"], answer["expiresAt"]) == (False, None)


async def test_a_socket_that_unsubscribes_may_still_ack_and_subscribe_again(
    socket: Socket, api: Api, queue: str
) -> None:
    await api.push(queue, 1)
    await socket.subscribe(queue, credit=1)
    batch = await socket.expect("batch")
    assert (await socket.ask(type="unsubscribe"))["held"] == 1
    await api.push(queue, 2)
    assert (await socket.acked(batch))["held"] == 0
    other = await api.pop(queue)
    assert other.data == [2], "it is not held for a socket that has unsubscribed"
    await api.ack(other.messages)
    await api.push(queue, 3)
    await socket.subscribe(queue)
    assert data_of(await socket.expect("batch")) == [3]


@checks("G-STR-5", level=Level.LIVE)
@pytest.mark.parametrize("how", ["close", "abort"])
async def test_messages_of_a_closed_socket_are_available(
    server: Server, workers: list[Api], queue: str, how: str
) -> None:
    await workers[0].push(queue, 1, 2, 3)
    async with open_socket(server.port) as socket:
        await socket.subscribe(queue, consumerGroup="g")
        batch = await socket.expect("batch")
        done = await socket.ask(type="ack", acknowledgments=[ack_of(batch["messages"][0])])
        assert done["held"] == 2
        waiting = asyncio.create_task(
            workers[1].pop(queue, consumerGroup="g", batch=9, wait=True, timeout=50_000, leaseSeconds=60)
        )
        assert (await workers[0].pop(queue, consumerGroup="g")).messages == []
        if how == "abort":
            socket.connection.transport.abort()
        else:
            await socket.connection.close()
        popped = await waiting
    assert [(m["data"], m["deliveryAttempt"]) for m in popped.messages] == [(2, 2), (3, 2)]


@checks("G-WAIT-4", level=Level.LIVE)
async def test_a_socket_that_ends_while_it_waits_takes_nothing(server: Server, api: Api, queue: str) -> None:
    for turn in range(5):
        async with open_socket(server.port) as socket:
            await socket.subscribe(queue, consumerGroup="g")
            if turn % 2:
                socket.connection.transport.abort()
        await api.push(queue, turn)
        async with asyncio.timeout(240):
            while not (popped := await api.pop(queue, consumerGroup="g", wait=True, timeout=500)).messages:
                pass
        assert popped.data == [turn]
        await api.ack(popped.messages)


_BAD: dict[str, str] = {
    "not json": "{",
    "no object": "[]",
    "no type": "{}",
    "unknown type": '{"type":"dance","ref":1}',
    "no place": '{"type":"subscribe","ref":1}',
    "bad queue": '{"type":"subscribe","queue":"","ref":1}',
    "bad credit": '{"type":"subscribe","queue":"q","credit":-1,"ref":1}',
    "too much credit": '{"type":"subscribe","queue":"q","credit":10001,"ref":1}',
    "bad batch": '{"type":"subscribe","queue":"q","batch":0,"ref":1}',
    "bad window": '{"type":"subscribe","queue":"q","window":{},"ref":1}',
    "window above credit": '{"type":"subscribe","queue":"q","credit":5,"window":{"messages":6},"ref":1}',
    "bad time": '{"type":"subscribe","queue":"q","subscriptionFrom":"yesterday","ref":1}',
    "empty ack": '{"type":"ack","ref":1}',
    "unknown batch": '{"type":"ack","batch":7,"ref":1}',
    "ack without ids": '{"type":"ack","acknowledgments":[{}],"ref":1}',
    "renew without lease": '{"type":"renew","ref":1}',
    "renew for too long": '{"type":"renew","leaseId":"0190a0a0-0000-7000-8000-00000000dead","seconds":604801,"ref":1}',
    "credit without number": '{"type":"credit","ref":1}',
    "surrogate": '{"type":"\\ud800"}',
    "deep": "[" * 100_000,
}


@checks("G-ISO-3", level=Level.LIVE)
@pytest.mark.parametrize("name", _BAD)
async def test_a_bad_frame_is_answered_and_the_socket_stays(
    server: Server, socket: Socket, api: Api, queue: str, name: str
) -> None:
    workers = server.workers()
    await socket.connection.send(_BAD[name])
    error = await socket.expect("error")
    problem = error["problem"]
    assert (problem["status"], problem["title"], problem["code"]) == (400, "Bad request", "bad_request")
    assert problem["detail"] == problem["error"]
    assert error["ref"] == (1 if '"ref":1' in _BAD[name] else None)
    await api.push(queue, 1)
    await socket.subscribe(queue)
    assert data_of(await socket.expect("batch")) == [1]
    assert server.workers() == workers


async def test_a_binary_frame_is_refused(socket: Socket) -> None:
    await socket.connection.send(b"\x00\xff")
    assert "text" in (await socket.expect("error"))["problem"]["detail"]
    assert (await socket.ask(type="ping"))["type"] == "pong"


async def test_a_second_subscription_is_refused(socket: Socket, queue: str) -> None:
    await socket.subscribe(queue)
    error = await socket.ask(type="subscribe", queue=queue)
    assert "already" in error["problem"]["detail"]


async def test_a_frame_that_is_too_large_ends_the_socket_only(server: Server, api: Api, queue: str) -> None:
    workers = server.workers()
    async with open_socket(server.port) as socket:
        await socket.connection.send(json.dumps({"type": "ping", "x": "y" * (1 << 20)}))
        with pytest.raises(ConnectionClosed) as closed:
            await socket.receive()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009
    await api.push(queue, 1)
    assert server.workers() == workers


async def test_protocols_are_negotiated(server: Server) -> None:
    async with open_socket(server.port, subprotocols=["other", "queen.v1"]) as socket:
        assert socket.connection.subprotocol == "queen.v1"
    with pytest.raises(ConnectionClosed) as closed:
        async with open_socket(server.port, subprotocols=["queen.v9"]):
            pass
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, "queen.v1" in closed.value.rcvd.reason) == (1003, True)


async def test_a_plain_request_is_told_to_upgrade(api: Api) -> None:
    response = await api.http.get("/api/v1/subscribe")
    assert (response.status_code, response.headers["upgrade"]) == (426, "websocket")
    assert response.json()["code"] == "upgrade_required"


async def test_acks_of_an_earlier_socket_are_taken_by_another(server: Server, api: Api, queue: str) -> None:
    await api.push(queue, 1)
    popped = await api.pop(queue)
    async with open_socket(server.port) as socket:
        answer = await socket.ask(type="ack", acknowledgments=[ack_of(popped.messages[0])])
        assert (answer["acked"], answer["held"]) == (1, 0)


# ---------------------------------------------------------------- windows


@checks("G-STR-4", level=Level.LIVE)
async def test_a_window_by_number_is_full(socket: Socket, api: Api, queue: str) -> None:
    await api.push(queue, *range(7), partition="a")
    await api.push(queue, *range(3), partition="b")
    await socket.subscribe(queue, window={"messages": 3})
    windows: list[Any] = []
    while len(windows) < 3:
        frame = await socket.receive()
        if frame["type"] == "batch":
            windows.append(frame)
            await socket.ack(frame)
    by_partition = {p: [data_of(w) for w in windows if w["partition"] == p] for p in "ab"}
    assert by_partition == {"a": [[0, 1, 2], [3, 4, 5]], "b": [[0, 1, 2]]}
    assert all(window["window"] == {"messages": 3, "closedBy": "messages"} for window in windows)


@checks("G-STR-4", "G-LEASE-5", level=Level.LIVE)
async def test_a_window_waits_until_it_is_full(socket: Socket, api: Api, queue: str) -> None:
    await socket.subscribe(queue, window={"messages": 4}, consumerGroup="g")
    await api.push(queue, 0, 1)
    await api.push(queue, *range(4), partition="full")
    assert (await socket.expect("batch"))["partition"] == "full", "the pop saw both partitions"
    await api.push(queue, 2, 3, 4)
    window = await socket.expect("batch")
    assert [(m["data"], m["deliveryAttempt"]) for m in window["messages"]] == [(n, 1) for n in range(4)]
    assert (await socket.acked(window))["acked"] == 4
    await api.push(queue, 5, 6, 7)
    assert data_of(await socket.expect("batch")) == [4, 5, 6, 7]


@checks("G-STR-4", level=Level.LIVE)
async def test_a_window_by_time_holds_what_came_in_its_slot(socket: Socket, api: Api, queue: str) -> None:
    await socket.subscribe(queue, window={"seconds": 1})
    pushed: list[int] = []

    async def produce() -> None:
        for n in range(25):
            await api.push(queue, n)
            pushed.append(n)
            await asyncio.sleep(0.1)  # the rate of the load: over several windows

    producing = asyncio.create_task(produce())
    seen: list[Any] = []
    slots: list[str] = []
    while len(seen) < 25:
        frame = await socket.receive()
        if frame["type"] != "batch":
            continue
        window = frame["window"]
        stamps = [message["createdAt"] for message in frame["messages"]]
        assert all(window["start"][:19] <= stamp[:19] < window["end"][:19] for stamp in stamps)
        assert (window["messages"], window["closedBy"]) == (len(stamps), "time")
        seen += data_of(frame)
        slots.append(window["start"])
        await socket.ack(frame)
    await producing
    assert seen == list(range(25))
    assert len(set(slots)) == len(slots), "a slot came in two windows"
    assert slots == sorted(slots)
    assert len(slots) > 1


@checks("G-STR-4", "G-STR-5", level=Level.LIVE)
async def test_windows_of_competing_sockets_are_disjoint_and_complete(server: Server, api: Api, queue: str) -> None:
    partitions, each = [f"p{n}" for n in range(3)], 40
    windows: list[Any] = []

    async def consume() -> None:
        async with open_socket(server.port) as socket:
            await socket.subscribe(queue, window={"messages": 5}, credit=10, consumerGroup="g")
            while sum(len(window["messages"]) for window in windows) < each * len(partitions):
                try:
                    frame = await socket.receive(1)
                except TimeoutError:
                    continue
                if frame["type"] == "batch":
                    windows.append(frame)
                    await socket.ack(frame)

    consumers = [asyncio.create_task(consume()) for _ in range(3)]
    for n in range(each):
        await api.push_items([{"queue": queue, "partition": p, "payload": n} for p in partitions])
    async with asyncio.timeout(240):
        await asyncio.gather(*consumers)
    for partition in partitions:
        mine = sorted(data_of(window) for window in windows if window["partition"] == partition)
        assert mine == [list(range(first, first + 5)) for first in range(0, each, 5)]
