"""Scenarios of simple-mq: each puts the server into one situation and checks its answers."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeAlias
from uuid import UUID, uuid4

from ...guarantees import REGISTRY, Check, Level, checks
from ..lab import SkippedError, expect, expect_equal
from .client import Client, expect_status

Scenario: TypeAlias = Callable[[Client], Awaitable[None]]

_BEYOND = {400, 404, 405}


def all_scenarios() -> list[tuple[Check, Scenario]]:
    """Every scenario, with the guarantees that it checks."""
    here = sys.modules[__name__]
    return [(check, getattr(here, check.name)) for check in REGISTRY if check.module == __name__]


async def _ids(client: Client, queue: str, *data: str) -> list[str]:
    return [(await client.enqueue(queue, each)).message_id for each in data]


@checks("G-SMQ-1", "G-SMQ-2", level=Level.LIVE)
async def a_polled_message_is_hidden_for_its_timeout(client: Client) -> None:
    """Two messages, polled and polled again after a second."""
    queue = await client.create(hidden_s=1)
    first, second = await _ids(client, queue, "first", "second")
    began = time.monotonic()
    got = [await client.poll(queue) for _ in range(3)]
    if time.monotonic() - began < 1:
        expect_equal([poll.message_id for poll in got], [first, second, ""], "three polls of two messages")
    expect_equal([poll.delivery_count for poll in got[:2]], [1, 1], "delivery counts at the first delivery")
    while not (again := await client.poll(queue)).message_id:
        expect(time.monotonic() - began < 5, "nothing was visible 5 s after a timeout of 1 s")
        await asyncio.sleep(0.05)
    expect(again.end - got[0].invoked >= 10**9, "a message was visible before its timeout was over")
    expect_equal((again.message_id, again.delivery_count), (first, 2), "the oldest message, delivered again")


@checks("G-SMQ-1", level=Level.LIVE)
async def competing_polls_get_different_messages(client: Client) -> None:
    """Fifty polls at once on thirty messages."""
    queue = await client.create()
    sent = await _ids(client, queue, *(str(number) for number in range(30)))
    polls = await asyncio.gather(*(client.poll(queue) for _ in range(50)))
    got = [poll.message_id for poll in polls if poll.message_id]
    expect_equal(sorted(got), sorted(sent), "what fifty polls were given")


@checks("G-SMQ-3", "G-SMQ-7", level=Level.LIVE)
async def an_exhausted_message_goes_to_the_dead_letter_queue(client: Client) -> None:
    """One delivery at most, timeout one second."""
    queue = await client.create(hidden_s=1, deliveries=1)
    [id_] = await _ids(client, queue, "dead")
    expect_equal((await client.describe(queue))["dlq_id"], None, "dlq_id before the first dead letter")
    began, taken = time.monotonic(), await client.take(queue)
    while (dlq := (await client.describe(queue))["dlq_id"]) is None:
        expect(time.monotonic() - began < 5, "there was no dead letter 5 s after a timeout of 1 s")
        expect_equal(await client.take(queue), None, "a poll after the last delivery")
        await asyncio.sleep(0.05)
    expect(isinstance(dlq, str) and bool(UUID(dlq)), f"dlq_id is {dlq!r}")
    client.made.append(dlq)
    letters = await client.peek(dlq)
    expect_equal([each["message_id"] for each in letters], [id_], "the dead letters")
    [letter] = letters
    kept = [taken[field] if taken else None for field in ("message_id", "data", "created_at", "delivery_count")]
    got = [letter[field] for field in ("message_id", "data", "created_at", "delivery_count")]
    expect_equal(got, kept, "id, data, creation time and delivery count of the dead letter")
    expect_equal([await client.count(queue), await client.count(dlq)], [0, 1], "the counts of queue and dead letters")


@checks("G-SMQ-4", "G-SMQ-5", level=Level.LIVE)
async def the_size_limit_is_exact(client: Client) -> None:
    """Thirty enqueues at once, room for ten; then acks at once."""
    queue = await client.create(size=10)
    enqueues = await asyncio.gather(*(client.enqueue(queue, str(number)) for number in range(30)))
    stored = [enqueue.message_id for enqueue in enqueues if enqueue.outcome == "ok"]
    expect_equal(len(stored), 10, "how many of thirty enqueues at once a queue of size 10 took")
    expect_equal(client.statuses["enqueue", 429] >= 20, True, "the others were answered 429")
    expect_equal(await client.count(queue), 10, "the count of the full queue")
    await asyncio.gather(*(client.ack(queue, id_) for id_ in stored[:7]))
    expect_equal(await client.count(queue), 3, "the count after seven acks at once")
    expect_equal(len(await client.peek(queue)), 3, "the messages after seven acks at once")


@checks("G-SMQ-6", level=Level.LIVE)
async def data_comes_back_as_it_was(client: Client) -> None:
    """Texts that something on the way might touch."""
    queue = await client.create()
    texts = [
        '{"a": [1, null]}', " x\t\n", "ä€💥", "\\u0041 \\n", "'; DROP TABLE messages; --", "x" * 100_000,
        "\u2028\u007f\u0001", "%s %(a)s {}", '"', "null",
    ]  # fmt: skip
    for text in texts:
        await client.enqueue(queue, text)
    got = [(await client.poll(queue)).data for _ in texts]
    expect_equal(got, texts, "data")


@checks("G-SMQ-8", level=Level.LIVE)
async def an_acked_message_is_gone(client: Client) -> None:
    """Acked twice, acked in another queue, acked without a poll."""
    queue, other = await client.create(hidden_s=0), await client.create()
    first, second = await _ids(client, queue, "first", "second")
    await client.poll(queue)
    foreign = await client.send("ack in another queue", "DELETE", f"/{other}/messages/{first}")
    expect_equal(foreign.status, 404, "the status of an ack in another queue")
    answers = [await client.ack(queue, first), await client.ack(queue, first)]
    expect_equal([ack.outcome for ack in answers], ["ok", "fail"], "two acks of one message")
    expect_equal((await client.poll(queue)).message_id, second, "what is left")
    expect_equal((await client.ack(queue, second)).outcome, "ok", "an ack of a visible message")
    expect_equal(await client.count(queue), 0, "the count after all acks")


@checks("G-SMQ-9", level=Level.LIVE)
async def a_full_dead_letter_queue_drops_nothing(client: Client) -> None:
    """Size one: the second dead letter has to stay."""
    queue = await client.create(size=1, hidden_s=0, deliveries=1)
    for data in ("first", "second"):
        await client.enqueue(queue, data)
        await client.poll(queue)
        expect_equal((await client.poll(queue)).message_id, "", f"the poll after the last delivery of {data}")
    dlq = (await client.describe(queue))["dlq_id"]
    client.made.append(dlq)
    expect_equal([m["data"] for m in await client.peek(dlq)], ["first"], "the dead letters")
    expect_equal([m["data"] for m in await client.peek(queue)], ["second"], "what has to stay")
    expect_equal(await client.count(queue), 1, "the count with a message that has to stay")
    await client.poll(dlq)
    expect_equal((await client.describe(dlq))["dlq_id"], None, "a dead-letter queue's dlq_id")


@checks("G-SMQ-10", level=Level.LIVE)
async def a_requeued_message_gets_a_second_chance(client: Client) -> None:
    """From the dead-letter queue, named as the place and as the destination."""
    queue = await client.create(hidden_s=0, deliveries=1)
    first, second = await _ids(client, queue, "first", "second")
    before = {message["message_id"]: message for message in await client.peek(queue)}
    await client.poll(queue)
    await client.poll(queue)
    await client.poll(queue)
    dlq = (await client.describe(queue))["dlq_id"]
    client.made.append(dlq)
    dead = [message["message_id"] for message in await client.peek(dlq)]
    expect_equal(dead, [first, second], "the dead letters")
    for place, id_ in ((queue, first), (dlq, second)):
        answer = await client.requeue(place, id_)
        expect_equal(expect_status(answer, 200).get("message_id"), id_, "the answer to a requeue")
    found = await client.peek(queue)
    if len(found) < 2:
        client.notes.append("a requeue that names the dead-letter queue left the message there")
    for message in found:
        old = before[message["message_id"]]
        expect_equal(message["delivery_count"], 0, "the delivery count of a requeued message")
        expect_equal([message["data"], message["created_at"]], [old["data"], old["created_at"]], "data and creation")
    expect_equal((await client.poll(queue)).message_id, first, "the next poll")
    missing = await client.requeue(queue, str(uuid4()))
    expect_equal(missing.status, 404, "the status of a requeue of an unknown message")


@checks("G-SMQ-11", level=Level.LIVE)
async def a_peek_shows_everything_once_and_changes_nothing(client: Client) -> None:
    """Five messages, one in flight, in pages of two."""
    queue = await client.create()
    sent = await _ids(client, queue, *"abcde")
    await client.poll(queue)
    for limit in (1, 2, 5, 100):
        seen = await client.peek(queue, limit)
        expect_equal([m["message_id"] for m in seen], sent, f"a peek with limit {limit}")
        expect_equal([m["delivery_count"] for m in seen], [1, 0, 0, 0, 0], "delivery counts")
    polled = [(await client.poll(queue)).message_id for _ in range(5)]
    expect_equal(polled, [*sent[1:], ""], "polls after peeks")
    for bad in ("", "?limit=0", "?limit=101", "?limit=x"):
        answer = await client.send("malformed request", "GET", f"/{queue}/messages/peek{bad}")
        expect_equal(answer.status, 400, f"the status of a peek with {bad or 'no limit'}")


@checks("G-SMQ-4", level=Level.LIVE)
async def a_queue_is_what_was_asked_for(client: Client) -> None:
    """Fields, limits, unknown ids, deletion."""
    queue = await client.create(size=7, hidden_s=5, deliveries=2, name="näme")
    shown = await client.describe(queue)
    shown.pop("max_message_bytes", None)
    wanted = {
        "queue_id": queue, "queue_name": "näme", "queue_size": 7, "visibility_timeout": 5, "max_deliveries": 2,
        "current_message_count": 0, "dlq_id": None,
    }  # fmt: skip
    expect_equal(shown, wanted, "the queue")
    good = {"queueName": "n", "queueSize": 1, "visibilityTimeout": 0, "maxDeliveries": 1}
    bad: list[dict[str, object]] = [
        {"queueName": " "}, {"queueName": "x" * 256}, {"queueSize": 0}, {"queueSize": 1_000_001},
        {"visibilityTimeout": -1}, {"visibilityTimeout": 43_201}, {"maxDeliveries": 0}, {"maxDeliveries": 101},
    ]  # fmt: skip
    for change in bad:
        answer = await client.send("malformed request", "POST", "", good | change)
        expect_equal(answer.status, 400, f"the status of a creation with {change}")
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/messages/peek?limit=1"), ("POST", "/messages")):
        body = {"data": "x"} if method == "POST" else None
        answer = await client.send("request for an unknown queue", method, f"/{uuid4()}{path}", body)
        expect_equal(answer.status, 404, f"the status of {method} {path} on an unknown queue")
    await client.send("poll of an unknown queue", "GET", f"/{uuid4()}/messages")
    expect_equal((await client.send("malformed request", "GET", "/no-uuid")).status, 400, "the status for a bad id")
    blank = await client.send("malformed request", "POST", f"/{queue}/messages", {"data": "  "})
    expect_equal(blank.status, 400, "the status of an enqueue of blanks")
    expect_equal((await client.delete(queue)).status, 200, "the status of a deletion")
    expect_equal((await client.send("show a deleted queue", "GET", f"/{queue}")).status, 404, "a deleted queue")


@checks("G-SMQ-1", level=Level.LIVE)
async def times_are_those_of_utc_without_a_zone(client: Client) -> None:
    """`invisible_until` of a poll lies its timeout ahead."""
    queue = await client.create(hidden_s=30)
    await client.enqueue(queue, "x")
    before = datetime.now(UTC)
    message = await client.take(queue)
    text = str(message["invisible_until"]) if message else ""
    expect(not text.endswith("Z") and "+" not in text, f"invisible_until {text} has a zone")
    ahead = (datetime.fromisoformat(text).replace(tzinfo=UTC) - before).total_seconds()
    expect(25 < ahead < 40, f"invisible_until lies {ahead:.1f} s ahead instead of 30")


# ---------------------------------------------------------------- beyond the original


@checks("G-SMQ-15", "G-SMQ-4", level=Level.LIVE)
async def batches_are_stored_all_or_none(client: Client) -> None:
    """Three and three into a queue of size five; then acked in one request."""
    queue = await client.create(size=5)
    body = {"messages": [{"data": str(number)} for number in range(3)]}
    answer = await client.send("batch enqueue", "POST", f"/{queue}/messages", body)
    if answer.status in _BEYOND:
        raise SkippedError("there is no batch enqueue")
    ids = expect_status(answer, 201)["message_ids"]
    refused = await client.send("batch enqueue", "POST", f"/{queue}/messages", body)
    expect_equal(refused.status, 429, "the status of a batch that does not fit")
    expect_equal(await client.count(queue), 3, "the count after a batch that did not fit")
    got = await client.take_many(queue, 10)
    expect_equal([message["message_id"] for message in got], ids, "a poll with limit 10")
    acks = await client.send("batch ack", "POST", f"/{queue}/messages/ack", {"message_ids": [*ids, str(uuid4())]})
    deleted = [each["deleted"] for each in expect_status(acks, 200)["results"]]
    expect_equal(deleted, [True, True, True, False], "a batch ack of three messages and a stranger")
    expect_equal(await client.count(queue), 0, "the count after the batch ack")


@checks("G-SMQ-12", level=Level.LIVE)
async def a_group_keeps_its_order(client: Client) -> None:
    """Two groups and a message without one, taken ten at a time."""
    queue = await client.create(hidden_s=30)
    for data, group in (("g1", "g"), ("h1", "h"), ("g2", "g"), ("x", None), ("g3", "g"), ("h2", "h")):
        await client.enqueue(queue, data, group)
    got = await client.take_many(queue, 10)
    if any("message_group" not in message for message in got if message["data"] != "x"):
        raise SkippedError("there are no message groups")
    expect_equal([message["data"] for message in got], ["g1", "h1", "x"], "the first of each group")
    expect_equal(await client.take_many(queue, 10), [], "what is behind a message in flight")
    for expected in ("g2", "g3"):
        done = next(message for message in got if message["data"].startswith("g"))
        await client.ack(queue, done["message_id"])
        got = await client.take_many(queue, 10)
        expect_equal([message["data"] for message in got], [expected], "the next of the group")


@checks("G-SMQ-13", level=Level.LIVE)
async def a_poll_that_waits_is_answered_in_time(client: Client) -> None:
    """Nothing for a second; then a message while it waits."""
    queue = await client.create()
    began = time.monotonic()
    expect_equal(await client.take_many(queue, 1, wait_s=1), [], "a poll of an empty queue")
    took_s = time.monotonic() - began
    if took_s < 0.5:
        raise SkippedError("polls do not wait")
    expect(took_s < 5, f"a poll that was to wait 1 s took {took_s:.1f} s")
    waiting = asyncio.ensure_future(client.take_many(queue, 1, wait_s=10))
    # By then the poll waits in the server. If it is slower, it finds the message at once, and the test is only weaker.
    await asyncio.sleep(0.3)
    began = time.monotonic()
    await client.enqueue(queue, "x")
    expect_equal([message["data"] for message in await waiting], ["x"], "a poll that waits")
    took_s = time.monotonic() - began
    expect(took_s < 3, f"a message reached a waiting poll after {took_s:.1f} s")


@checks("G-SMQ-14", level=Level.LIVE)
async def only_what_is_in_flight_can_be_extended(client: Client) -> None:
    """A message before its poll, during it, and shown at once; another one shows that the old end has passed."""
    queue = await client.create(hidden_s=1)
    id_, later = await _ids(client, queue, "x", "polled after it")
    path = f"/{queue}/messages/{id_}/visibility"
    early = await client.send("extend what is not in flight", "POST", path, {"visibilityTimeout": 60})
    if early.status in {404, 405} and (await client.peek(queue)):
        raise SkippedError("there is no extension")
    expect_equal(early.status, 409, "the status of an extension before the poll")
    began, polls = time.monotonic(), [await client.poll(queue) for _ in range(2)]
    expect_equal([poll.message_id for poll in polls], [id_, later], "two polls of two messages")
    expect_status(await client.send("extend", "POST", path, {"visibilityTimeout": 60}), 200)
    while not (again := (await client.poll(queue)).message_id):
        expect(time.monotonic() - began < 5, "nothing was visible 5 s after a timeout of 1 s")
        await asyncio.sleep(0.05)
    expect_equal(again, later, "a poll after the old end of an extended message")
    expect_status(await client.send("extend", "POST", path, {"visibilityTimeout": 0}), 200)
    expect_equal((await client.poll(queue)).message_id, id_, "a poll after an extension to zero")


@checks("G-SMQ-9", level=Level.LIVE)
async def dead_letters_can_be_consumed(client: Client) -> None:
    """A dead-letter queue delivers again and again, and makes none of its own."""
    queue = await client.create(hidden_s=0, deliveries=1)
    [id_] = await _ids(client, queue, "x")
    await client.poll(queue)
    await client.poll(queue)
    dlq = (await client.describe(queue))["dlq_id"]
    client.made.append(dlq)
    got = [await client.take(dlq) for _ in range(3)]
    if got[0] is None:
        raise SkippedError("a dead-letter queue delivers nothing")
    counts = [(message or {}).get("delivery_count") for message in got]
    expect_equal(counts, [2, 3, 4], "delivery counts of a dead letter")
    expect_equal((await client.describe(dlq))["dlq_id"], None, "a dead-letter queue's dlq_id")
    expect_equal((await client.send("ack", "DELETE", f"/{dlq}/messages/{id_}")).status, 200, "the ack of a dead letter")
