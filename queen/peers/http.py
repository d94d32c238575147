"""Notices to other instances by HTTP: for networks where only HTTP passes. Sent until accepted, or out of date."""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence

import httpx

from queen.core.backoff import doubled
from queen.core.seal import signature

log = logging.getLogger("queen.notices")

PATH = "/internal/api/notify"
SIGNATURE_HEADER = "Queen-Signature"

#: A peer that is away for longer misses what is older: its waiters look by themselves.
_KEPT_SHEETS = 100
_TIMEOUT_S = 5.0
_RETRY_FIRST_MS, _RETRY_LIMIT_MS = 100.0, 5000.0


class HttpTransport:
    """Implements ``queen.engine.ports.Transport``. What comes in is brought by ``queen.http.resources.notify``.

    Args:
        peers: the URLs of other instances.
        secret: what all instances know.
        interval_s: at most one request to each peer in that time.
    """

    name = "http"

    def __init__(self, peers: Sequence[str], secret: bytes, interval_s: float) -> None:
        self._secret, self.interval_s = secret, interval_s
        self._outboxes = {peer: _Outbox() for peer in peers}
        self._tasks: list[asyncio.Task[None]] = []

    def send(self, sheets: Sequence[bytes]) -> None:
        """Puts the sheets into the outbox of each peer."""
        for outbox in self._outboxes.values():
            outbox.sheets.extend(sheets)
            outbox.news.set()

    async def start(self, receive: Callable[[bytes], None], missed: Callable[[], None]) -> None:  # noqa: ARG002 - see above
        """Begins to send."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep_sending(peer, box)) for peer, box in self._outboxes.items()]

    async def stop(self) -> None:
        """Ends it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep_sending(self, peer: str, outbox: "_Outbox") -> None:
        pause_ms = 0.0
        async with httpx.AsyncClient(base_url=peer, timeout=_TIMEOUT_S, trust_env=False) as client:
            while True:
                await outbox.news.wait()
                sheets = list(outbox.sheets)
                outbox.sheets.clear()
                outbox.news.clear()
                try:
                    await self._post(client, sheets)
                    pause_ms = 0.0
                except httpx.HTTPError as problem:
                    log.debug(
                        "The HTTP peer %s does not take notices: %s", peer, str(problem) or type(problem).__name__
                    )
                    outbox.sheets.extendleft(reversed(sheets[: _KEPT_SHEETS - len(outbox.sheets)]))
                    outbox.news.set()
                    pause_ms = doubled(pause_ms, _RETRY_FIRST_MS, _RETRY_LIMIT_MS)
                    await asyncio.sleep(pause_ms / 1000 * random.uniform(0.5, 1.0))  # noqa: S311 - no secret

    async def _post(self, client: httpx.AsyncClient, sheets: Sequence[bytes]) -> None:
        body = b"[" + b",".join(sheets) + b"]"
        headers = {
            "Content-Type": "application/json",
            SIGNATURE_HEADER: signature(self._secret, body, time.time_ns() // 1_000_000),
        }
        response = await client.post(PATH, content=body, headers=headers)
        if response.status_code >= 500:
            response.raise_for_status()
        elif response.status_code >= 400:
            log.warning(
                "The HTTP peer %s refuses notices (%d): %s", client.base_url, response.status_code, response.text
            )


class _Outbox:
    """What one peer has not been told yet."""

    def __init__(self) -> None:
        self.sheets: deque[bytes] = deque(maxlen=_KEPT_SHEETS)
        self.news = asyncio.Event()
