"""A request on its way through the engine."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any
from uuid import UUID

from queen.core.job_type import JobType


class Job:
    """One request with the future that its sender awaits.

    Attributes:
        request: an operation of ``queen.log.requests``; for ``CUSTOM`` a function that gets the context.
        key: jobs of a kind with the same key are never in two calls at the same time; ``None`` allows that.
        size: bytes that it adds to a call, where that matters.
        items: messages or acks that it adds to a call.
        since: when the engine got it, in seconds of the engine's clock.
        deadline: when a long poll ends, on the same clock.
        turn: its order among the waiters; 0 for a job that never waited.
        attempts: how often it found messages that another transaction had locked.
        late_checks: how often it tried again because a worker might have released prefetched messages.
        gone: whether the sender no longer waits.
        reply: answers the sibling that has lent the job, and returns whether that worked; ``None`` for a job of this
            worker.
        lease: the lease of a lent pop, so that its own worker can release it.
        client: address and port of the client of a long poll; ``None``: it is not one of HTTP.
        on_park: called each time the job is parked; ``None``: nobody wants to know.
    """

    __slots__ = (
        "attempts",
        "client",
        "deadline",
        "future",
        "gone",
        "items",
        "key",
        "kind",
        "late_checks",
        "lease",
        "on_park",
        "reply",
        "request",
        "since",
        "size",
        "turn",
    )  # fmt: skip

    def __init__(self, kind: JobType, request: Any, future: "asyncio.Future[Any]", key: Hashable = None) -> None:  # noqa: ANN401
        self.kind = kind
        self.request = request
        self.future = future
        self.key = key
        self.since = 0.0
        self.size = 0
        self.items = 1
        self.deadline = 0.0
        self.turn = 0
        self.attempts = 0
        self.late_checks = 0
        self.gone = False
        self.reply: Callable[[Any], bool] | None = None
        self.lease: UUID | None = None
        self.client: tuple[str, int] | None = None
        self.on_park: Callable[[], None] | None = None
