"""Single messages: listed, looked at, deleted, moved to the dead letters, retried."""

import asyncio
import itertools
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, Message
from tests.support.stored import own_database, value

UNKNOWN = "00000fff-ffff-8002-8000-000000000000"


def path_of(message: Message, ending: str = "") -> str:
    return f"/api/v1/messages/{message['partitionId']}/{quote(message['transactionId'], safe='')}{ending}"


async def listed(api: Api, **parameters: Any) -> list[Message]:
    response = await api.http.get("/api/v1/messages", params=parameters)
    assert response.status_code == 200, response.text
    messages: list[Message] = response.json()["messages"]
    return messages


async def detail(api: Api, message: Message) -> dict[str, Any]:
    response = await api.http.get(path_of(message))
    assert response.status_code == 200, response.text
    return dict(response.json())


async def delete(api: Api, message: Message) -> None:
    response = await api.http.delete(path_of(message))
    assert response.status_code == 200, response.text
    assert response.json()["success"] is True


# ---------------------------------------------------------------- list


async def test_messages_are_listed_newest_first_in_pages(api: Api, queue: str) -> None:
    for n in range(4):
        await api.push(queue, n, partition=f"p{n % 2}")
    assert [m["data"] for m in await listed(api, queue=queue)] == [3, 2, 1, 0]
    assert [m["data"] for m in await listed(api, queue=queue, limit=2, offset=1)] == [2, 1]
    assert [m["data"] for m in await listed(api, queue=queue, partition="p1")] == [3, 1]
    assert await listed(api, queue=queue, offset=4) == []
    assert await listed(api, queue=f"{queue}-unknown") == []


async def test_messages_are_searched_by_text_beyond_a_page(api: Api, queue: str) -> None:
    await api.push(queue, *({"n": n, "word": "Needle" if n in (3, 700) else "hay"} for n in range(1500)))
    await api.push(queue, {"n": "last"}, ids=["needle-id"])

    async def found(**parameters: Any) -> tuple[list[Any], int, int | None]:
        response = await api.http.get("/api/v1/messages", params={"queue": queue, **parameters})
        assert response.status_code == 200, response.text
        answer = response.json()
        assert answer["total"] == len(answer["messages"])
        return [each["data"]["n"] for each in answer["messages"]], answer["searched"], answer["next"]

    assert await found(search="NEEDLE") == (["last", 700, 3], 1501, None)
    assert await found(search="needle", limit=2) == (["last", 700], 801, 801)
    assert await found(search="needle", limit=2, offset=801) == ([3], 700, None)
    assert await found(search="needle", status="completed") == ([], 0, None)
    assert await found(search="needle", offset=10_000) == ([], 0, None)
    assert "searched" not in (await api.http.get("/api/v1/messages", params={"queue": queue})).json()


async def test_messages_of_one_flush_are_listed_last_first(api: Api, queue: str) -> None:
    await api.push(queue, *range(10))
    assert [m["data"] for m in await listed(api, queue=queue, limit=3, offset=2)] == [7, 6, 5]


async def test_messages_are_listed_by_namespace_task_and_time(api: Api, queue: str) -> None:
    await api.configure(queue, namespace=queue, task=f"t-{queue}")
    await api.push(queue, 1)
    [message] = await listed(api, ns=queue)
    assert await listed(api, namespace=queue) == await listed(api, task=f"t-{queue}") == [message]
    assert message["namespace"] == queue
    at = message["createdAt"]
    assert await listed(api, queue=queue, **{"from": at[:19] + "Z", "to": at}) == [message]
    assert await listed(api, queue=queue, **{"from": "2999-01-01T00:00:00Z", "to": "2999-01-02T00:00:00Z"}) == []
    assert await listed(api, queue=queue, **{"from": "2020-01-01", "to": "2020-01-02"}) == []


