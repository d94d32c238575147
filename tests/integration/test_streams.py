"""Streams over HTTP: registration, cycles, state; what is sent twice or late changes nothing."""

import asyncio
from typing import Any

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api
from tests.support.clock import eventually
from tests.support.streams import Streams, cycle_of, delete, upsert

NO_LEASE = "00000000-0000-4000-8000-000000000000"
NOBODY = "0190a0a0-0000-7000-8000-00000000dead"
GROUP = "streams.s"


@pytest.fixture
def streams(api: Api) -> Streams:
    return Streams(api)


async def begin(streams: Streams, queue: str, *payloads: Any, batch: int = 100) -> tuple[str, list[dict[str, Any]]]:
    """A registered query, and the messages that it has popped of its source."""
    query_id = (await streams.register(queue, queue))["query_id"]
    await streams.api.push(queue, *payloads)
    return query_id, (await streams.api.pop(queue, consumerGroup=GROUP, batch=batch)).messages


async def rest_of(api: Api, queue: str, **parameters: Any) -> list[Any]:
    return (await api.pop(queue, batch=1000, partitions=100, autoAck=True, **parameters)).data


async def test_a_query_is_made_once_and_found_again(streams: Streams, queue: str) -> None:
    first = await streams.register(queue, "src", "h1", sink_queue="snk")
    assert (first["success"], first["name"], first["config_hash"]) == (True, queue, "h1")
    assert (first["fresh"], first["reset"]) == (True, False)
    again = await streams.register(queue, "src", "h1", sink_queue="snk")
    assert again == {**first, "fresh": False}


async def test_a_query_with_another_chain_of_operators_is_a_conflict(streams: Streams, queue: str) -> None:
    query_id = (await streams.register(queue, "src", "h1"))["query_id"]
    status, answer = await streams.post("queries", {"name": queue, "source_queue": "src", "config_hash": "h2"})
    assert (status, answer["success"], answer["query_id"], answer["name"]) == (409, False, query_id, queue)
    assert answer["error"] == answer["detail"]
    assert "config_hash mismatch" in answer["error"]
    assert (await streams.register(queue, "src", "h1"))["fresh"] is False


async def test_a_reset_forgets_the_state_and_takes_the_new_chain(streams: Streams, queue: str) -> None:
    query_id, messages = await begin(streams, queue, 1)
    assert (await streams.commit(query_id, messages, [upsert("k", 1)]))["success"] is True
    answer = await streams.register(queue, queue, "h2", reset=True)
    assert (answer["query_id"], answer["fresh"], answer["reset"]) == (query_id, False, True)
    assert await streams.state(query_id, messages[0]["partitionId"]) == {}
    assert (await streams.register(queue, queue, "h2"))["reset"] is False


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("queries", {"source_queue": "s", "config_hash": "h"}, "name is required"),
        ("queries", {"name": "", "source_queue": "s", "config_hash": "h"}, "name is required"),
        ("queries", {"name": "n", "config_hash": "h"}, "source_queue is required"),
        ("queries", {"name": "n", "source_queue": "s"}, "config_hash is required"),
        ("queries", [], "request body must be a JSON object"),
        ("cycle", {"partition_id": NOBODY}, "query_id is required"),
        ("cycle", {"query_id": NOBODY}, "partition_id is required"),
        ("cycle", [], "request body must be a JSON object"),
        ("state/get", {"partition_id": NOBODY}, "query_id is required"),
        ("state/get", {"query_id": NOBODY}, "partition_id is required"),
        ("state/get", [], "request body must be a JSON object"),
    ],
)
async def test_missing_items_are_named(streams: Streams, path: str, body: Any, error: str) -> None:
    status, answer = await streams.post(path, body)
    assert (status, answer["error"]) == (400, error)


