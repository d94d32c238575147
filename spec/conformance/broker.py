"""A client of the HTTP interface: every call becomes a record of the history, also failed ones."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from ..history import (
    QUEUE_MODE,
    Ack,
    AckItem,
    Delivery,
    Outcome,
    Pop,
    Push,
    PushItem,
    Record,
    Renewal,
    Transaction,
)
from .http import Answer, BadAnswerError, NoAnswerError, Server
from .pace import Pace
from .program import Exchange

REQUEST_TIMEOUT_S = 10.0
_UNAVAILABLE, _NOT_IMPLEMENTED = 503, 501
#: Statuses of what a server does not know.
NOT_OFFERED = frozenset({404, 405, 501})

Recorded = TypeVar("Recorded", bound=Record)


class NotCarriedOutError(Exception):
    """A call that should have succeeded was answered with an error."""


class UnavailableError(NotCarriedOutError):
    """The server answers that it is temporarily unavailable."""


class NotOfferedError(NotCarriedOutError):
    """The server does not know the request."""


class NoLongPollError(NotCarriedOutError):
    """The server does not support long polls."""


@dataclass
class Broker:
    """Calls of one type of client.

    Attributes:
        server: its address.
        statuses: counts of answers by (situation, status).
        strict: whether a failed call raises, instead of being recorded.
        client: the name under which calls are recorded.
        timeout_s: how long it waits for an answer, in addition to the time of a long poll.
        records: all calls so far.
        pace: records the durations of answers.
        trace: every request, with its answer.
    """

    server: Server
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    strict: bool = True
    client: str = ""
    timeout_s: float = REQUEST_TIMEOUT_S
    records: list[Record] = field(default_factory=list)
    pace: Pace = field(default_factory=Pace)
    trace: list[Exchange] | None = None

    async def send(self, method: str, path: str, body: object = None, *, wait_s: float = 0.0) -> Answer:
        """A request as it is, and the answer as it is; `body` is JSON, or bytes to be sent as they are.

        Raises:
            NoAnswerError: there was none.
            UnavailableError: it says "not at the moment", to a strict client.
            NoLongPollError: it says that it never waits, to a strict client that wants it to.
        """
        encoded = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        began = time.monotonic()
        answer: Answer | None = None
        try:
            answer = await self.server.request(method, path, encoded, timeout_s=wait_s + self.timeout_s)
        finally:
            self.pace.note(began, wait_s)
            if self.trace is not None:
                told = () if answer is None else (answer.status, answer.body)
                self.trace.append(Exchange(method, path, encoded, began, time.monotonic(), *told))
        if answer.status == _UNAVAILABLE and self.strict:
            raise UnavailableError(_refusal(method, path, answer))
        if answer.status == _NOT_IMPLEMENTED and self.strict and wait_s:
            raise NoLongPollError(_refusal(method, path, answer))
        return answer

    async def push(self, items: Sequence[PushItem]) -> Push:
        """Store messages; an item without transaction id gets that of the answer."""
        began, body = time.monotonic_ns(), {"items": [_push_body(item) for item in items]}
        answer, outcome, problem = await self._call("push", "POST", "/api/v1/push", body)
        told = _objects(answer, len(items)) if answer and outcome == "ok" else [None] * len(items)
        stored = tuple(_pushed(item, each, outcome) for item, each in zip(items, told, strict=True))
        if self.strict and any(item.spooled for item in stored):
            raise UnavailableError("a push was answered as buffered: the server cannot store it at the moment")
        return self._record(Push(**self._times(began, outcome), items=stored), problem)

    async def pop(
        self,
        queue: str,
        partition: str | None = None,
        *,
        group: str | None = None,
        mode: str = "all",
        batch: int = 1,
        partitions: int = 1,
        auto_ack: bool = False,
        wait_s: float = 0.0,
        lease_seconds: float | None = None,
    ) -> Pop:
        """Take messages. `lease_seconds` is how long the queue's leases are, and is not sent."""
        began = time.monotonic_ns()
        query = {"batch": batch, "partitions": partitions, "autoAck": "true" if auto_ack else "false"}
        query |= {"wait": "true", "timeout": int(wait_s * 1000)} if wait_s else {}
        query |= {"consumerGroup": group, "subscriptionMode": mode} if group else {}
        place = f"/api/v1/pop/queue/{quote(queue, safe='')}"
        place += f"/partition/{quote(partition, safe='')}" if partition is not None else ""
        answer, outcome, problem = await self._call("pop", "GET", f"{place}?{urlencode(query)}", wait_s=wait_s)
        lease, deliveries = popped(answer, queue) if answer and outcome == "ok" else ("", ())
        pop = Pop(
            **self._times(began, outcome), queue=queue, partition=partition, group=group or QUEUE_MODE, batch=batch,
            partitions=partitions, auto_ack=auto_ack, lease_seconds=lease_seconds, lease=lease, deliveries=deliveries,
        )  # fmt: skip
        return self._record(pop, problem)

    async def ack(self, items: Sequence[AckItem], places: Mapping[tuple[str, str], str]) -> Ack:
        """Say what became of messages of one group; `places` has the ids of their partitions."""
        began = time.monotonic_ns()
        group = items[0].group if items else QUEUE_MODE
        body = {
            "acknowledgments": [_ack_body(item, places) for item in items],
            "consumerGroup": None if group == QUEUE_MODE else group,
        }
        answer, outcome, problem = await self._call("ack", "POST", "/api/v1/ack/batch", body)
        told = _objects(answer, len(items)) if answer and outcome == "ok" else [None] * len(items)
        judged = tuple(_acked(item, each, outcome) for item, each in zip(items, told, strict=True))
        return self._record(Ack(**self._times(began, outcome), items=judged), problem)

    async def renew(self, lease: str, seconds: int) -> Renewal:
        """Ask for more time; `ok` when it was granted."""
        began, path = time.monotonic_ns(), f"/api/v1/lease/{quote(lease, safe='')}/extend"
        answer, outcome, problem = await self._call("renew", "POST", path, {"seconds": seconds})
        if answer and outcome == "ok":
            told = answer.json()
            outcome = _granted(told[0] if isinstance(told, list) and told else told)
        return self._record(Renewal(**self._times(began, outcome), lease=lease, seconds=seconds), problem)

    async def transact(
        self,
        acks: Sequence[AckItem],
        pushes: Sequence[PushItem],
        places: Mapping[tuple[str, str], str],
        required: Sequence[str] = (),
    ) -> Transaction:
        """Acks and pushes, all or none."""
        began = time.monotonic_ns()
        operations: list[dict[str, Any]] = [
            {
                "type": "ack",
                **_ack_body(item, places),
                "consumerGroup": None if item.group == QUEUE_MODE else item.group,
            }
            for item in acks
        ]
        operations += [{"type": "push", "items": [_push_body(item)]} for item in pushes]
        body = {"operations": operations, "requiredLeases": list(required)}
        answer, outcome, problem = await self._call("transaction", "POST", "/api/v1/transaction", body)
        if answer and answer.status in NOT_OFFERED and self.strict:
            raise NotOfferedError(problem)
        if answer and outcome == "ok":
            outcome = _granted(answer.json())
        transaction = Transaction(
            **self._times(began, outcome),
            pushes=tuple(replace(item, outcome=outcome) for item in pushes),
            acks=tuple(replace(item, outcome=outcome, dead=item.status != "completed") for item in acks),
        )
        return self._record(transaction, problem)

    async def configure(self, queue: str, **options: object) -> None:
        """Make a queue with options; namespace and task go where the original wants them."""
        labels: dict[str, object] = {name: options.pop(name) for name in ("namespace", "task") if name in options}
        body = {"queue": queue, **labels, "options": options}
        _, _, problem = await self._call("configure", "POST", "/api/v1/configure", body)
        if problem:
            raise NotCarriedOutError(problem)

    async def delete(self, queue: str) -> None:
        """Delete a queue."""
        path = f"/api/v1/resources/queues/{quote(queue, safe='')}"
        _, _, problem = await self._call("delete a queue", "DELETE", path)
        if problem:
            raise NotCarriedOutError(problem)

    async def dead_letters(self, queue: str) -> list[dict[str, Any]] | None:
        """The dead letters of a queue, or None where the server does not list them."""
        answer = await self.send("GET", f"/api/v1/dlq?{urlencode({'queue': queue, 'limit': 100})}")
        if answer.status != 200:
            return None
        listed = answer.json() if answer.body else []
        listed = listed.get("messages") if isinstance(listed, dict) else listed
        return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else None

    async def _call(
        self, situation: str, method: str, path: str, body: object = None, *, wait_s: float = 0.0
    ) -> tuple[Answer | None, Outcome, str]:
        """The answer, what it says of the call as a whole, and what is wrong with it."""
        try:
            answer = await self.send(method, path, body, wait_s=wait_s)
        except NoAnswerError as problem:
            if self.strict:
                raise
            return None, "unknown", str(problem)
        if situation == "pop" and answer.status < 300:
            situation = "pop, empty" if not popped(answer, "")[1] else "pop, with messages"
        self.statuses[situation, answer.status] += 1
        if 200 <= answer.status < 300:
            return answer, "ok", ""
        outcome: Outcome = "fail" if 400 <= answer.status < 500 else "unknown"
        return answer, outcome, _refusal(method, path, answer)

    def _times(self, began: int, outcome: Outcome) -> dict[str, Any]:
        now = time.monotonic_ns()
        completed = None if outcome == "unknown" else now
        return {"invoked": began, "completed": completed, "client": self.client, "outcome": outcome}

    def _record(self, record: Recorded, problem: str) -> Recorded:
        self.records.append(record)
        if problem and self.strict:
            raise NotCarriedOutError(problem)
        return record