async def test_a_time_that_has_passed_is_listed_as_the_present_is(
    api: Api, queue: str, database: "asyncpg.Connection[Any]"
) -> None:
    await api.push(queue, *range(3))
    await api.push(queue, "side", partition="side")
    now = await listed(api, queue=queue)
    assert len(now) == 4
    await database.execute(
        "UPDATE queen.segments SET created_at = created_at - interval '1 day' WHERE part_id IN "
        "(SELECT p.id FROM queen.partitions p JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1)",
        queue,
    )
    await api.push(queue, "today")
    before = {"from": "2020-01-01T00:00:00Z", "to": (now[0]["createdAt"][:10]) + "T00:00:00Z"}
    assert [m["data"] for m in await listed(api, queue=queue, **before, limit=10)] in (
        [m["data"] for m in now],
        [],  # the test ran across midnight
    )


async def test_a_page_of_large_messages_ends_before_16_mib(api: Api, queue: str) -> None:
    await api.push(queue, *(str(n) * (7 * 2**20) for n in range(3)))
    assert [m["data"][0] for m in await listed(api, queue=queue)] == ["2", "1"]
    assert [m["data"][0] for m in await listed(api, queue=queue, offset=2)] == ["0"]


#: Segments of two messages in each of 1,100 partitions, some without them; then those of another queue, a block each.
MANY_PARTITIONS = """
SELECT count(*) FROM queen.resolve_partitions_v1(
    ARRAY(SELECT 'wide' FROM generate_series(1, 1100)) || ARRAY['busy'],
    ARRAY(SELECT n::text FROM generate_series(1, 1100) AS n) || ARRAY['p'], true);
ALTER TABLE queen.segments SET (fillfactor = 10);
INSERT INTO queen.segments (part_id, last_off, n, created_at, flush, ends, data)
SELECT p.id, 2 * n + 1, CASE WHEN p.id % 7 = 0 THEN 0 ELSE 2 END,
    clock_timestamp() - make_interval(mins => 10, secs => p.id - n / 2), gen_random_uuid(), '', '[]'
FROM queen.partitions AS p, generate_series(0, 3) AS n WHERE p.name <> 'p';
INSERT INTO queen.segments (part_id, last_off, n, created_at, flush, ends, data)
SELECT p.id, n, 1, clock_timestamp() - make_interval(secs => (12000 - n) / 30), gen_random_uuid(), '',
    repeat(md5(n::text), 20)::bytea
FROM queen.partitions AS p, generate_series(1, 12000) AS n WHERE p.name = 'p';
VACUUM ANALYZE;
"""
BY_SORTING = """
SELECT array_agg(o.part_id), array_agg(o.last_off)
FROM (
    SELECT s.part_id, s.last_off FROM queen.segments AS s JOIN queen.partitions AS p ON p.id = s.part_id
    WHERE p.queue_id = ANY($1) AND s.n > 0 AND s.created_at BETWEEN $2 AND $3
    ORDER BY s.created_at DESC, s.part_id DESC, s.last_off DESC LIMIT $4
) AS o
"""


async def test_the_newest_segments_are_those_that_sorting_finds(postgres: str) -> None:
    async with own_database(postgres) as pool:
        for statement in MANY_PARTITIONS.split(";")[:-1]:
            await pool.fetch(statement)
        wide, busy = [row["id"] for row in await pool.fetch("SELECT id FROM queen.queues ORDER BY name DESC")]
        now = await value(pool, "SELECT clock_timestamp()")
        question = "SELECT parts, lasts FROM queen.newest_segments($1, NULL, $2, $3, $4)"
        for queues, begin, end, most in itertools.product(
            ([wide], [busy], [wide, busy]), (10_000, 1000), (-60, 300, 900), (1, 300, 100_000)
        ):
            arguments = queues, now - timedelta(seconds=begin), now - timedelta(seconds=end), most
            assert await pool.fetch(question, *arguments) == await pool.fetch(BY_SORTING, *arguments), arguments
        by_time = "SELECT complete FROM queen.segments_by_time($1, NULL, $2, $3, 10)"
        assert await value(pool, by_time, [busy], now - timedelta(days=1), now) is True
        # The others are too many; then partitions are asked.
        assert await value(pool, by_time, [wide], now - timedelta(days=1), now) is False
        assert await value(pool, by_time, [wide], now - timedelta(days=1), now - timedelta(seconds=900)) is True