@checks("G-ISO-3", level=Level.LIVE)
@pytest.mark.parametrize(
    "fields",
    [
        {"state_ops": [upsert("", 1)]},
        {"state_ops": [upsert("k" * 2049, 1)]},
        {"state_ops": [upsert("a\0b", 1)]},
        {"state_ops": [{"type": "upsert"}]},
        {"state_ops": {}},
        {"push_items": [{"queue": ""}]},
        {"push_items": [{"payload": 1}]},
        {"consumer_group": "g" * 256},
        {"ack": {"transactionId": "t"}},
        {"ack": {"transactionId": "t", "leaseId": ""}},
        {"ack": {"transactionId": "", "leaseId": NO_LEASE}},
        {"release_lease": "yes"},
    ],
)
async def test_a_malformed_cycle_names_the_field(streams: Streams, fields: dict[str, Any]) -> None:
    status, answer = await streams.post("cycle", {"query_id": NOBODY, "partition_id": NOBODY, **fields})
    assert status == 400, answer
    assert answer["field"].startswith(next(iter(fields)))


@checks("G-STR-1", level=Level.LIVE)
async def test_a_cycle_acks_its_input_writes_state_and_pushes(streams: Streams, queue: str) -> None:
    query_id, messages = await begin(streams, queue, 1, 2, 3)
    pushes = [{"queue": f"{queue}-out", "partition": "p", "payload": {"sum": 6}, "transactionId": "t"}]
    answer = await streams.commit(query_id, messages, [upsert("sum", {"acc": 6}), upsert("n", 3)], pushes)
    assert answer["ack_result"] == {"success": True, "count": 3, "lease_released": True, "dlq": False}
    assert (answer["success"], answer["queueName"], answer["state_ops_applied"]) == (True, queue, 2)
    assert (answer["query_id"], answer["partition_id"]) == (query_id, messages[0]["partitionId"])
    [pushed] = answer["push_results"]
    assert (pushed["status"], pushed["queueName"], pushed["transaction_id"]) == ("queued", f"{queue}-out", "t")
    assert await streams.state(query_id, messages[0]["partitionId"]) == {"n": 3, "sum": {"acc": 6}}
    assert await rest_of(streams.api, f"{queue}-out") == [{"sum": 6}]
    assert await rest_of(streams.api, queue, consumerGroup=GROUP) == []


async def test_a_cycle_of_nothing_is_a_success(streams: Streams, queue: str) -> None:
    query_id, messages = await begin(streams, queue, 1)
    answer = await streams.cycle(query_id, messages[0]["partitionId"])
    assert (answer["success"], answer["ack_result"], answer["push_results"]) == (True, None, [])


@checks("G-STR-2", level=Level.LIVE)
async def test_a_cycle_sent_again_changes_nothing_and_says_so(workers: list[Api], queue: str) -> None:
    first, second = map(Streams, workers)
    query_id, messages = await begin(first, queue, 1, 2)
    pushes = [{"queue": f"{queue}-out", "payload": "made"}]
    assert (await first.commit(query_id, messages, [upsert("k", 1)], pushes))["success"] is True
    answer = await second.commit(query_id, messages, [upsert("k", 2)], pushes)
    assert (answer["success"], answer["error"]) == (False, "Message already completed")
    assert (answer["push_results"], answer["state_ops_applied"], answer["ack_result"]) == ([], 0, None)
    assert await second.state(query_id, messages[0]["partitionId"]) == {"k": 1}
    assert await rest_of(second.api, f"{queue}-out") == ["made"]


@checks("G-STR-1", "G-STR-2", "G-LEASE-3", level=Level.LIVE)
@pytest.mark.parametrize("lease", [NO_LEASE, "no id at all"])
async def test_a_cycle_under_a_lease_that_is_not_its_own_changes_nothing(
    streams: Streams, queue: str, lease: str
) -> None:
    query_id, messages = await begin(streams, queue, 1)
    ack = {"transactionId": messages[0]["transactionId"], "leaseId": lease}
    pushes = [{"queue": f"{queue}-out", "payload": 1}]
    answer = await streams.commit(query_id, messages, [upsert("k", 1)], pushes, ack=ack)
    assert (answer["success"], answer["error"]) == (False, "Invalid or expired lease")
    assert await streams.state(query_id, messages[0]["partitionId"]) == {}
    assert await rest_of(streams.api, f"{queue}-out") == []
    assert (await streams.commit(query_id, messages))["success"] is True


