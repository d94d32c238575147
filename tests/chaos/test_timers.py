"""Timers that fire while processes are killed: each once, not before its time, in the order of times."""

import asyncio
import base64
import random
from datetime import UTC, datetime
from typing import Any

import asyncpg
import httpx
import pytest
from msgspec import Struct

from spec.guarantees import Level, checks
from tests.chaos.test_kill import FAULTS, keep_killing
from tests.support.clock import eventually
from tests.support.nightly import mostly_at_night
from tests.support.processes import PATIENCE_S, Server, open_folder, serving

_CLIENTS = 4
_KILLS = 4
#: Timers between two kills.
_PROGRESS = 60
_BROKEN = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class Timer(Struct):
    """A timer that was accepted, and the times at which it is due and at which it was answered."""

    due: str
    answered: str


class Clients:
    """Clients that set, replace and cancel timers, and repeat what was not answered."""

    def __init__(self, server: Server, seed: int) -> None:
        self._server, self._seed = server, seed
        self.waiting: dict[str, Timer] = {}
        #: Cancelled or replaced by an operation that was repeated: they may have fired.
        self.open: set[str] = set()
        self.done, self.stopped = 0, asyncio.Event()

    async def run(self, client: int) -> None:
        choice = random.Random(f"{self._seed}/{client}")
        last: dict[str, str] = {}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self._server.port}", timeout=30) as http:
            number = 0
            while not self.stopped.is_set():
                number += 1
                key, txn = f"{client}-{choice.randrange(20)}", f"{client}-{number}"
                delay = choice.choice((0, 20, 300, 1000))
                operation = {"queue": "bell", "timerKey": key}
                if choice.random() < 0.2:
                    operation |= {"op": "cancel"}
                else:
                    payload = base64.b64encode(b'"%b"' % txn.encode()).decode()
                    operation |= {"op": "schedule", "txn": txn, "delayMs": delay, "partition": "p", "payload": payload}
                result = await self._answered(http, operation)
                earlier = last.pop(key, None)
                if earlier is not None and not result["first"]:
                    self.open.add(earlier)
                elif earlier is not None and result["status"] in ("rescheduled", "cancelled"):
                    del self.waiting[earlier]
                if operation["op"] == "schedule":
                    last[key] = txn
                    self.waiting[txn] = Timer(result["deliverAt"], datetime.now(UTC).isoformat()[:23] + "Z")
                self.done += 1

    async def _answered(self, http: httpx.AsyncClient, operation: dict[str, Any]) -> dict[str, Any]:
        """The result; ``first``: no earlier sending can have caused it."""
        first = True
        while True:
            try:
                response = await http.post("/api/v1/timers", json={"operations": [operation]})
            except httpx.HTTPError:
                await asyncio.sleep(0.05)  # the worker was killed
            else:
                if response.status_code == 200:
                    [result] = response.json()["results"]
                    return {**result, "first": first}
                assert response.status_code == 503, response.text
                await asyncio.sleep(0.05)  # PostgreSQL is down
            first = False


@checks("G-TIM-1", "G-TIM-2", level=Level.FAULTS)
@pytest.mark.parametrize("what", mostly_at_night(FAULTS, ["a worker"]))
def test_each_timer_fires_once_in_its_turn(what: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}, killed: {what}")
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:
        asyncio.run(_ring(server, what, seed))


async def _ring(server: Server, what: str, seed: int) -> None:
    clients, choice = Clients(server, seed), random.Random(seed)
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(4 * PATIENCE_S):
        for client in range(_CLIENTS):
            tasks.create_task(clients.run(client))
        await keep_killing(FAULTS[what], server, choice, done=lambda: clients.done, step=_PROGRESS, kills=_KILLS)
        clients.stopped.set()
    await eventually(lambda: _all_fired(server), "no waiting timers")
    connection = await asyncpg.connect(server.dsn)
    log = await connection.fetch(
        "SELECT transaction_id, created_at FROM queen.messages WHERE queue = 'bell' ORDER BY off"
    )
    await connection.close()
    _judge([(row["transaction_id"], row["created_at"].isoformat()) for row in log], clients)


def _judge(log: list[tuple[str, str]], clients: Clients) -> None:
    texts = [text for text, _ in log]
    print(f"{len(log)} messages")
    assert len(set(texts)) == len(texts)
    assert clients.waiting.keys() - clients.open <= set(texts)
    assert set(texts) <= clients.waiting.keys() | clients.open
    latest: Timer | None = None
    for text, created in log:
        timer = clients.waiting.get(text)
        if timer is None or text in clients.open:
            continue
        assert created[:23] >= timer.due[:23], (text, created, timer)
        if latest is not None and timer.due < latest.due:
            assert max(timer.answered, latest.answered) >= timer.due, (text, timer, latest)
        if latest is None or timer.due > latest.due:
            latest = timer


async def _all_fired(server: Server) -> bool:
    try:
        connection = await asyncpg.connect(server.dsn)
        waits = await connection.fetchval("SELECT EXISTS (SELECT 1 FROM queen.timers)")
        await connection.close()
    except _BROKEN:
        return False
    return not waits