async def test_a_message_is_listed_by_what_became_of_it(api: Api, queue: str) -> None:
    await api.configure(queue, retryLimit=0)
    await api.push(queue, *range(5))
    messages = (await api.pop(queue, batch=3)).messages
    await api.ack(messages[:1])
    await api.ack(messages[1:2], "dlq")
    expected = {"completed": [0], "dead_letter": [1], "processing": [2], "pending": [4, 3]}
    for status, data in expected.items():
        found = await listed(api, queue=queue, status=status)
        assert [m["data"] for m in found] == data, status
        assert {m["status"] for m in found} == {status}
    [processing] = await listed(api, queue=queue, status="processing")
    assert processing["leaseExpiresAt"] is not None
    assert processing["queueStatus"] == "processing"


async def test_a_message_with_dead_letters_of_two_groups_is_listed_once(api: Api, queue: str) -> None:
    """The original repeats it for each dead letter."""
    await api.push(queue, "poison")
    for group in ("g", "h"):
        messages = (await api.pop(queue, consumerGroup=group, subscriptionMode="all")).messages
        await api.ack(messages, "dlq")
    [message] = await listed(api, queue=queue)
    assert message["busStatus"] == {"consumedBy": 2, "totalGroups": 2}
    assert (message["status"], message["queueStatus"]) == ("dead_letter", "pending")


async def test_a_list_says_how_its_queues_are_consumed(api: Api, queue: str) -> None:
    await api.push(queue, 1)

    async def mode() -> dict[str, Any]:
        return dict((await api.http.get("/api/v1/messages", params={"queue": queue})).json()["mode"])

    assert await mode() == {"hasQueueMode": False, "busGroupsCount": 0, "type": "none"}
    await api.pop(queue)
    assert await mode() == {"hasQueueMode": True, "busGroupsCount": 0, "type": "queue"}
    await api.pop(queue, consumerGroup="g")
    assert await mode() == {"hasQueueMode": True, "busGroupsCount": 1, "type": "hybrid"}


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"status": "nonsense"}, "status"),
        ({"from": "garbage"}, "from"),
        ({"to": "garbage"}, "to"),
        ({"from": "2024-01-02", "to": "2024-01-01"}, "from"),
        ({"limit": "abc"}, "limit"),
        ({"limit": "-1"}, "limit"),
        ({"offset": "10001"}, "offset"),
        ({"queue": "x" * 256}, "queue"),
        ({"ns": "\0"}, "ns"),
    ],
)
async def test_bad_filters_are_named(api: Api, parameters: dict[str, str], field: str) -> None:
    response = await api.http.get("/api/v1/messages", params=parameters)
    assert response.status_code == 400, response.text
    assert response.json()["field"] == field


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"])
async def test_times_at_the_edge_are_answered(api: Api, queue: str, time: str) -> None:
    for parameters in ({"from": time}, {"to": time}, {"from": time, "to": "2024-01-01"}, {"from": time, "to": time}):
        response = await api.http.get("/api/v1/messages", params={"queue": queue, **parameters})
        assert response.status_code in (200, 400), response.text


# ---------------------------------------------------------------- one message


