"""Calls whose answer from PostgreSQL is lost.

No message of a pop is lost or withheld for a whole lease. No ack is answered as refused because of what it did itself.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import httpx
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, Message, ack_of, open_client
from tests.support.chaos.proxy import Proxy, Streams
from tests.support.clock import eventually
from tests.support.nightly import mostly_at_night
from tests.support.outage import fragile_postgres
from tests.support.processes import PATIENCE_S, open_folder
from tests.support.servers import serving_database

_ACKED = "SELECT max(acked) FROM queen.partition_consumers"
_LEASED = "SELECT count(lease) FROM queen.partition_consumers"
_WAITS_FOR_LOCK = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"


@asynccontextmanager
async def lossy(
    **environment: str,
) -> AsyncIterator[tuple[httpx.AsyncClient, Proxy, "asyncpg.Connection[asyncpg.Record]"]]:
    """A client of a server, the proxy between that and its PostgreSQL, and a connection that does not go through it.

    The server has one connection for messages: on another one, a statement might not be prepared yet, and its
    preparation needs an answer.
    """
    environment = {"SIDECAR_POOL_SIZE": "1", **environment}
    with open_folder() as folder, fragile_postgres(folder) as postgres:
        socket = postgres.dsn.split("host=")[1].replace("%2F", "/")

        async def open_far() -> Streams:
            return await asyncio.open_unix_connection(f"{socket}/.s.PGSQL.5432")

        proxy = Proxy(open_far, 1)
        await proxy.start()
        dsn = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"
        serving = serving_database(dsn, folder, "--workers", "1", **environment)
        server = await asyncio.to_thread(serving.__enter__)
        try:
            connection = await asyncpg.connect(postgres.dsn)
            async with open_client(server.port) as http:
                yield http, proxy, connection
            await connection.close()
        finally:
            await asyncio.to_thread(serving.__exit__, None, None, None)
            await proxy.stop()


async def changes(connection: "asyncpg.Connection[asyncpg.Record]", question: str, before: int) -> None:
    """Returns when PostgreSQL answers the question in another way."""
    async with asyncio.timeout(PATIENCE_S):
        while await connection.fetchval(question) == before:
            await asyncio.sleep(0.02)


def is_unknown(answer: httpx.Response) -> bool:
    return (answer.status_code, answer.json()["code"]) == (503, "outcome_unknown")


async def are_parked(http: httpx.AsyncClient, number: int) -> bool:
    return f"\nqueen_waiters {number}.0\n" in (await http.get("/metrics/prometheus")).text


async def popped(http: httpx.AsyncClient, **parameters: str) -> list[object]:
    """What a pop gets as soon as it gets something."""
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await http.get("/api/v1/pop/queue/q", params=parameters)).status_code != 200:
            await asyncio.sleep(0.05)
    return [message["data"] for message in answer.json()["messages"]]


@checks("G-ACK-3", "G-ORD-2", level=Level.FAULTS)
@pytest.mark.parametrize("waits", mostly_at_night([False, True], [True]))
async def test_pop_with_auto_ack_whose_answer_is_lost_is_not_repeated(waits: bool) -> None:
    """Its consumer is told that the outcome is unknown: no other consumer gets those messages."""
    async with lossy() as (http, proxy, connection):
        api = Api(http)
        await api.push("q", 1, 2, 3)
        assert (await api.pop("q", autoAck=True)).data == [1]
        before = await connection.fetchval(_ACKED)
        proxy.swallow("back")
        wait = {"wait": "true", "timeout": "30000"} if waits else {}
        popping = asyncio.create_task(http.get("/api/v1/pop/queue/q", params={"autoAck": "true", **wait}))
        await changes(connection, _ACKED, before)
        proxy.reset()
        proxy.deliver("back")
        assert is_unknown(await popping)
        assert await popped(http, autoAck="true") == [3]


@checks("G-GRP-1", level=Level.FAULTS)
async def test_auto_ack_long_poll_learns_that_the_push_that_served_it_got_no_answer() -> None:
    """The push is found in the log. Which message the long poll has taken is unknown: it does not wait for more."""
    # No check after a back-off meets the lost answers first: the push would need another connection, and prepare there.
    slow = {"POP_WAIT_INITIAL_INTERVAL_MS": "60000", "POP_WAIT_MAX_INTERVAL_MS": "60000"}
    async with lossy(**slow) as (http, proxy, connection):
        api = Api(http)
        await api.configure("q")

        async def waits() -> "asyncio.Task[httpx.Response]":
            parameters = {"autoAck": "true", "wait": "true", "timeout": "30000"}
            # The figure is up to a second old: without the first wait it may be that of the long poll before.
            await eventually(lambda: are_parked(http, 0), "no parked long poll")
            popping = asyncio.create_task(http.get("/api/v1/pop/queue/q", params=parameters))
            await eventually(lambda: are_parked(http, 1), "a parked long poll")
            return popping

        # From the second one on, the statements are prepared.
        for payload in (1, 2):
            popping = await waits()
            await api.push("q", payload)
            assert [each["data"] for each in (await popping).json()["messages"]] == [payload]
        popping = await waits()
        async with lost_answer(proxy, connection, _ACKED):
            pushing = asyncio.create_task(api.push("q", 3))
        assert is_unknown(await popping)
        await pushing
        await api.push("q", 4)
        assert await popped(http, autoAck="true") == [4]


@checks("G-LEASE-2", level=Level.FAULTS)
@pytest.mark.parametrize("wait", mostly_at_night([{}, {"wait": "true", "timeout": "4000"}], [{}]))
async def test_a_lease_whose_answer_was_lost_is_released_when_postgresql_answers_again(wait: dict[str, str]) -> None:
    """Also if the consumer was answered long before: no pop asks for it any more, and it would last an hour."""
    async with lossy() as (http, proxy, connection):
        api = Api(http)
        await api.configure("q", leaseTime=3600)
        await api.push("q", 1, 2)
        # From here on the pop is the only thing that has to be asked.
        assert (await api.pop("q", autoAck=True)).data == [1]
        proxy.swallow("back")
        popping = asyncio.create_task(http.get("/api/v1/pop/queue/q", params=wait))
        await changes(connection, _LEASED, 0)
        assert (await popping).status_code == (204 if wait else 503)
        proxy.reset()
        proxy.deliver("back")
        await changes(connection, _LEASED, 1)
        assert await popped(http) == [2]


@asynccontextmanager
async def lost_answer(
    proxy: Proxy, connection: "asyncpg.Connection[asyncpg.Record]", question: str
) -> AsyncIterator[None]:
    """What PostgreSQL answers meanwhile is lost; ends when it answers the question in another way."""
    before = await connection.fetchval(question)
    proxy.swallow("back")
    yield
    await changes(connection, question, before)
    proxy.reset()
    proxy.deliver("back")


async def taken(api: Api, *payloads: int) -> list[Message]:
    """Messages, popped. Their ack is one call: queue, partition and group are known, its statements prepared."""
    await api.push("q", -2, -1)
    [message] = (await api.pop("q")).messages
    await api.ack([message])
    await api.ack([message], leaseId=None)
    [message] = (await api.pop("q")).messages
    assert (await api.transact([{"type": "ack", **ack_of(message)}]))["success"] is True
    await api.push("q", *payloads)
    return (await api.pop("q", batch=len(payloads))).messages


@pytest.mark.nightly
@checks("G-ACK-7", "G-LEASE-2", level=Level.FAULTS)
@pytest.mark.parametrize("status", ["failed", "retry"])
async def test_an_ack_that_sent_a_message_back_is_not_answered_as_refused_when_the_answer_is_lost(status: str) -> None:
    """It was given back, so the consumer that has it now is the only one."""
    async with lossy() as (http, proxy, connection):
        api = Api(http)
        await api.configure("q", retryLimit=3)
        [message] = await taken(api, 1)
        async with lost_answer(proxy, connection, _LEASED):
            acking = asyncio.create_task(http.post("/api/v1/ack", json=ack_of(message, status)))
        assert is_unknown(await acking)
        assert [found["deliveryAttempt"] for found in (await api.pop("q")).messages] == [2]
        assert await connection.fetchval("SELECT retries ->> '2' FROM queen.partition_consumers") == (
            "1" if status == "failed" else None
        ), "it was counted once"
        [told] = await api.ack([message], status)
        assert (told["success"], told["error"]) == (False, "Invalid or expired lease"), "this one has changed nothing"


@checks("G-ACK-7", "G-DLQ-1", level=Level.FAULTS)
async def test_a_failure_without_a_lease_counts_once_when_the_answer_is_lost() -> None:
    """Nothing but its lease would tell the second sending from another failure."""
    async with lossy() as (http, proxy, connection):
        api = Api(http)
        await api.configure("q", retryLimit=3)
        [message] = await taken(api, 1)
        await api.ack([message], "retry")
        # The ack waits for the lock until its first call, which asks for prefetched leases, is answered.
        lock = connection.transaction()
        await lock.start()
        await connection.execute("SELECT FROM queen.partition_consumers FOR UPDATE")
        acking = asyncio.create_task(http.post("/api/v1/ack", json=ack_of(message, "failed", leaseId=None)))
        await eventually(lambda: connection.fetchval(_WAITS_FOR_LOCK), "an ack that waits for the lock")
        async with lost_answer(proxy, connection, "SELECT count(retries) FROM queen.partition_consumers"):
            await lock.commit()
        assert is_unknown(await acking)
        assert await connection.fetchval("SELECT retries ->> '2' FROM queen.partition_consumers") == "1"


@checks("G-ACK-7", "G-DLQ-1", level=Level.FAULTS)
@pytest.mark.parametrize("status", mostly_at_night(["failed", "dlq"], ["dlq"]))
async def test_a_dead_letter_is_not_told_as_refused_when_the_answer_is_lost(status: str) -> None:
    """Others in the same call are told what became of them."""
    async with lossy() as (http, proxy, connection):
        api = Api(http)
        await api.configure("q", retryLimit=0)
        messages = await taken(api, 1, 2)
        async with lost_answer(proxy, connection, "SELECT count(*) FROM queen.dead_letter_queue"):
            items = [ack_of(messages[0], status), ack_of(messages[1])]
            acking = asyncio.create_task(http.post("/api/v1/ack/batch", json={"acknowledgments": items}))
        assert is_unknown(await acking)
        assert await connection.fetchval("SELECT count(*) FROM queen.dead_letter_queue") == 1
        told = await api.ack_items(items)
        assert [each["success"] for each in told] == [False, True]


@checks("G-ACK-4", "G-ACK-7", level=Level.FAULTS)
async def test_completed_messages_are_told_as_completed_when_the_answer_is_lost() -> None:
    async with lossy() as (http, proxy, connection):
        api = Api(http)
        messages = await taken(api, 1, 2)
        async with lost_answer(proxy, connection, _ACKED):
            acking = asyncio.create_task(api.ack(messages))
        assert [each["success"] for each in await acking] == [True, True]


@pytest.mark.nightly
@checks("G-TXN-1", "G-ACK-7", level=Level.FAULTS)
@pytest.mark.parametrize("status", ["completed", "dlq"])
async def test_a_transaction_that_only_acks_is_not_told_as_undone_when_the_answer_is_lost(status: str) -> None:
    """One that pushes is found in the log again. Of this one nothing says who put a message among the dead letters."""
    async with lossy() as (http, proxy, connection):
        api = Api(http)
        [message] = await taken(api, 1)
        operations = [{"type": "ack", **ack_of(message, status)}]
        async with lost_answer(proxy, connection, _ACKED):
            sending = asyncio.create_task(http.post("/api/v1/transaction", json={"operations": operations}))
        answer = await sending
        if status == "completed":
            assert answer.json()["success"] is True
        else:
            assert is_unknown(answer)
        assert (await api.transact(operations))["success"] is False, "this one has changed nothing"
