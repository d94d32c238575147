"""A request on its way through the engine."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any

from queen.core.operations import JobType


class Job:
    """One request with the future that its sender awaits.

    Attributes:
        request: an operation of ``queen.core.operations``; for ``CUSTOM`` a function of the administration's database.
        key: jobs of a lane with the same key are never in two calls at the same time; ``None`` does not mind.
        size: bytes that it adds to a call, where that matters.
        items: messages or acks that it adds to a call.
        since: when the engine got it, on the engine's clock, in seconds.
        deadline: when a long poll ends, on the same clock.
        turn: its place among the waiters; 0 for a job that never waited.
        looks: how often it found that somebody else held what it could have had.
        gone: set when the sender no longer waits.
        ride: the push with which it is out for a look, if it is.
    """

    __slots__ = (
        "deadline", "future", "gone", "items", "key", "kind", "looks", "request", "ride", "since", "size", "turn",
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
        self.looks = 0
        self.gone = False
        self.ride: Ride | None = None


class Ride:
    """Long polls that look in the transaction of a push: they get what it stores without a call of their own.

    Attributes:
        out: so many of them have not come back.
        served: the places where one has looked behind the push and found something.
        then: is called when the last one has come back.
    """

    __slots__ = ("out", "served", "then")

    def __init__(self, out: int) -> None:
        self.out = out
        self.served: set[Hashable] = set()
        self.then: list[Callable[[], None]] = []

    def back(self) -> None:
        """One has come back."""
        self.out -= 1
        if not self.out:
            for call in self.then:
                call()