async def test_a_message_is_shown_with_its_queue_and_groups(api: Api, queue: str) -> None:
    await api.configure(queue, leaseTime=77, retryLimit=5, priority=2)
    payload = {"text": "é\0\U0001f4ec", "n": 1.5, "deep": [[{}]]}
    await api.push_items(
        [
            {
                "queue": queue,
                "payload": payload,
                "transactionId": "a/b?c",
                "traceId": "01a1fd8a-93cb-7002-afe7-e483fd50541f",
            }
        ]
    )
    [message] = (await api.pop(queue, consumerGroup="g")).messages
    found = await detail(api, message)
    assert found["payload"] == found["data"] == payload
    assert (found["transactionId"], found["id"], found["traceId"]) == ("a/b?c", message["id"], message["traceId"])
    assert (found["status"], found["queuePath"]) == ("processing", f"{queue}/Default")
    assert found["queueConfig"] == {"leaseTime": 77, "retryLimit": 5, "retryDelay": 0, "ttl": 0, "priority": 2}
    assert found["mode"] == {"hasQueueMode": False, "busGroupsCount": 1, "consumedByGroups": 0, "type": "bus"}
    [group] = found["consumerGroups"]
    assert (group["name"], group["consumed"]) == ("g", False)
    assert group["leaseExpiresAt"] == found["leaseExpiresAt"] is not None
    await api.ack([message])
    found = await detail(api, message)
    assert (found["status"], found["consumerGroups"][0]["consumed"]) == ("completed", True)
    by_id = await api.http.get(f"/api/v1/messages/{message['partitionId']}/{message['id']}")
    assert by_id.json() == found


async def test_a_message_says_which_group_gave_it_up(api: Api, queue: str) -> None:
    await api.push(queue, 1)
    leased = {group: (await api.pop(queue, consumerGroup=group)).messages for group in ("done", "gave up", "has it")}
    await api.ack(leased["done"])
    await api.ack(leased["gave up"], "dlq", error="no money")
    found = await detail(api, leased["done"][0])
    groups = {group["name"]: group for group in found["consumerGroups"]}
    states = {name: (group["state"], group["consumed"], group["errorMessage"]) for name, group in groups.items()}
    assert states == {
        "done": ("completed", True, None),
        "gave up": ("dead_letter", False, "no money"),
        "has it": ("processing", False, None),
    }
    assert groups["gave up"]["failedAt"] is not None
    assert (found["status"], found["mode"]["consumedByGroups"]) == ("dead_letter", 1)


async def test_a_dead_message_is_shown_with_its_error(api: Api, queue: str) -> None:
    await api.push(queue, 1)
    messages = (await api.pop(queue)).messages
    await api.ack(messages, "dlq", error="broken")
    found = await detail(api, messages[0])
    assert (found["status"], found["errorMessage"], found["retryCount"]) == ("dead_letter", "broken", 0)


@pytest.mark.parametrize("place", [f"{UNKNOWN}/x", "not-a-uuid/x", "x", f"{UNKNOWN}/"])
@pytest.mark.parametrize(("method", "ending"), [("GET", ""), ("DELETE", ""), ("POST", "/retry"), ("POST", "/dlq")])
async def test_an_unknown_message_is_a_404(api: Api, place: str, method: str, ending: str) -> None:
    response = await api.http.request(method, f"/api/v1/messages/{place}{ending}")
    assert response.status_code in (404, 400), response.text
    assert response.json()["error"]


async def test_an_unknown_id_in_a_known_partition_is_a_404(api: Api, queue: str) -> None:
    await api.push(queue, 1)
    [message] = await listed(api, queue=queue)
    next_one = message["id"][:-1] + "1"
    for name in ("nope", next_one):
        response = await api.http.get(f"/api/v1/messages/{message['partitionId']}/{name}")
        assert (response.status_code, response.json()["error"]) == (404, "Message not found")


# ---------------------------------------------------------------- delete


