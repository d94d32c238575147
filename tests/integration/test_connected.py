"""Who is connected to a group, and how far it was behind over time."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import asyncpg

from tests.support.api import Api
from tests.support.clock import eventually
from tests.support.processes import Server
from tests.support.sockets import open_socket


async def consumers(server: Server, queue: str, group: str, query: str = "") -> dict[str, Any]:
    """On a connection of its own, so that either worker answers, which reports its own consumers first."""
    path = f"/api/v1/consumer-groups/{quote(group, safe='')}/queues/{quote(queue, safe='')}/consumers?{query}"
    status, answer = await asyncio.to_thread(server.request, "GET", path)
    assert status == 200, answer
    return dict(answer)


async def test_long_polls_and_sockets_of_a_group_are_connected_consumers(
    server: Server, api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    name, label = f"{queue}/a", f"{queue}-space"
    await api.configure(name, namespace=label)
    await api.push(name, 1, 2)
    began = datetime.now(UTC) - timedelta(seconds=2)
    async with open_socket(server.port) as socket:
        await socket.subscribe(name, consumerGroup="g", batch=2)
        batch = await socket.expect("batch")
        polls = [
            asyncio.create_task(api.pop(name, consumerGroup="g", wait=True, timeout=600_000)),
            asyncio.create_task(api.http.get(
                "/api/v1/pop", params={"namespace": label, "consumerGroup": "g", "wait": "true", "timeout": 600_000}
            )),
        ]  # fmt: skip

        async def everybody() -> list[dict[str, Any]] | None:
            found = await consumers(server, name, "g")
            assert found["total"] == len(found["consumers"])
            return list(found["consumers"]) if found["total"] == 3 else None

        first, *others = await eventually(everybody, "all three are connected")
        assert (first["kind"], first["inFlight"], first["namespace"]) == ("webSocket", 2, None)
        assert sorted((each["kind"], each["inFlight"], each["namespace"] or "") for each in others) == [
            ("longPoll", None, ""), ("longPoll", None, label),
        ]  # fmt: skip
        for each in (first, *others):
            assert each["address"].startswith("127.0.0.1:")
            assert each["workerId"] > 0
            assert began < datetime.fromisoformat(each["since"]) < datetime.now(UTC) + timedelta(seconds=1)
        assert len((await consumers(server, name, "g", "limit=1&offset=1"))["consumers"]) == 1
        await socket.acked(batch)
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)

        async def the_socket_only() -> bool:
            found = await consumers(server, name, "g")
            return [each["inFlight"] for each in found["consumers"]] == [0]

        await eventually(the_socket_only, "the long polls are gone")

    async def nobody() -> bool:
        return (await consumers(server, name, "g"))["total"] == 0

    await eventually(nobody, "the socket is gone")
    # A report of a worker that has died is not believed for ever.
    await database.execute(
        "SELECT queen.record_consumers_v1('dead:1', -1, ARRAY[$1], ARRAY[NULL], ARRAY[NULL], ARRAY['g'], "
        "ARRAY['longPoll'], ARRAY['x'], ARRAY[now()], ARRAY[NULL]::int[])", name,
    )  # fmt: skip
    assert (await consumers(server, name, "g"))["total"] == 0


async def test_the_lag_of_a_group_is_kept_by_minute(api: Api, database: "asyncpg.Connection[Any]", queue: str) -> None:
    await api.push(queue, 1, 2, 3)
    await api.pop(queue, consumerGroup="g", autoAck=True, batch=1)

    async def lag(**parameters: Any) -> list[tuple[int, bool]]:
        response = await api.http.get(f"/api/v1/consumer-groups/g/queues/{queue}/lag", params=parameters)
        assert response.status_code == 200, response.text
        found = response.json()
        assert found["bucketMinutes"] >= 1
        return [(each["lag"], each["oldestSeconds"] >= 0) for each in found["series"]]

    assert (await lag())[0] == (2, True)
    await database.execute(
        "INSERT INTO queen.group_metrics SELECT g.id, date_trunc('minute', now()) - interval '20 minutes', 9, 600 "
        "FROM queen.consumer_groups_metadata AS g JOIN queen.queues AS q ON q.id = g.queue_id WHERE q.name = $1", queue,
    )  # fmt: skip
    await api.pop(queue, consumerGroup="g", autoAck=True, batch=9)
    # What was behind in this minute stays; what is done adds nothing.
    assert (await lag())[0] == (2, True)
    assert (await lag())[-1] == (9, True)
    assert (9, True) not in await lag(**{"from": (datetime.now(UTC) - timedelta(minutes=10)).isoformat()})
    for what in ("lag", "consumers"):
        for group, name in (("unknown", queue), ("g", f"{queue}-unknown")):
            unknown = await api.http.get(f"/api/v1/consumer-groups/{group}/queues/{name}/{what}")
            assert (unknown.status_code, "unknown" in unknown.text) == (404, True)
