"""Cron schedules: one message per time, also if two workers fire them, and what catch-up says after an outage."""

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from queen.core.errors import TooSlowError
from queen.engine.schedules import Firing, fire_due
from queen.postgres.setup import prepare
from queen.postgres.timers import SchedulesStore
from spec.guarantees import Level, checks
from tests.integration.test_timers import at, popped
from tests.support.api import Api
from tests.support.processes import Server
from tests.support.servers import create_database, drop_database

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


async def set_schedule(api: Api, **fields: Any) -> dict[str, Any]:
    response = await api.http.post("/api/v1/schedules", json=fields)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


@checks("G-TIM-3", level=Level.LIVE)
async def test_a_schedule_is_set_listed_fired_and_deleted(
    api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    made = await set_schedule(
        api,
        queue=queue,
        name="every/minute",
        cron="* * * * *",
        timeZone="Europe/Berlin",
        payload={"n": 1},
        catchUp=0,
        headers={"type": "tick"},
    )
    assert datetime.fromisoformat(made["nextAt"]) - datetime.now(UTC) <= timedelta(seconds=61)
    await set_schedule(api, queue=queue, name="yearly", cron="0 0 1 1 *", partition="p")
    await set_schedule(api, queue=queue, name="yearly", cron="0 0 2 1 *", partition="p")
    listed = (await api.http.get("/api/v1/schedules", params={"queue": queue})).json()["schedules"]
    assert [(each["name"], each["cron"], each["catchUp"], each["payload"]) for each in listed] == [
        ("every/minute", "* * * * *", 0, {"n": 1}), ("yearly", "0 0 2 1 *", 1, None)
    ]  # fmt: skip
    assert [each.get("headers") for each in listed] == [{"type": "tick"}, None]
    await database.execute(
        "UPDATE queen.schedules SET last_at = clock_timestamp() - interval '1 min', next_at = clock_timestamp()"
        " WHERE name = 'every/minute' AND queue_id = (SELECT id FROM queen.queues WHERE name = $1)",
        queue,
    )
    message = (await popped(api, queue, 1))[0]
    assert (message["data"], message["headers"]) == ({"n": 1}, {"type": "tick"})
    assert message["transactionId"].startswith("every/minute@20")
    assert message["transactionId"].endswith(":00Z")
    place = f"/api/v1/schedules/{queue}/every/minute"
    assert (await api.http.delete(place)).json() == {"success": True, "queue": queue, "name": "every/minute"}
    assert (await api.http.delete(place)).status_code == 404
    await api.delete(queue)
    assert await database.fetchval("SELECT count(*) FROM queen.schedules WHERE name = 'yearly'") == 0


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"cron": "* * * *"}, "cron"), ({"cron": f"{'0,' * 200}0 * * * *"}, "cron"),
        ({"cron": 5}, "cron"), ({"timeZone": "Mars/Olympus"}, "timeZone"),
        ({"catchUp": -1}, "catchUp"), ({"catchUp": 1001}, "catchUp"), ({"catchUp": 1.5}, "catchUp"),
        ({"name": ""}, "name"), ({"name": "n" * 201}, "name"), ({"queue": ""}, "queue"),
        ({"partition": ""}, "partition"), ({"headers": {"": "x"}}, "headers"), ({"headers": {"a": 1}}, "headers[...]"),
        ({"delaySeconds": 1}, ""),
    ],
)  # fmt: skip
async def test_a_bad_schedule_is_refused_with_its_field(
    api: Api, queue: str, fields: dict[str, Any], field: str
) -> None:
    response = await api.http.post(
        "/api/v1/schedules", json={"queue": queue, "name": "n", "cron": "* * * * *", **fields}
    )
    assert response.status_code == 400, response.text
    assert response.json().get("field", "") == field
    assert (await api.http.get("/api/v1/schedules", params={"queue": queue})).json()["schedules"] == []


@pytest.fixture
async def alone(server: Server) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """A connection to a database of its own, in which only the test fires schedules."""
    url = await create_database(server.dsn)
    await prepare(url, 10_000)
    connection = await asyncpg.connect(url)
    yield connection
    await connection.close()
    await drop_database(server.dsn, url)


async def fired(connection: "asyncpg.Connection[Any]") -> list[str]:
    rows = await connection.fetch("SELECT * FROM queen.timers ORDER BY deliver_at, seq")
    assert all(json.loads(row["message"]) == {"transactionId": row["transaction_id"], "payload": 1} for row in rows)
    await connection.execute("DELETE FROM queen.timers")
    return [row["transaction_id"][-9:-4] for row in rows]