@checks("G-RET-5", level=Level.LIVE)
async def test_a_deleted_message_is_gone_for_all_groups_and_offsets_stay(
    api: Api, queue: str, database: "asyncpg.Connection[Any]"
) -> None:
    await api.push(queue, *range(5), ids=[f"t{n}" for n in range(5)])
    await api.pop(queue, consumerGroup="old", subscriptionMode="all", batch=1, autoAck=True)
    by_data = {m["data"]: m for m in await listed(api, queue=queue)}
    for n in (0, 2, 4):
        await delete(api, by_data[n])
    assert [m["data"] for m in await listed(api, queue=queue)] == [3, 1]
    for group in ("old", "new"):
        popped = await api.pop(queue, consumerGroup=group, subscriptionMode="all", batch=10)
        assert [(m["data"], m["offset"]) for m in popped.messages] == [(1, 1), (3, 3)]
    seen = await database.fetch("SELECT off, payload::text FROM queen.messages WHERE queue = $1 ORDER BY off", queue)
    assert [tuple(row) for row in seen] == [(1, "1"), (3, "3")]
    await api.push(queue, "next")
    assert (await api.pop(queue, consumerGroup="third", subscriptionMode="all", batch=10)).data == [1, 3, "next"]
    response = await api.http.post(f"/api/v1/consumer-groups/third/queues/{queue}/seek", json={"toBeginning": True})
    assert response.status_code == 200
    assert (await api.pop(queue, consumerGroup="third", batch=10)).data == [1, 3, "next"]
    stored = await database.fetchval(
        "SELECT string_agg(convert_from(s.data, 'UTF8'), '') FROM queen.segments s JOIN queen.partitions p ON "
        "p.id = s.part_id JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1",
        queue,
    )
    assert "t2" not in stored
    assert "t3" in stored


async def test_a_deleted_message_is_deleted_once_and_its_id_is_free_again(api: Api, queue: str) -> None:
    await api.push(queue, "first", ids=["order-1"])
    [message] = await listed(api, queue=queue)
    await delete(api, message)
    again = await api.http.delete(path_of(message))
    assert (again.status_code, again.json()["error"]) == (404, "Message not found")
    assert (await api.http.get(path_of(message))).status_code == 404
    [pushed] = await api.push(queue, "second", ids=["order-1"])
    assert pushed["status"] == "queued"
    assert (await api.pop(queue)).data == ["second"]


@checks("G-ACK-5", level=Level.LIVE)
async def test_deleting_the_last_message_under_a_lease_ends_it(api: Api, queue: str) -> None:
    await api.push(queue, *range(3))
    messages = (await api.pop(queue, batch=2)).messages
    await delete(api, messages[0])
    assert (await api.pop(queue)).messages == []
    await delete(api, messages[1])
    assert (await api.pop(queue)).data == [2]
    [late] = await api.ack(messages[:1])
    assert (late["success"], late["noop"]) == (True, True)


@checks("G-ORD-2", level=Level.LIVE)
async def test_deletes_beside_pushes_and_pops_leave_the_others_whole(workers: list[Api], api: Api, queue: str) -> None:
    rounds = 30
    seen: list[int] = []

    async def push() -> None:
        for n in range(rounds):
            await workers[0].push(queue, 3 * n, 3 * n + 1, 3 * n + 2)

    async def remove() -> None:
        deleted = 0
        while deleted < rounds:
            doomed = [m for m in await listed(workers[1], queue=queue, limit=500) if m["data"] % 3 == 1]
            for message in doomed:
                await delete(workers[1], message)
            deleted += len(doomed)

    async def consume() -> None:
        while not {3 * n + k for n in range(rounds) for k in (0, 2)} <= set(seen):
            popped = await api.pop(queue, consumerGroup="g", subscriptionMode="all", batch=7, wait=True, timeout=2000)
            seen.extend(popped.data)
            if popped.messages:
                await api.ack(popped.messages)

    async with asyncio.timeout(240):
        await asyncio.gather(push(), remove(), consume())
    assert seen == sorted(set(seen))
    left = [m["data"] for m in await listed(api, queue=queue, limit=500)]
    assert sorted(left) == [n for n in range(3 * rounds) if n % 3 != 1]


# ---------------------------------------------------------------- to the dead letters, and back


