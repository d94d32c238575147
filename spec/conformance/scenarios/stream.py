"""Streams: cycles that ack, remember and push. Not every server has them."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from ...guarantees import Level, checks
from ...history import Delivery, Pop
from ..http import BadAnswerError
from ..lab import Lab, SkippedError, expect, expect_equal, payloads

_GROUP = "worker"


async def _ask(lab: Lab, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401 - what a server says
    answer = await lab.broker.send("POST", f"/streams/v1/{path}", body)
    if answer.status in {404, 405, 501}:
        raise SkippedError("the server has no streams (/streams/v1)")
    return answer.json()


def _field(told: Any, name: str) -> Any:  # noqa: ANN401 - as above
    if not isinstance(told, dict):
        raise BadAnswerError(f"an answer without {name}: {str(told)[:120]}")
    return told[name]


async def _register(lab: Lab, source: str) -> str:
    """A stream that reads a queue."""
    body = {"name": f"{source}-stream-{uuid4()}", "source_queue": source, "config_hash": "h"}
    return str(_field(await _ask(lab, "queries", body), "query_id"))


async def _cycle(lab: Lab, query: str, pop: Pop, count: int, target: str, *outputs: str) -> bool:
    """Ack all messages of a pop, remember how many there were, and push; whether the server says that it happened."""
    last = pop.deliveries[-1]
    body = {
        "query_id": query, "partition_id": last.partition_id, "consumer_group": _GROUP,
        "state_ops": [{"type": "upsert", "key": "count", "value": count}],
        "push_items": [{"queue": target, "partition": "Default", "payload": each} for each in outputs],
        "ack": {"transactionId": last.transaction_id, "leaseId": pop.lease, "count": len(pop.deliveries)},
    }  # fmt: skip
    told = await _ask(lab, "cycle", body)
    return isinstance(told, dict) and told.get("success") is True


async def _state(lab: Lab, query: str, message: Delivery) -> list[Any]:
    told = await _ask(lab, "state/get", {"query_id": query, "partition_id": message.partition_id})
    rows = _field(told, "rows")
    if not isinstance(rows, list):
        raise BadAnswerError(f"a state without rows: {str(told)[:120]}")
    return [[_field(row, "key"), _field(row, "value")] for row in rows]


@checks("G-STR-1", "G-STR-2", level=Level.LIVE)
async def a_cycle_happens_once_and_as_a_whole(lab: Lab) -> None:
    """Two inputs, one output, one value; then the same cycle again."""
    source = await lab.queue(leaseTime=30)
    target = await lab.beside(source)
    query = await _register(lab, source)
    await lab.push(source, 0, 1)
    pop = await lab.take(source, 0, 1, group=_GROUP)
    expect(await _cycle(lab, query, pop, 2, target, "first"), "a cycle under a live lease failed")
    expect(not await _cycle(lab, query, pop, 4, target, "second"), "a repeated cycle succeeded")
    expect_equal(await _state(lab, query, pop.deliveries[0]), [["count", 2]], "the state")
    expect_equal(payloads(await lab.contents(target)), ["first"], "the outputs")
    await lab.push(source, 2)
    expect_equal(payloads(await lab.pop(source, group=_GROUP)), [2], "the next input")


@checks("G-STR-1", "G-STR-2", level=Level.LIVE)
async def a_cycle_after_its_lease_changes_nothing(lab: Lab) -> None:
    """The input has gone to another worker."""
    source = await lab.queue(leaseTime=lab.short_s)
    target = await lab.beside(source)
    query = await _register(lab, source)
    await lab.push(source, 0)
    stale = await lab.take(source, 0, group=_GROUP)
    await lab.broker.configure(source, leaseTime=30)
    fresh = await lab.take(source, 0, group=_GROUP, wait_s=5 * lab.short_s)
    expect(not await _cycle(lab, query, stale, 1, target, "stale"), "a cycle under a stale lease succeeded")
    expect_equal(await _state(lab, query, fresh.deliveries[0]), [], "the state after a cycle that failed")
    expect(await _cycle(lab, query, fresh, 1, target, "fresh"), "a cycle under the live lease failed")
    expect_equal(payloads(await lab.contents(target)), ["fresh"], "the outputs")