@checks("G-TIM-3", level=Level.LIVE)
@pytest.mark.parametrize(("catch_up", "made_up"), [(0, []), (1, ["00:29"]), (3, ["00:27", "00:28", "00:29"])])
async def test_each_time_fires_once_and_missed_ones_as_catch_up_says(
    alone: "asyncpg.Connection[Any]", catch_up: int, made_up: list[str]
) -> None:
    store: Any = SchedulesStore(alone)  # type: ignore[arg-type] - fetches as a pool does
    await alone.execute(
        "SELECT queen.set_schedule_v1('q', 's', '* * * * *', 'UTC', $1, 'p', '{\"payload\":1}', $2, $3, version)"
        " FROM queen.push_options",
        catch_up, BEGIN, BEGIN + timedelta(minutes=1),
    )  # fmt: skip
    await at(alone, 59)
    assert await fire_due(store) == 0
    await at(alone, 60)
    [seen] = await store.due(10)
    assert await fire_due(store) == 1
    assert not await store.fire([Firing(seen, [BEGIN], BEGIN, BEGIN)]), "another worker has fired it"
    assert await fire_due(store) == 0
    assert await fired(alone) == ["00:01"]
    await at(alone, 125)
    assert await fire_due(store) == 1
    assert await fired(alone) == ["00:02"]
    await at(alone, 30 * 60 + 30)  # nothing ran for 28 minutes
    assert await fire_due(store) == 1
    assert await fired(alone) == [*made_up, "00:30"]
    assert await alone.fetchval("SELECT next_at FROM queen.schedules") == BEGIN + timedelta(minutes=31)


@checks("G-TIM-3", level=Level.LIVE)
async def test_a_schedule_that_cannot_be_fired_holds_up_no_other_and_misses_nothing(
    alone: "asyncpg.Connection[Any]",
) -> None:
    """Its time zone is unknown on this machine."""
    store: Any = SchedulesStore(alone)  # type: ignore[arg-type]
    for name, zone in (("bad", "Mars/Olympus"), ("good", "UTC")):
        await alone.execute(
            "SELECT queen.set_schedule_v1('q', $1, '* * * * *', $2, 5, 'p', '{\"payload\":1}', $3, $4, version)"
            " FROM queen.push_options",
            name, zone, BEGIN, BEGIN + timedelta(minutes=1),
        )  # fmt: skip
    await at(alone, 60)
    assert await fire_due(store) == 2
    assert await fired(alone) == ["00:01"]
    assert await fire_due(store) == 0
    await alone.execute("UPDATE queen.schedules SET time_zone = 'UTC' WHERE name = 'bad'")
    await at(alone, 120)
    assert await fire_due(store) == 2
    assert sorted(await fired(alone)) == ["00:01", "00:02", "00:02"]


async def set_schedules(connection: "asyncpg.Connection[Any]", cron: str, *names: str, catch_up: int = 1) -> None:
    for name in names:
        await connection.execute(
            "SELECT queen.set_schedule_v1('q', $1, $2, 'UTC', $3, 'p', '{\"payload\":1}', $4, $5, version)"
            " FROM queen.push_options",
            name, cron, catch_up, BEGIN, BEGIN + timedelta(minutes=1),
        )  # fmt: skip


class Counting(SchedulesStore):
    """Counts the calls, and refuses one with a schedule of a name."""

    calls = 0
    refused = ""

    async def fire(self, firings: Sequence[Firing]) -> int:
        self.calls += 1
        if any(each.schedule.name == self.refused and each.times for each in firings):
            raise TooSlowError("too large")
        return await super().fire(firings)


@checks("G-TIM-3", level=Level.LIVE)
async def test_schedules_that_are_due_together_are_fired_in_one_call(alone: "asyncpg.Connection[Any]") -> None:
    store = Counting(alone)  # type: ignore[arg-type]
    await set_schedules(alone, "* * * * *", *[f"s{number}" for number in range(100)])
    await at(alone, 60)
    assert (await fire_due(store), store.calls) == (100, 1)
    assert await fired(alone) == ["00:01"] * 100
    # One that cannot be fired with the others, as its messages are too large.
    store.refused = "s5"
    await at(alone, 120)
    assert await fire_due(store) == 100
    assert await fired(alone) == ["00:02"] * 99
    assert await fire_due(store) == 0
    store.refused = ""
    await at(alone, 180)
    assert await fire_due(store) == 100
    assert sorted(await fired(alone)) == ["00:02", *["00:03"] * 100]


@checks("G-TIM-3", level=Level.LIVE)
async def test_what_was_read_of_a_schedule_that_was_changed_does_not_fire(alone: "asyncpg.Connection[Any]") -> None:
    """Also if the new one has the same next time."""
    store = SchedulesStore(alone)  # type: ignore[arg-type]
    await set_schedules(alone, "* * * * *", "s")
    await at(alone, 60)
    [seen] = await store.due(10)
    stale = [Firing(seen, [seen.next_at], seen.now, seen.next_at + timedelta(minutes=1))]
    await set_schedules(alone, "*/1 * * * *", "s")
    assert await store.fire(stale) == 0
    await set_schedules(alone, "* * * * *", "s", catch_up=0)
    assert await store.fire(stale) == 0
    await set_schedules(alone, "* * * * *", "s")
    await alone.execute("UPDATE queen.schedules SET last_at = last_at + interval '1 s'")
    assert await store.fire(stale) == 0, "it was deleted and set again"
    await alone.execute("UPDATE queen.schedules SET last_at = $1", BEGIN)
    assert await store.fire(stale) == 1
    assert await fired(alone) == ["00:01"]