@checks("G-DLQ-6", level=Level.LIVE)
async def test_a_message_is_moved_to_the_dead_letters_of_all_groups_that_have_not_done_it(api: Api, queue: str) -> None:
    await api.push(queue, "poison", "good", ids=["p", "g"])
    await api.pop(queue, consumerGroup="done", subscriptionMode="all", batch=1, autoAck=True)
    [message] = (await api.pop(queue, consumerGroup="busy", subscriptionMode="all", batch=1)).messages
    moved = await api.http.post(path_of(message, "/dlq"), json={"error": "by hand"})
    assert moved.status_code == 200, moved.text
    assert moved.json()["consumerGroups"] == ["busy"]
    assert (await api.pop(queue, consumerGroup="busy", batch=9)).data == ["good"]
    letters = (await api.http.get("/api/v1/dlq", params={"queue": queue})).json()["messages"]
    assert [(m["consumerGroup"], m["errorMessage"], m["data"]) for m in letters] == [("busy", "by hand", "poison")]
    again = await api.http.post(path_of(message, "/dlq"))
    assert again.status_code == 409
    assert again.json()["error"]


async def test_a_message_is_moved_for_one_group_alone(api: Api, queue: str) -> None:
    await api.push(queue, "x", "y")
    for group in ("g", "h"):
        await api.pop(queue, "unknown", consumerGroup=group)
    message = (await listed(api, queue=queue))[-1]
    assert (await api.http.post(path_of(message, "/dlq"), json={"consumerGroup": "g"})).status_code == 200
    assert (await api.pop(queue, consumerGroup="g", batch=9)).data == ["y"]
    assert (await api.pop(queue, consumerGroup="h", batch=9)).data == ["x", "y"]
    assert (await api.http.post(path_of(message, "/dlq"), json={"consumerGroup": "nobody"})).status_code == 409


async def test_a_message_of_a_queue_without_groups_is_moved_for_queue_mode(api: Api, queue: str) -> None:
    await api.push(queue, "x", "y")
    message = (await listed(api, queue=queue))[-1]
    moved = await api.http.post(path_of(message, "/dlq"))
    assert moved.json()["consumerGroups"] == ["__QUEUE_MODE__"]
    assert (await api.pop(queue, batch=9)).data == ["y"]


@checks("G-DLQ-6", level=Level.LIVE)
async def test_a_dead_letter_is_retried_once(api: Api, queue: str) -> None:
    await api.push(queue, {"n": "é\0"}, ids=["order/1"])
    messages = (await api.pop(queue)).messages
    await api.ack(messages, "dlq")
    retried = await api.http.post(path_of(messages[0], "/retry"))
    assert retried.status_code == 200, retried.text
    body = retried.json()
    assert (body["success"], body["result"], body["dlqRowRemoved"]) == (True, "moved", True)
    assert (body["originalTransactionId"], body["replayedAs"]["offset"]) == ("order/1", 1)
    [message] = (await api.pop(queue)).messages
    assert message["data"] == {"n": "é\0"}
    assert (message["transactionId"], message["id"]) == (
        body["replayedAs"]["transaction_id"],
        body["replayedAs"]["message_id"],
    )
    assert (await api.http.get("/api/v1/dlq", params={"queue": queue})).json()["messages"] == []
    assert (await api.http.post(path_of(messages[0], "/retry"))).status_code == 404


async def test_two_retries_at_once_replay_once(workers: list[Api], queue: str) -> None:
    await workers[0].push(queue, 1)
    messages = (await workers[0].pop(queue)).messages
    await workers[0].ack(messages, "dlq")
    answers = await asyncio.gather(*[api.http.post(path_of(messages[0], "/retry")) for api in workers])
    assert sorted(answer.status_code for answer in answers) == [200, 404]
    assert (await workers[0].pop(queue, batch=9)).data == [1]


async def test_a_retry_wakes_long_polls(api: Api, queue: str) -> None:
    await api.push(queue, 1)
    messages = (await api.pop(queue)).messages
    await api.ack(messages, "dlq")
    waiting = asyncio.create_task(api.pop(queue, wait=True, timeout=30_000))
    await api.http.post(path_of(messages[0], "/retry"))
    async with asyncio.timeout(240):
        assert (await waiting).data == [1]
