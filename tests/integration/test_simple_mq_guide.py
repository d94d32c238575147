"""The examples of docs/simple-mq.md, as they stand there."""

import re
from typing import Any

import httpx

from tests.support.api import open_client
from tests.support.clock import eventually
from tests.support.guides import code, request_of
from tests.support.processes import ROOT, Server

_QUEUE = {"queueName": "orders", "queueSize": 10, "visibilityTimeout": 0, "maxDeliveries": 1}


def blocks() -> list[list[str]]:
    """The lines of each example that asks a server."""
    found = [block.splitlines() for block in code(ROOT / "docs" / "simple-mq.md", "sh")]
    return [lines for lines in found if any(line.startswith("curl") for line in lines)]


class Reader:
    """Does what a reader does: types the lines, and fills in the ids that it was told."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.told: dict[str, str] = {}

    async def type(self, lines: list[str]) -> None:
        """Each line is answered with success."""
        for line in lines:
            if line.startswith("Q="):
                assert "queue_id" in self.told
            elif line and not line.startswith("#"):
                queue = f"localhost:6632/api/queues/{self.told.get('queue_id')}"
                filled = re.sub(r"<(\w+)>", lambda match: self.told[match[1]], line).replace("$Q", queue)
                assert "<" not in filled, line
                method, path, body = request_of(filled)
                answer = await self._http.request(method, path, content=body, headers={"Accept": "application/json"})
                assert answer.status_code in (200, 201), f"{line}: {answer.status_code} {answer.text}"
                if answer.content:
                    self._remember(answer.json())

    def _remember(self, told: Any) -> None:
        """The ids of an answer, however deep; of several the first."""
        if isinstance(told, list):
            for each in reversed(told):
                self._remember(each)
        elif isinstance(told, dict):
            for name, value in told.items():
                if isinstance(value, str) and name in {"queue_id", "message_id", "dlq_id"}:
                    self.told[name] = value
                else:
                    self._remember(value)


async def test_every_example_of_the_guide_works(server: Server) -> None:
    first, dead_letters, beyond = blocks()
    async with open_client(server.port) as http:
        reader = Reader(http)
        await reader.type(first)
        used = reader.told["queue_id"]
        # A dead letter, sooner than after three timeouts of thirty seconds.
        reader.told["queue_id"] = queue = (await http.post("/api/queues", json=_QUEUE)).json()["queue_id"]
        await http.post(f"/api/queues/{queue}/messages", json={"data": "x"})
        dlq = await eventually(lambda: _dead_letter(http, queue), "a dead letter")
        reader.told["dlq_id"] = dlq
        await reader.type(dead_letters)
        reader.told["queue_id"] = used
        await reader.type(beyond)
        for each in (queue, dlq):
            assert (await http.delete(f"/api/queues/{each}")).status_code == 200
        assert (await http.get(f"/api/queues/{used}")).status_code == 404


async def _dead_letter(http: httpx.AsyncClient, queue: str) -> str:
    await http.get(f"/api/queues/{queue}/messages")
    return str((await http.get(f"/api/queues/{queue}")).json()["dlq_id"] or "")