@checks("G-STR-2", level=Level.LIVE)
async def test_a_cycle_whose_lease_has_ended_changes_nothing(streams: Streams, queue: str) -> None:
    query_id = (await streams.register(queue, queue))["query_id"]
    await streams.api.push(queue, 1)
    late = (await streams.api.pop(queue, consumerGroup=GROUP, leaseSeconds=1)).messages
    other = (await streams.api.pop(queue, consumerGroup=GROUP, wait=True, timeout=10_000)).messages
    assert other[0]["deliveryAttempt"] == 2
    answer = await streams.commit(query_id, late, [upsert("k", "late")])
    assert (answer["success"], answer["error"]) == (False, "Invalid or expired lease")
    assert (await streams.commit(query_id, other, [upsert("k", "other")]))["success"] is True
    assert await streams.state(query_id, other[0]["partitionId"]) == {"k": "other"}


async def test_a_cycle_that_keeps_the_lease_leaves_the_rest_to_it(streams: Streams, queue: str) -> None:
    query_id, messages = await begin(streams, queue, 1, 2, 3)
    answer = await streams.commit(query_id, messages[:1], release_lease=False)
    assert answer["ack_result"] == {"success": True, "count": 1, "lease_released": False, "dlq": False}
    assert (await streams.api.pop(queue, consumerGroup=GROUP)).messages == []
    answer = await streams.commit(query_id, messages[1:])
    assert answer["ack_result"] == {"success": True, "count": 2, "lease_released": True, "dlq": False}


async def test_a_cycle_that_releases_the_lease_brings_the_rest_again(workers: list[Api], queue: str) -> None:
    first, second = map(Streams, workers)
    query_id, messages = await begin(first, queue, 1, 2, 3)
    waiting = asyncio.create_task(second.api.pop(queue, consumerGroup=GROUP, batch=9, wait=True, timeout=50_000))
    assert (await first.api.pop(f"{queue}-other")).messages == []
    answer = await first.commit(query_id, messages[:1])
    assert answer["ack_result"]["lease_released"] is True
    again = (await waiting).messages
    assert [(m["data"], m["deliveryAttempt"]) for m in again] == [(2, 2), (3, 2)]


@pytest.mark.parametrize("status", ["failed", "dlq"])
async def test_a_cycle_gives_up_one_message_and_brings_the_others_again(
    streams: Streams, database: "asyncpg.Connection[Any]", queue: str, status: str
) -> None:
    await streams.api.configure(queue, retryLimit=5)
    query_id, messages = await begin(streams, queue, 1, 2)
    ack = {"transactionId": messages[1]["transactionId"], "leaseId": messages[1]["leaseId"], "status": status}
    answer = await streams.commit(query_id, messages, ack={**ack, "error": "boom"})
    assert answer["ack_result"] == {"success": True, "count": 0, "lease_released": True, "dlq": True}
    errors = "SELECT error FROM queen.dead_letter_queue WHERE queue_id = (SELECT id FROM queen.queues WHERE name = $1)"
    assert [row["error"] for row in await database.fetch(errors, queue)] == ["boom"]
    assert (await streams.api.pop(queue, consumerGroup=GROUP, batch=9)).data == [1]


@checks("G-ISO-4", level=Level.LIVE)
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"state_ops": [{"type": "nonsense", "key": "a"}]}, "Unknown state_op type: nonsense"),
        ({"status": "retry"}, "Unknown status: retry"),
        ({"query_id": NOBODY}, "Unknown query_id: register the query first"),
        ({"query_id": "not-a-uuid"}, "Unknown query_id: register the query first"),
        ({"partition_id": NOBODY}, "Partition not found"),
        ({"transactionId": "nobody"}, "Message not found"),
        ({"consumer_group": "strangers"}, "Consumer group not found"),
    ],
)
async def test_a_cycle_that_fails_is_an_answer(
    streams: Streams, queue: str, fields: dict[str, Any], error: str
) -> None:
    query_id, messages = await begin(streams, queue, 1)
    body = {"query_id": query_id, "partition_id": messages[0]["partitionId"], **cycle_of(messages, [upsert("k", 1)])}
    for name, value in fields.items():
        (body["ack"] if name in ("status", "transactionId") else body)[name] = value
    status, answer = await streams.post("cycle", body)
    assert (status, answer["success"], answer["error"]) == (200, False, error)
    assert await streams.state(query_id, messages[0]["partitionId"]) == {}


