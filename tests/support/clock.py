"""Waits for a condition, without guessing how long it takes."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 240.0


async def eventually(look: Callable[[], Awaitable[T]], what: str, seconds: float = PATIENCE_S) -> T:
    """The first true value of ``look``; fails naming what did not happen."""
    deadline = time.monotonic() + seconds
    while True:
        if found := await look():
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.02)
