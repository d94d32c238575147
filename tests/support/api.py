"""The HTTP operations, tersely: for tests that talk to a running server."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

#: Above the longest poll of any test.
TIMEOUT_S = 240.0
#: New connections until a certain worker has accepted one: a busy machine hands many in a row to the same.
_CONNECTIONS_MAX = 500

Message = dict[str, Any]


@dataclass
class Popped:
    """What a pop delivered; nothing after a 204."""

    messages: list[Message] = field(default_factory=list)
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lease(self) -> str:
        return str(self.body["leaseId"])

    @property
    def data(self) -> list[Any]:
        """The payloads, in the order of the answer."""
        return [message["data"] for message in self.messages]


def pop_path(queue: str, partition: str | None = None) -> str:
    """The path of a pop, with everything in the names percent-encoded."""
    path = f"/api/v1/pop/queue/{quote(queue, safe='')}"
    return path if partition is None else f"{path}/partition/{quote(partition, safe='')}"


def query(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as text; ``None`` is left out."""
    texts = {True: "true", False: "false"}
    return {
        name: texts[value] if isinstance(value, bool) else str(value)
        for name, value in parameters.items()
        if value is not None
    }


def ack_of(message: Message, status: str | None = None, **fields: Any) -> dict[str, Any]:
    """An acknowledgment of a delivered message; ``fields`` replace or add, and ``None`` takes a field away."""
    own = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
    return {name: value for name, value in {**own, "status": status, **fields}.items() if value is not None}


class Api:
    """The operations over one client, with the status that each must have."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def push_items(self, items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        response = await self.http.post("/api/v1/push", json={"items": items})
        assert response.status_code == 201, response.text
        results: list[dict[str, Any]] = response.json()
        assert [result["index"] for result in results] == list(range(len(items)))
        return results

    async def push(
        self, queue: str, *payloads: Any, partition: str | None = None, ids: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        place = {"queue": queue} if partition is None else {"queue": queue, "partition": partition}
        items = [{**place, "payload": payload} for payload in payloads]
        for item, chosen in zip(items, ids or (), strict=ids is not None):
            item["transactionId"] = chosen
        return await self.push_items(items)

    async def pop(self, queue: str, partition: str | None = None, **parameters: Any) -> Popped:
        return popped(await self.http.get(pop_path(queue, partition), params=query(parameters)))

    async def pop_label(self, **parameters: Any) -> Popped:
        return popped(await self.http.get("/api/v1/pop", params=query(parameters)))

    async def ack_items(self, items: Sequence[Mapping[str, Any]], group: str | None = None) -> list[dict[str, Any]]:
        body = {"acknowledgments": items, "consumerGroup": group}
        response = await self.http.post("/api/v1/ack/batch", json=body)
        assert response.status_code == 200, response.text
        results: list[dict[str, Any]] = response.json()
        assert [result["index"] for result in results] == list(range(len(items)))
        return results

    async def ack(self, messages: Sequence[Message], status: str = "completed", **fields: Any) -> list[dict[str, Any]]:
        """Acknowledges messages of one pop, each with the same status."""
        return await self.ack_items(
            [ack_of(message, status, **fields) for message in messages], messages[0]["consumerGroup"]
        )

    async def ack_and_pop(self, messages: Sequence[Message], **pop: Any) -> dict[str, Any]:
        """Completes messages and asks for the next ones in one request."""
        group = messages[0]["consumerGroup"] if messages else None
        body = {"acknowledgments": [ack_of(message) for message in messages], "consumerGroup": group, "pop": pop}
        response = await self.http.post("/api/v1/ack/batch", json=body)
        assert response.status_code == 200, response.text
        return dict(response.json())

    async def extend(self, lease: str, seconds: int | None = None) -> dict[str, Any]:
        body = None if seconds is None else {"seconds": seconds}
        response = await self.http.post(f"/api/v1/lease/{quote(lease, safe='')}/extend", json=body)
        assert response.status_code == 200, response.text
        return dict(response.json())

    async def transact(self, operations: Sequence[Mapping[str, Any]], **fields: Any) -> dict[str, Any]:
        response = await self.http.post("/api/v1/transaction", json={"operations": operations, **fields})
        assert response.status_code == 200, response.text
        return dict(response.json())

    async def configure(self, queue: str, *, namespace: str = "", task: str = "", **options: Any) -> dict[str, Any]:
        body = {"queue": queue, "namespace": namespace, "task": task, "options": options}
        response = await self.http.post("/api/v1/configure", json=body)
        assert response.status_code == 200, response.text
        return dict(response.json())

    async def delete(self, queue: str) -> dict[str, Any]:
        response = await self.http.delete(f"/api/v1/resources/queues/{quote(queue, safe='')}")
        assert response.status_code == 200, response.text
        return dict(response.json())

    async def worker(self) -> int:
        """The process id of the worker that answers."""
        return int((await self.http.get("/health")).json()["worker_id"])


def popped(response: httpx.Response) -> Popped:
    """The answer to a pop, which has a body exactly if it has messages."""
    if response.status_code == 204:
        assert response.content == b""
        return Popped()
    assert response.status_code == 200, response.text
    body = response.json()
    assert body["success"] is True
    assert body["messages"], "an empty pop is a 204"
    return Popped(body["messages"], body)


def open_client(port: int, connections: int | None = None) -> httpx.AsyncClient:
    """A client; with one connection it stays with the worker that has accepted it."""
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}",
        timeout=TIMEOUT_S,
        verify=False,
        trust_env=False,
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=60),
    )


@asynccontextmanager
async def api_of(port: int, pid: int) -> AsyncIterator[Api]:
    """A client whose one connection is to a certain worker. Use it at once: idle connections are closed."""
    async with AsyncExitStack() as stack:
        for _ in range(_CONNECTIONS_MAX):
            api = Api(await stack.enter_async_context(open_client(port, 1)))
            if await api.worker() == pid:
                yield api
                return
        raise AssertionError(f"{_CONNECTIONS_MAX} connections, and none to worker {pid}")


@asynccontextmanager
async def worker_apis(port: int, workers: int = 2) -> AsyncIterator[list[Api]]:
    """One client for each worker, each with one connection. Use it at once: idle connections are closed."""
    async with AsyncExitStack() as stack:
        found: dict[int, Api] = {}
        for _ in range(_CONNECTIONS_MAX):
            api = Api(await stack.enter_async_context(open_client(port, 1)))
            found.setdefault(await api.worker(), api)
            if len(found) == workers:
                break
        assert len(found) == workers, f"{_CONNECTIONS_MAX} connections reached only {set(found)}"
        pids = {pid: await api.worker() for pid, api in found.items()}
        assert all(pid == now for pid, now in pids.items()), "a connection was closed meanwhile"
        yield list(found.values())