async def test_a_duplicate_output_is_answered_so_and_holds_nothing_back(streams: Streams, queue: str) -> None:
    query_id, messages = await begin(streams, queue, 1)
    await streams.api.push(f"{queue}-out", "there", ids=["t"])
    pushes = [{"queue": f"{queue}-out", "payload": n, "transactionId": t} for n, t in enumerate("tu")]
    answer = await streams.commit(query_id, messages, [], pushes)
    assert [item["status"] for item in answer["push_results"]] == ["duplicate", "queued"]
    assert await rest_of(streams.api, f"{queue}-out") == ["there", 1]


async def test_an_output_wakes_long_polls_on_the_other_worker(workers: list[Api], queue: str) -> None:
    first, second = map(Streams, workers)
    query_id, messages = await begin(first, queue, 1)
    waiting = asyncio.create_task(second.api.pop(f"{queue}-out", wait=True, timeout=50_000))
    assert (await first.api.pop(f"{queue}-out", consumerGroup="other")).messages == []
    await first.commit(query_id, messages, [], [{"queue": f"{queue}-out", "payload": "made"}])
    assert (await waiting).data == ["made"]


async def test_state_is_read_by_key_prefix_and_ripeness(streams: Streams, queue: str) -> None:
    query_id, messages = await begin(streams, queue, 1)
    values = {"a:1": {"windowEnd": 1000}, "a:2": {"windowEnd": 2000.5}, "b": 5, "c": None, "d": {"windowEnd": "x"}}
    await streams.commit(query_id, messages, [upsert(key, value) for key, value in values.items()])
    place = (query_id, messages[0]["partitionId"])
    assert await streams.state(*place) == values
    assert await streams.state(*place, keys=[]) == values
    assert await streams.state(*place, keys=["b", "zz"]) == {"b": 5}
    assert list(await streams.state(*place, key_prefix="a:")) == ["a:1", "a:2"]

    async def ripe() -> list[str]:
        return list(await streams.state(*place, ripe_at_or_before=1000))

    # What changed after the end of its window settles in a second.
    assert await eventually(ripe, "what is ripe") == ["a:1"]
    assert list(await streams.state(*place, ripe_at_or_before=10**15, key_prefix="a")) == ["a:1", "a:2"]
    status, answer = await streams.post("state/get", {"query_id": NOBODY, "partition_id": place[1]})
    assert (status, answer["success"], answer["rows"]) == (200, False, [])


async def test_state_comes_back_character_for_character(streams: Streams, queue: str) -> None:
    query_id, messages = await begin(streams, queue, 1)
    value = '{"n":1.10,"big":123456789012345678901234567890,"nul":"\\u0000","é":[{}],"windowEnd":5}'
    body = (
        f'{{"query_id":"{query_id}","partition_id":"{messages[0]["partitionId"]}",'
        f'"state_ops":[{{"type":"upsert","key":"a\\u001fb","value":{value}}}]}}'
    )
    response = await streams.api.http.post("/streams/v1/cycle", content=body.encode())
    assert response.json()["success"] is True
    response = await streams.api.http.post(
        "/streams/v1/state/get", json={"query_id": query_id, "partition_id": messages[0]["partitionId"]}
    )
    assert f'"value":{value}' in response.text


