"""Scenarios of SQS: each puts queues into one situation and checks the answers."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeAlias

from ...guarantees import REGISTRY, Check, Level, checks
from ..lab import RefutedError, SkippedError, expect, expect_equal
from .client import Client, RefusedError

Scenario: TypeAlias = Callable[[Client], Awaitable[None]]

#: AWS counts a moment later.
_FIGURES_S, _LOOK_S = 60.0, 0.5
#: Two clocks, and the steps of one, may differ so much in a second.
_CLOCKS_S = 0.1


def all_scenarios() -> list[tuple[Check, Scenario]]:
    """Every scenario, with the guarantees that it checks."""
    here = sys.modules[__name__]
    return [(check, getattr(here, check.name)) for check in REGISTRY if check.module == __name__]


def _count(message: dict[str, Any]) -> int:
    return int(message["Attributes"]["ApproximateReceiveCount"])


async def _refused(client: Client, action: str, **given: Any) -> bool:  # noqa: ANN401 - JSON
    try:
        await client.call(action, **given)
    except RefusedError as problem:
        expect(problem.status < 500, f"{problem}")
        return True
    return False


@checks("G-SQS-1", level=Level.LIVE)
async def a_message_comes_again_until_it_is_deleted(client: Client) -> None:
    """Received, left alone for its timeout, received again and deleted."""
    url = await client.create(VisibilityTimeout="1")
    sent = await client.send(url, "tea & milk")
    first = await client.next(url)
    again = await client.next(url, VisibilityTimeout=30)
    for message in (first, again):
        expect_equal([message["MessageId"], message["Body"]], [sent["MessageId"], "tea & milk"], "the message")
    expect_equal(_count(again), 2, "the receive count of the second receive")
    await client.hide(url, again, 1)
    await client.delete(url, again)
    expect_equal(await client.receive(url, wait_s=2), [], "a receive after the deletion")


@checks("G-SQS-2", level=Level.LIVE)
async def a_message_in_flight_is_given_to_nobody_else(client: Client) -> None:
    """Ten receives at once, and one after the visibility was ended."""
    url = await client.create(fifo=True)
    await client.send(url, "a", "g")
    taken = [*await asyncio.gather(*(client.receive(url, wait_s=3) for _ in range(10)))]
    got = [message for messages in taken for message in messages]
    expect_equal([message["Body"] for message in got], ["a"], "what ten receives got of one message")
    await client.hide(url, got[0], 0)
    expect_equal(_count(await client.next(url)), 2, "the receive count after the visibility was ended")


@checks("G-SQS-1", "G-SQS-3", level=Level.LIVE)
async def groups_stay_in_order(client: Client) -> None:
    """Four groups of ten messages, six consumers."""
    url = await client.create(fifo=True)
    groups = [f"g{number}" for number in range(4)]
    for number in range(10):
        await asyncio.gather(*(client.send(url, f"{group}-{number}", group) for group in groups))
    got: dict[str, list[str]] = {group: [] for group in groups}
    held: set[str] = set()

    async def consume() -> None:
        while messages := await client.receive(url, 3, wait_s=3):
            mine = {message["Attributes"]["MessageGroupId"] for message in messages}
            expect(held.isdisjoint(mine), f"a group in flight was given to another receive: {held & mine}")
            held.update(mine)
            for message in messages:
                got[message["Attributes"]["MessageGroupId"]].append(message["Body"])
            await asyncio.sleep(0.02)
            # When the last message of a group is deleted, the server may give the group on before it has answered.
            held.difference_update(mine)
            for message in messages:
                await client.delete(url, message)

    await asyncio.gather(*(consume() for _ in range(6)))
    expect_equal(got, {group: [f"{group}-{number}" for number in range(10)] for group in groups}, "what groups got")


@checks("G-SQS-4", level=Level.LIVE)
async def a_duplicate_is_stored_once(client: Client) -> None:
    """One deduplication id, eight sendings at once, and one later."""
    url = await client.create(fifo=True)
    sends = [client.send(url, f"body {number}", "g", MessageDeduplicationId="one") for number in range(8)]
    sent = [*await asyncio.gather(*sends), await client.send(url, "late", "g", MessageDeduplicationId="one")]
    expect_equal(len({each["MessageId"] for each in sent}), 1, "how many ids nine sendings were answered with")
    expect_equal(len({each["SequenceNumber"] for each in sent}), 1, "how many sequence numbers they got")
    await client.send(url, "other", "g")
    messages = await client.receive(url, wait_s=3)
    expect_equal(len(messages), 2, "messages of nine sendings with one id and of one with another")
    expect_equal(messages[1]["Body"], "other", "the second message")


@checks("G-SQS-5", level=Level.LIVE)
async def a_receive_is_repeated(client: Client) -> None:
    """Two receives with one attempt id."""
    url = await client.create(fifo=True)
    for number in range(3):
        await client.send(url, str(number), "g")
    first = await client.receive(url, 2, wait_s=3, ReceiveRequestAttemptId="attempt")
    again = await client.receive(url, 2, ReceiveRequestAttemptId="attempt")
    for what in ("MessageId", "Body"):
        expect_equal([each[what] for each in again], [each[what] for each in first], f"{what} of the repeated receive")
    expect_equal([each["Body"] for each in first], ["0", "1"], "what the receive got")


@checks("G-SQS-6", level=Level.LIVE)
async def an_old_handle_deletes_nothing(client: Client) -> None:
    """The handle of a receive whose timeout is over, when the message was received again."""
    url = await client.create(fifo=True, VisibilityTimeout="1")
    await client.send(url, "a", "g")
    old = await client.next(url)
    new = await client.next(url, VisibilityTimeout=30)
    expect_equal(_count(new), 2, "the receive count of the second receive")
    await _refused(client, "DeleteMessage", QueueUrl=url, ReceiptHandle=old["ReceiptHandle"])
    await client.hide(url, new, 0)
    expect_equal((await client.next(url))["Body"], "a", "what is received after a deletion with the old handle")


async def _dead_lettering(client: Client, receives: int) -> tuple[str, str]:
    dead = await client.create()
    policy = {"deadLetterTargetArn": await client.arn(dead), "maxReceiveCount": receives}
    return await client.create(VisibilityTimeout="1", RedrivePolicy=json.dumps(policy)), dead


@checks("G-SQS-7", level=Level.LIVE)
async def a_message_goes_to_the_dead_letter_queue(client: Client) -> None:
    """Received as often as the policy allows, and never deleted."""
    url, dead = await _dead_lettering(client, 2)
    sent = await client.send(url, "a")
    counts = [_count(await client.next(url)) for _ in range(2)]
    expect_equal(counts, [1, 2], "the receive counts")
    until = time.monotonic() + 30
    while not (letters := await client.receive(dead, wait_s=1)):
        expect_equal(await client.receive(url), [], "a receive after the last one")
        expect(time.monotonic() < until, "no dead letter came within 30 s")
    expect_equal([[each["MessageId"], each["Body"]] for each in letters], [[sent["MessageId"], "a"]], "the dead letter")


@checks("G-SQS-8", level=Level.LIVE)
async def a_delayed_message_comes_when_its_delay_is_over(client: Client) -> None:
    """A delay of the message and one of the queue."""
    delayed, plain = await client.create(DelaySeconds="2"), await client.create()
    for url, seconds in ((delayed, None), (plain, 2)):
        began = time.monotonic()
        await client.send(url, "a", DelaySeconds=seconds)
        await client.next(url)
        passed = time.monotonic() - began
        expect(passed >= 2 - _CLOCKS_S, f"a message with a delay of 2 s came after {passed:.2f} s")


@checks("G-SQS-10", level=Level.LIVE)
async def a_move_task_moves_each_message_once(client: Client) -> None:
    """Five dead letters, moved to a queue of their own."""
    url, dead = await _dead_lettering(client, 1)
    bodies = [str(number) for number in range(5)]
    for body in bodies:
        await client.send(url, body)
    received: list[dict[str, Any]] = []
    while len(received) < 5:
        received += [await client.next(url)]
    until = time.monotonic() + 30
    while (await _figures(client, dead))[0] < 5:
        await client.receive(url)  # some servers look for dead letters when they are asked
        expect(time.monotonic() < until, "not all messages were dead letters within 30 s")
        await asyncio.sleep(_LOOK_S)
    other = await client.create()
    await client.call("StartMessageMoveTask", SourceArn=await client.arn(dead), DestinationArn=await client.arn(other))
    moved: list[str] = []
    while len(moved) < 5:
        message = await client.next(other)
        moved.append(message["Body"])
        await client.delete(other, message)
    expect_equal(sorted(moved), bodies, "what was moved")
    expect_equal(await client.receive(other, wait_s=2), [], "what was moved twice")
    expect_equal(await client.receive(dead, wait_s=1), [], "what stayed in the source")


async def _figures(client: Client, url: str) -> list[int]:
    names = [f"ApproximateNumberOfMessages{state}" for state in ("", "NotVisible", "Delayed")]
    told = (await client.call("GetQueueAttributes", QueueUrl=url, AttributeNames=names))["Attributes"]
    return [int(told[name]) for name in names]


@checks("G-SQS-11", level=Level.LIVE)
async def figures_are_exact_at_rest(client: Client) -> None:
    """Two visible messages, one in flight, one delayed."""
    url = await client.create()
    for body in "abc":
        await client.send(url, body)
    await client.send(url, "d", DelaySeconds=900)
    taken = await client.receive(url, 1, wait_s=5, VisibilityTimeout=600)
    expect_equal(len(taken), 1, "messages of a receive of one")
    until = time.monotonic() + _FIGURES_S
    while (found := await _figures(client, url)) != [2, 1, 1]:
        expect(time.monotonic() < until, f"visible, in flight and delayed are {found}, not [2, 1, 1]")
        await asyncio.sleep(_LOOK_S)


@checks("G-SQS-12", level=Level.LIVE)
async def a_handle_is_not_made_by_clients(client: Client) -> None:
    """A handle with one character changed, and that of another queue."""
    one, other = await client.create(), await client.create()
    for url in (one, other):
        await client.send(url, "a")
    message, stranger = await client.next(one), await client.next(other)
    handle, middle = message["ReceiptHandle"], len(message["ReceiptHandle"]) // 2
    changed = f"{handle[:middle]}{'A' if handle[middle] != 'A' else 'B'}{handle[middle + 1 :]}"
    for forged in (changed, stranger["ReceiptHandle"], "invented"):
        refused = await _refused(client, "DeleteMessage", QueueUrl=one, ReceiptHandle=forged)
        expect(refused, f"a deletion with the handle {forged[:40]} was accepted")
    await client.hide(one, message, 0)
    expect_equal((await client.next(one))["Body"], "a", "the message after the deletions")


@checks("G-SQS-13", level=Level.LIVE)
async def a_wrong_signature_is_refused(client: Client) -> None:
    """A known key with another secret, and an unknown key."""
    if not client.keys.given:
        raise SkippedError("needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of a key that the server knows")
    await client.call("ListQueues", MaxResults=1)
    for keys in (replace(client.keys, secret="wrong"), replace(client.keys, key_id="unknown")):  # noqa: S106
        try:
            await replace(client, keys=keys).call("ListQueues", MaxResults=1)
        except RefusedError as problem:
            expect_equal(problem.status // 100, 4, f"the class of the status of {problem.code}")
        else:
            raise RefutedError(f"a request of {keys.key_id} with a wrong signature was accepted")
