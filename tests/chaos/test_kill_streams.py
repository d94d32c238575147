"""Workers and back ends killed under streams: every input has one output, and the sums that are kept are right."""

import asyncio
import os
import random
import signal
from typing import Any

import asyncpg
import httpx
import pytest

from spec.guarantees import Level, checks
from tests.support.nightly import mostly_at_night
from tests.support.processes import Server, open_folder, serving
from tests.support.streams import cycle_of, upsert

PARTITIONS, EACH, WORKERS = 4, 60, 3
GROUP = "streams.sum"


class Worker:
    """A worker of a stream that repeats every request until it is answered, as the published client does."""

    def __init__(self, url: str, queue: str, query_id: str) -> None:
        self.queue, self.query_id = queue, query_id
        self.client = httpx.AsyncClient(base_url=url, timeout=240)
        self.committed, self.refused = 0, 0

    async def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        while True:
            try:
                response = await self.client.request(method, path, **arguments)
            except httpx.TransportError:
                pass
            else:
                if response.status_code < 500:
                    return response
            await asyncio.sleep(0.05)

    async def work(self, done: asyncio.Event) -> None:
        """Adds each batch to the sum of its partition and passes its messages on."""
        path = f"/api/v1/pop/queue/{self.queue}?consumerGroup={GROUP}&batch=7&wait=true&timeout=300"
        while not done.is_set():
            response = await self.request("GET", path)
            if response.status_code == 200:
                await self._commit(response.json()["messages"])
        await self.client.aclose()

    async def _commit(self, messages: list[dict[str, Any]]) -> None:
        place = {"query_id": self.query_id, "partition_id": messages[0]["partitionId"]}
        rows = (await self.request("POST", "/streams/v1/state/get", json=place)).json()["rows"]
        total = sum(row["value"] for row in rows) + sum(message["data"] for message in messages)
        pushes = [
            {"queue": f"{self.queue}-out", "partition": message["partition"], "payload": message["data"]}
            for message in messages
        ]
        body = {**place, **cycle_of(messages, [upsert("sum", total)], pushes)}
        answer = (await self.request("POST", "/streams/v1/cycle", json=body)).json()
        self.committed += answer["success"]
        self.refused += not answer["success"]


async def kill_workers(server: Server, _choice: random.Random) -> None:
    for pid in server.workers():
        os.kill(pid, signal.SIGKILL)


async def end_back_ends(server: Server, _choice: random.Random) -> None:
    connection = await asyncpg.connect(server.dsn)
    await connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'queen'")
    await connection.close()


async def run(server: Server, fault: Any, seed: int) -> tuple[list[Any], list[Any], list[Worker]]:
    queue, url = f"streams-{seed}", f"http://127.0.0.1:{server.port}"
    registration = {"name": queue, "source_queue": queue, "config_hash": "h"}
    query_id = server.request("POST", "/streams/v1/queries", registration)[1]["query_id"]
    items = [{"queue": queue, "partition": f"p{p}", "payload": n} for n in range(EACH) for p in range(PARTITIONS)]
    assert server.request("POST", "/api/v1/configure", {"queue": queue, "options": {"leaseTime": 2}})[0] == 200
    assert server.request("POST", "/api/v1/push", {"items": items})[0] == 201
    done, choice = asyncio.Event(), random.Random(seed)
    workers = [Worker(url, queue, query_id) for _ in range(WORKERS)]
    connection = await asyncpg.connect(server.dsn)
    outputs = "SELECT partition, payload::text::int AS n FROM queen.messages WHERE queue = $1 ORDER BY partition, off"
    async with asyncio.TaskGroup() as group:
        for worker in workers:
            group.create_task(worker.work(done))
        async with asyncio.timeout(240):
            rows: list[Any] = []
            faults = [len(items) // 5, len(items) // 2]
            while len(rows) < len(items):
                if faults and len(rows) >= faults[0]:
                    faults.pop(0)
                    await fault(server, choice)
                    await connection.close()
                    connection = await asyncpg.connect(server.dsn)
                await asyncio.sleep(0.005)
                rows = await connection.fetch(outputs, f"{queue}-out")
        done.set()
    sums = await connection.fetch(
        "SELECT s.value::text::int AS total FROM queen.stream_state AS s"
        " JOIN queen.streams AS t ON t.id = s.stream_id WHERE t.name = $1",
        queue,
    )
    rows = await connection.fetch(outputs, f"{queue}-out")
    await connection.close()
    return rows, sums, workers


@checks("G-STR-1", "G-STR-2", level=Level.FAULTS)
@pytest.mark.parametrize("fault", mostly_at_night([kill_workers, end_back_ends], [kill_workers]))
def test_killing_processes_under_streams_no_loss_no_duplicates(fault: Any) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:
        rows, sums, workers = asyncio.run(run(server, fault, seed))
    print(f"{sum(w.committed for w in workers)} cycles, {sum(w.refused for w in workers)} refused")
    for partition in range(PARTITIONS):
        assert [row["n"] for row in rows if row["partition"] == f"p{partition}"] == list(range(EACH))
    assert [row["total"] for row in sums] == [sum(range(EACH))] * PARTITIONS
