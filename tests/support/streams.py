"""The stream operations, tersely, and a small worker that uses them as the published client does."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.api import Api, Message


def upsert(key: str, value: Any) -> dict[str, Any]:
    return {"type": "upsert", "key": key, "value": value}


def delete(key: str) -> dict[str, Any]:
    return {"type": "delete", "key": key}


class Streams:
    """Registrations, cycles and reads over one client."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def post(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        response = await self.api.http.post(f"/streams/v1/{path}", json=body)
        return response.status_code, response.json()

    async def register(self, name: str, source: str, config_hash: str = "h", **fields: Any) -> dict[str, Any]:
        body = {"name": name, "source_queue": source, "config_hash": config_hash, **fields}
        status, answer = await self.post("queries", body)
        assert status == 200, answer
        return answer

    async def cycle(self, query_id: str, partition_id: str, **fields: Any) -> dict[str, Any]:
        status, answer = await self.post("cycle", {"query_id": query_id, "partition_id": partition_id, **fields})
        assert status == 200, answer
        return answer

    async def state(self, query_id: str, partition_id: str, **fields: Any) -> dict[str, Any]:
        """Values by key."""
        status, answer = await self.post("state/get", {"query_id": query_id, "partition_id": partition_id, **fields})
        assert (status, answer["success"]) == (200, True), answer
        return {row["key"]: row["value"] for row in answer["rows"]}

    async def commit(
        self,
        query_id: str,
        messages: Sequence[Message],
        ops: Sequence[Mapping[str, Any]] = (),
        pushes: Sequence[Mapping[str, Any]] = (),
        **fields: Any,
    ) -> dict[str, Any]:
        """The cycle that ends the work on messages of one partition."""
        return await self.cycle(query_id, messages[0]["partitionId"], **cycle_of(messages, ops, pushes, **fields))


def cycle_of(
    messages: Sequence[Message],
    ops: Sequence[Mapping[str, Any]] = (),
    pushes: Sequence[Mapping[str, Any]] = (),
    **fields: Any,
) -> dict[str, Any]:
    """The fields of such a cycle beside the ids of query and partition."""
    last = messages[-1]
    ack = {"transactionId": last["transactionId"], "leaseId": last["leaseId"], "count": len(messages)}
    return {
        "consumer_group": last["consumerGroup"],
        "state_ops": list(ops),
        "push_items": list(pushes),
        "ack": ack,
        **fields,
    }
