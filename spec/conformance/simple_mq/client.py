"""A client of simple-mq: every call about messages gives a record of the history."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...history import Outcome
from ...simple_mq_history import Ack, Enqueue, Poll, Record
from ..http import Answer, BadAnswerError, NoAnswerError, Server
from ..lab import RefutedError, SkippedError
from ..program import Exchange

REQUEST_TIMEOUT_S = 15.0
Recorded = TypeVar("Recorded", bound=Record)


@dataclass
class Client:
    """Calls of one client.

    Attributes:
        server: where it is.
        statuses: counts what was answered: (situation, status).
        strict: whether a call without an answer raises, instead of being recorded as such.
        made: gets the ids of all queues that it has made.
        records: calls of message flow so far.
        notes: what the report is to say beside the result.
        trace: every request, with its answer.
    """

    server: Server
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    strict: bool = True
    made: list[str] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    trace: list[Exchange] | None = None

    async def send(self, situation: str, method: str, path: str, body: object = None, *, wait_s: float = 0.0) -> Answer:
        """A request and its answer, whose status is counted; `body` is JSON, or bytes to be sent as they are.

        Raises:
            NoAnswerError: there was none.
        """
        encoded = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        began, place = time.monotonic(), f"/api/queues{path}"
        answer = await self.server.request(method, place, encoded, timeout_s=wait_s + REQUEST_TIMEOUT_S)
        if self.trace is not None:
            ended = time.monotonic()
            self.trace.append(Exchange(method, place, encoded, began, ended, answer.status, answer.body))
        self.statuses[situation, answer.status] += 1
        return answer

    async def create(self, *, size: int = 100, hidden_s: int = 30, deliveries: int = 3, name: str = "verify") -> str:
        """A new queue."""
        body = {"queueName": name, "queueSize": size, "visibilityTimeout": hidden_s, "maxDeliveries": deliveries}
        told = expect_status(await self.send("create a queue", "POST", "", body), 201)
        id_ = str(told.get("queue_id"))
        self.made.append(id_)
        return id_

    async def describe(self, queue: str) -> dict[str, Any]:
        """Settings and count."""
        return expect_status(await self.send("show a queue", "GET", f"/{queue}"), 200)

    async def count(self, queue: str) -> int:
        """The message count."""
        return _integer((await self.describe(queue))["current_message_count"])

    async def enqueue(self, queue: str, data: str, group: str | None = None) -> Enqueue:
        """Store one message."""
        body = {"data": data} if group is None else {"data": data, "messageGroup": group}
        began = time.monotonic_ns()
        answer, outcome = await self._call("enqueue", "POST", f"/{queue}/messages", body)
        told = _object(answer) if answer and outcome == "ok" else {}
        return self._record(
            Enqueue(**_times(began, outcome), queue=queue, data=data, message_id=str(told.get("message_id") or ""))
        )

    async def poll(self, queue: str) -> Poll:
        """Take one message."""
        began = time.monotonic_ns()
        answer, outcome = await self._call("poll", "GET", f"/{queue}/messages")
        message = _message(answer) if answer and outcome == "ok" else None
        told = message or {}
        return self._record(
            Poll(
                **_times(began, outcome), queue=queue, message_id=str(told.get("message_id") or ""),
                data=str(told.get("data") or ""), delivery_count=_integer(told.get("delivery_count", 0)),
            )
        )  # fmt: skip

    async def ack(self, queue: str, message_id: str) -> Ack:
        """Remove one message."""
        began = time.monotonic_ns()
        _, outcome = await self._call("ack", "DELETE", f"/{queue}/messages/{message_id}")
        return self._record(Ack(**_times(began, outcome), queue=queue, message_id=message_id))

    async def take(self, queue: str) -> dict[str, Any] | None:
        """Poll, and the whole message as it came."""
        return _message(await self.send("poll", "GET", f"/{queue}/messages"))

    async def take_many(self, queue: str, limit: int, wait_s: float = 0.0) -> list[dict[str, Any]]:
        """Poll for several messages; skips where the server does not know how."""
        wait = f"&wait={wait_s:g}" if wait_s else ""
        answer = await self.send("poll with limit", "GET", f"/{queue}/messages?limit={limit}{wait}", wait_s=wait_s)
        messages = expect_status(answer, 200).get("messages")
        if messages is None:
            raise SkippedError("polls know no limit")
        return _objects(messages)

    async def peek(self, queue: str, limit: int = 100) -> list[dict[str, Any]]:
        """All messages of a queue, page by page; refutes when a page shows what one before has shown."""
        found: list[dict[str, Any]] = []
        seen: set[str] = set()
        cursor = ""
        while True:
            answer = await self.send("peek", "GET", f"/{queue}/messages/peek?limit={limit}{cursor}")
            page = expect_status(answer, 200)
            messages = _objects(page["messages"])
            found += messages
            if again := seen & {str(message["message_id"]) for message in messages}:
                raise RefutedError(f"message {again.pop()} is on two pages")
            seen |= {str(message["message_id"]) for message in messages}
            if page.get("next_cursor_message_id") is None:
                return found
            time_, id_ = page["next_cursor_created_at"], page["next_cursor_message_id"]
            cursor = f"&cursorCreatedAt={time_}&cursorMessageId={id_}"

    async def requeue(self, queue: str, message_id: str) -> Answer:
        """Give a message a second chance."""
        return await self.send("requeue", "POST", f"/{queue}/messages/{message_id}/requeue")

    async def delete(self, queue: str) -> Answer:
        """Delete a queue."""
        return await self.send("delete a queue", "DELETE", f"/{queue}")

    async def _call(self, situation: str, method: str, path: str, body: object = None) -> tuple[Answer | None, Outcome]:
        try:
            answer = await self.send(situation, method, path, body)
        except NoAnswerError:
            if self.strict:
                raise
            return None, "unknown"
        if answer.status < 300:
            return answer, "ok"
        return answer, "fail" if answer.status < 500 else "unknown"

    def _record(self, record: Recorded) -> Recorded:
        self.records.append(record)
        return record


def expect_status(answer: Answer, status: int) -> dict[str, Any]:
    """The object of an answer; refutes unless it has the status."""
    if answer.status != status:
        raise RefutedError(f"answered {answer.status} instead of {status}: {answer.body[:120]!r}")
    return _object(answer)


def _object(answer: Answer) -> dict[str, Any]:
    told = answer.json()
    if not isinstance(told, dict):
        raise BadAnswerError(f"not an object: {answer.body[:120]!r}")
    return told


def _objects(told: object) -> list[dict[str, Any]]:
    if not isinstance(told, list) or not all(isinstance(each, dict) for each in told):
        raise BadAnswerError(f"not a list of objects: {str(told)[:120]}")
    return told


def _integer(told: object) -> int:
    if not isinstance(told, int):
        raise BadAnswerError(f"not an integer: {str(told)[:120]}")
    return told


def _message(answer: Answer) -> dict[str, Any] | None:
    message = expect_status(answer, 200).get("message")
    if message is not None and not isinstance(message, dict):
        raise BadAnswerError(f"not a message: {answer.body[:120]!r}")
    return message


def _times(began: int, outcome: Outcome) -> dict[str, Any]:
    completed = None if outcome == "unknown" else time.monotonic_ns()
    return {"invoked": began, "completed": completed, "outcome": outcome}