def _refusal(method: str, path: str, answer: Answer) -> str:
    return f"{method} {path} was answered {answer}"


def _granted(told: object) -> Outcome:
    return "ok" if isinstance(told, dict) and told.get("success") is True else "fail"


def _push_body(item: PushItem) -> dict[str, Any]:
    body = {"queue": item.queue, "partition": item.partition, "payload": item.payload}
    return {**body, "transactionId": item.transaction_id} if item.transaction_id else body


def _ack_body(item: AckItem, places: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    if item.lane not in places:
        raise NotCarriedOutError(f"no delivery has told the partition id of {item.queue}/{item.partition}")
    body = {
        "transactionId": item.transaction_id,
        "partitionId": places[item.lane],
        "status": item.status,
        "error": item.error,
    }
    return {**body, "leaseId": item.lease} if item.lease else body


def _objects(answer: Answer, count: int) -> list[dict[str, Any]]:
    """The elements of a list that answers a request item by item."""
    told = answer.json() if answer.body else []
    if not isinstance(told, list) or len(told) != count or not all(isinstance(each, dict) for each in told):
        raise BadAnswerError(f"not a list of {count} objects: {answer.body[:120]!r}")
    return told


def _pushed(item: PushItem, told: dict[str, Any] | None, outcome: Outcome) -> PushItem:
    if told is None:
        return replace(item, outcome=outcome)
    status = str(told.get("status"))
    stored: Outcome = "ok" if status in {"queued", "duplicate", "buffered"} else "fail"
    id_ = item.transaction_id or str(told.get("transaction_id") or "")
    message_id, spooled = told.get("message_id"), status == "buffered"
    return replace(
        item, transaction_id=id_, outcome=stored, duplicate=status == "duplicate", spooled=spooled,
        message_id=message_id if isinstance(message_id, str) and not spooled else None,
    )  # fmt: skip


def popped(answer: Answer, queue: str) -> tuple[str, tuple[Delivery, ...]]:
    """Lease and deliveries of a pop of a queue; an empty answer of any form has neither.

    Raises:
        BadAnswerError: it is not the answer of a pop.
    """
    if not answer.body:
        return "", ()
    told = answer.json()
    messages = told.get("messages") if isinstance(told, dict) else None
    if not isinstance(told, dict) or not isinstance(messages, list):
        raise BadAnswerError(f"a pop without messages: {answer.body[:120]!r}")
    return str(told.get("leaseId") or ""), tuple(_delivery(each, queue) for each in messages)


def _delivery(told: object, queue: str) -> Delivery:
    try:
        message: dict[str, Any] = dict(told)  # type: ignore[call-overload]
        return Delivery(
            queue=str(message.get("queue") or queue),
            partition=str(message["partition"]),
            partition_id=str(message["partitionId"]),
            message_id=str(message["id"]),
            transaction_id=str(message["transactionId"]),
            payload=message["data"],
            lease=str(message.get("leaseId") or ""),
            offset=_integer(message.get("offset")),
            attempt=_integer(message.get("deliveryAttempt")),
            created_at=str(message.get("createdAt") or ""),
        )
    except (KeyError, TypeError, ValueError):
        raise BadAnswerError(f"not a message: {str(told)[:120]}") from None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _acked(item: AckItem, told: dict[str, Any] | None, outcome: Outcome) -> AckItem:
    if told is None:
        return replace(item, outcome=outcome)
    error = told.get("error")
    return replace(
        item, outcome="ok" if told.get("success") is True else "fail", dead=told.get("dlq") is True,
        noop=told.get("noop") is True, error=str(error) if error else item.error,
    )  # fmt: skip