async def test_state_of_a_deleted_queue_is_gone(
    streams: Streams, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    query_id, messages = await begin(streams, queue, 1)
    await streams.commit(query_id, messages, [upsert("k", 1)])
    await streams.api.delete(queue)
    assert await streams.state(query_id, messages[0]["partitionId"]) == {}
    cycles = (
        "SELECT count(*) FROM queen.stream_cycles AS y JOIN queen.streams AS s ON s.id = y.stream_id WHERE s.name = $1"
    )
    assert await database.fetchval(cycles, queue) == 0


@checks("G-STR-2", level=Level.LIVE)
async def test_a_flush_raced_through_both_workers_happens_once(workers: list[Api], queue: str) -> None:
    first, second = map(Streams, workers)
    query_id, messages = await begin(first, queue, 1)
    place = (query_id, messages[0]["partitionId"])
    far = 32_503_680_000_000
    for turn in range(5):
        assert (await first.cycle(*place, state_ops=[upsert("w", {"acc": turn, "windowEnd": far})]))["success"]
        flush = {
            "consumer_group": GROUP, "state_ops": [delete("w")],
            "push_items": [{"queue": f"{queue}-out", "payload": turn}],
        }  # fmt: skip
        if turn == 0:
            early = await first.cycle(*place, **flush)
            assert (early["success"], early["noop"], early["push_results"]) == (True, True, [])
            assert early["reason"].startswith("The partition is leased")
            assert (await first.commit(query_id, messages))["success"] is True
        answers = await asyncio.gather(*[s.cycle(*place, **flush) for s in (first, second)])
        assert [answer["success"] for answer in answers] == [True, True]
        [reason] = [answer["reason"] for answer in answers if answer.get("noop")]
        assert reason.startswith("State not found")
    assert await rest_of(first.api, f"{queue}-out") == list(range(5))


@checks("G-STR-2", level=Level.LIVE)
async def test_a_flush_of_a_window_that_changed_after_its_end_waits(streams: Streams, queue: str) -> None:
    query_id, messages = await begin(streams, queue, 1)
    place = (query_id, messages[0]["partitionId"])
    await streams.commit(query_id, messages, [upsert("w", {"acc": 1, "windowEnd": 5})])
    flush = {"state_ops": [delete("w")], "push_items": [{"queue": f"{queue}-out", "payload": 1}]}
    assert await streams.state(*place, ripe_at_or_before=10) == {}
    early = await streams.cycle(*place, **flush)
    assert (early["success"], early["noop"], early["state_ops_applied"], early["push_results"]) == (True, True, 0, [])
    assert early["reason"].startswith("The state changed a moment ago")
    async with asyncio.timeout(240):
        while not await streams.state(*place, ripe_at_or_before=10):
            await asyncio.sleep(0.05)
    assert "noop" not in await streams.cycle(*place, **flush)
    assert await rest_of(streams.api, f"{queue}-out") == [1]


@checks("G-STR-1", "G-STR-2", level=Level.LIVE)
async def test_competing_workers_of_a_stream_count_every_message_once(workers: list[Api], queue: str) -> None:
    """Each adds what it gets to a running sum of its partition, and sends every cycle through both workers at once."""
    partitions, each = [f"p{n}" for n in range(4)], 25
    query_id = (await Streams(workers[0]).register(queue, queue))["query_id"]
    await workers[0].push_items(
        [{"queue": queue, "partition": p, "payload": n} for n in range(each) for p in partitions]
    )

    async def work(number: int) -> None:
        streams = Streams(workers[number % 2])
        while messages := (await streams.api.pop(queue, consumerGroup=GROUP, batch=3)).messages:
            partition_id = messages[0]["partitionId"]
            total = (await streams.state(query_id, partition_id)).get("sum", 0) + sum(m["data"] for m in messages)
            pushes = [{"queue": f"{queue}-out", "partition": m["partition"], "payload": m["data"]} for m in messages]
            answers = await asyncio.gather(
                *[Streams(w).commit(query_id, messages, [upsert("sum", total)], pushes) for w in workers]
            )
            assert sorted(answer["success"] for answer in answers) == [False, True]

    await asyncio.gather(*[work(n) for n in range(6)])
    popped = await workers[0].pop(f"{queue}-out", batch=1000, partitions=100)
    for partition in partitions:
        assert [m["data"] for m in popped.messages if m["partition"] == partition] == list(range(each))
    ids = {m["partition"] for m in popped.messages}
    assert ids == set(partitions)
