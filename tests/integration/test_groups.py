"""Consumer groups over HTTP: independent of each other, and where they start."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, ack_of, pop_path

YEAR = timedelta(days=365)


async def take(api: Api, queue: str, group: str, **parameters: Any) -> list[Any]:
    popped = await api.pop(queue, consumerGroup=group, batch=100, partitions=100, autoAck=True, **parameters)
    return popped.data


async def created_at(api: Api, queue: str) -> list[str]:
    """The times of the messages, by a group that does nothing else."""
    popped = await api.pop(queue, consumerGroup="clock", batch=100, subscriptionMode="all")
    return [message["createdAt"] for message in popped.messages]


@checks("G-GRP-1", level=Level.LIVE)
async def test_group_sees_everything_whatever_others_do(workers: list[Api], queue: str) -> None:
    await workers[0].push(queue, *range(5))
    taken = (await workers[1].pop(queue, batch=2)).messages
    await workers[0].ack(taken)
    held = await workers[0].pop(queue, batch=100, consumerGroup="a")
    for n, api in enumerate(workers):
        assert await take(api, queue, f"b{n}") == list(range(5))
    assert held.data == list(range(5))
    (result,) = await workers[1].ack_items([ack_of(held.messages[0], "dlq")], "a")
    assert result["success"] is True
    assert await take(workers[0], queue, "") == [2, 3, 4]
    assert await take(workers[1], queue, "c") == list(range(5))


@checks("G-GRP-1", "G-LEASE-3", level=Level.LIVE)
async def test_group_cannot_ack_with_the_lease_of_another(api: Api, queue: str) -> None:
    await api.push(queue, 1)
    own, other = [await api.pop(queue, consumerGroup=group) for group in "ab"]
    (result,) = await api.ack_items([ack_of(own.messages[0])], "b")
    assert (result["success"], result["error"]) == (False, "Invalid or expired lease")
    assert (await api.ack(other.messages))[0]["success"] is True
    assert (await api.ack(own.messages))[0]["success"] is True


@checks("G-GRP-2", level=Level.LIVE)
@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, ["old", "new"]),
        ({"subscriptionMode": "all"}, ["old", "new"]),
        ({"subscriptionMode": ""}, ["old", "new"]),
        ({"subscriptionMode": "from_beginning"}, ["old", "new"]),
        ({"subscriptionMode": "NEW"}, ["old", "new"]),
        ({"subscriptionMode": "new"}, ["new"]),
        ({"subscriptionMode": "new-only"}, ["new"]),
        ({"subscriptionFrom": "now"}, ["new"]),
        ({"subscriptionFrom": "now", "subscriptionMode": "all"}, ["new"]),
        ({"subscriptionFrom": "2020-01-01T00:00:00Z", "subscriptionMode": "new"}, ["old", "new"]),
        ({"subscriptionFrom": "2020-01-01T00:00:00.123+02:00"}, ["old", "new"]),
        ({"subscriptionFrom": "2020-01-01"}, ["old", "new"]),
    ],
)
async def test_group_starts_where_its_first_pop_says_and_stays(
    workers: list[Api], queue: str, parameters: dict[str, str], expected: list[str]
) -> None:
    first, second = workers
    await first.push(queue, "old")
    popped = await first.pop(queue, "unknown", consumerGroup="g", **parameters)
    assert popped.messages == []
    await second.push(queue, "new")
    for contrary in ({"subscriptionMode": "new"}, {"subscriptionMode": "all"}):
        await second.pop(queue, "unknown", consumerGroup="g", **contrary)
    assert await take(second, queue, "g", subscriptionMode="all") == expected


@checks("G-GRP-2", level=Level.LIVE)
async def test_group_from_a_time_starts_after_the_last_message_not_younger(api: Api, queue: str) -> None:
    for n in range(3):
        await api.push(queue, n)
    times = await created_at(api, queue)
    assert await take(api, queue, "at", subscriptionFrom=times[1]) == [2]
    before = datetime.fromisoformat(times[1]) - timedelta(microseconds=1)
    assert await take(api, queue, "before", subscriptionFrom=before.isoformat()) == [1, 2]
    assert await take(api, queue, "naive", subscriptionFrom=times[0].removesuffix("Z")) == [1, 2], "it is UTC"


@checks("G-GRP-3", level=Level.LIVE)
async def test_group_new_gets_partitions_made_later_whole(workers: list[Api], queue: str) -> None:
    first, second = workers
    await first.push(queue, "old", partition="a")
    assert await take(second, queue, "g", subscriptionMode="new") == []
    await first.push(queue, "whole-1", "whole-2", partition="b")
    await first.push(queue, "after", partition="a")
    assert sorted(await take(second, queue, "g")) == ["after", "whole-1", "whole-2"]


@checks("G-GRP-3", level=Level.LIVE)
async def test_group_from_a_future_time_gets_nothing_before_it(api: Api, queue: str) -> None:
    await api.push(queue, "old")
    start = datetime.now(UTC) + timedelta(seconds=1)
    parameters = {"subscriptionFrom": start.isoformat(), "consumerGroup": "g"}
    waiting = asyncio.create_task(api.pop(queue, wait=True, timeout=50_000, batch=100, partitions=9, **parameters))
    pushed = 0
    while datetime.now(UTC) < start + timedelta(seconds=0.2):
        await api.push(queue, pushed, partition=f"p{pushed % 3}")
        pushed += 1
    messages = (await waiting).messages
    assert messages
    assert all(datetime.fromisoformat(message["createdAt"]) > start for message in messages)


@checks("G-GRP-2", level=Level.LIVE)
@pytest.mark.parametrize(
    "moment", [datetime(1, 1, 1, tzinfo=UTC), datetime.now(UTC) + 100 * YEAR], ids=["past", "future"]
)
async def test_group_from_a_time_long_ago_or_far_away_is_possible(api: Api, queue: str, moment: datetime) -> None:
    await api.push(queue, 1)
    expected = [1] if moment < datetime.now(UTC) else []
    assert await take(api, queue, "g", subscriptionFrom=moment.isoformat()) == expected


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-14:00", "-infinity", "infinity", "0000-01-01"]
)
async def test_group_from_a_time_out_of_range_is_an_answer_or_a_400(api: Api, queue: str, text: str) -> None:
    await api.push(queue, 1)
    response = await api.http.get(pop_path(queue), params={"consumerGroup": "g", "subscriptionFrom": text})
    assert response.status_code in (200, 204, 400), response.text
    if response.status_code == 400:
        assert response.json()["field"] == "subscriptionFrom"


@checks("G-GRP-1", level=Level.LIVE)
async def test_groups_consuming_at_once_each_get_everything_once(api: Api, queue: str) -> None:
    number, groups = 60, [f"g{n}" for n in range(6)]

    async def consume(group: str) -> list[int]:
        found: list[int] = []
        while len(found) < number:
            popped = await api.pop(
                queue, consumerGroup=group, subscriptionMode="all", batch=7, wait=True, timeout=50_000
            )
            assert popped.messages, f"{group} has {len(found)}"
            found += popped.data
            assert all(result["success"] for result in await api.ack(popped.messages))
        return found

    consuming = [asyncio.create_task(consume(group)) for group in groups]
    for n in range(number):
        await api.push(queue, n)
    assert await asyncio.gather(*consuming) == [list(range(number))] * len(groups)


@checks("G-GRP-1", "G-GRP-3", "G-ORD-2", level=Level.LIVE)
async def test_groups_that_begin_while_partitions_are_made_miss_none(workers: list[Api], api: Api, queue: str) -> None:
    names = [f"p{n}" for n in range(120)]
    groups = [f"g{n}" for n in range(8)]
    found: dict[str, list[tuple[str, int]]] = {group: [] for group in groups}

    async def push() -> None:
        for n, name in enumerate(names):
            await workers[n % 2].push(queue, 0, 1, partition=name)

    async def begin(number: int) -> None:
        while not made(5 + 12 * number):
            await asyncio.sleep(0)
        await take_into(number, 10)

    def made(number: int) -> bool:
        return pushing.done() or progress.get("made", 0) >= number

    progress: dict[str, int] = {}

    async def follow() -> None:
        while not pushing.done():
            popped = await api.pop(queue, consumerGroup="follower", batch=1000, partitions=1000, autoAck=True)
            progress["made"] = progress.get("made", 0) + len(popped.messages) // 2

    async def take_into(number: int, partitions: int) -> int:
        popped = await api.pop(queue, consumerGroup=groups[number], batch=1000, partitions=partitions, autoAck=True)
        found[groups[number]] += [(message["partition"], message["data"]) for message in popped.messages]
        return len(popped.messages)

    pushing = asyncio.create_task(push())
    await asyncio.gather(pushing, follow(), *[begin(n) for n in range(len(groups))])
    for number, group in enumerate(groups):
        while await take_into(number, 1000):
            pass
        assert sorted(found[group]) == sorted((name, n) for name in names for n in (0, 1)), group


@checks("G-GRP-2", "G-ORD-2", level=Level.LIVE)
async def test_group_new_that_begins_amid_pushes_misses_nothing_sent_after_its_first_answer(
    workers: list[Api], api: Api, queue: str
) -> None:
    await api.push(queue, "first")
    answered = asyncio.Event()
    late: list[int] = []

    async def push(worker: Api, numbers: range) -> None:
        for n in numbers:
            if answered.is_set():
                late.append(n)
            await worker.push(queue, n)

    async def begin() -> None:
        await api.pop(queue, "unknown", consumerGroup="g", subscriptionMode="new")
        answered.set()

    await asyncio.gather(push(workers[0], range(30)), push(workers[1], range(30, 60)), begin())
    messages = (await api.pop(queue, consumerGroup="g", batch=1000)).messages
    offsets = [message["offset"] for message in messages]
    assert offsets == list(range(61 - len(offsets), 61)), "the end of the log, without a gap"
    assert set(late) <= {message["data"] for message in messages}
