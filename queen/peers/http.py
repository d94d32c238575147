"""Notifications to other instances by HTTP, for networks that pass only HTTP. Sent until accepted or outdated."""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence

import httpx

from queen.core.backoff import doubled
from queen.core.seal import signature

log = logging.getLogger("queen.notifications")

PATH = "/internal/api/notify"
SIGNATURE_HEADER = "Queen-Signature"

#: A peer that is unreachable for longer misses older notifications; its long polls then find messages by polling.
_KEPT_PACKETS = 100
_TIMEOUT_S = 5.0
_RETRY_FIRST_MS, _RETRY_LIMIT_MS = 100.0, 5000.0


class HttpTransport:
    """Implements ``queen.engine.ports.Transport``. ``queen.operations.notify`` receives them.

    Args:
        peers: the URLs of other instances.
        secret: of all instances.
        interval_s: minimum time between two requests to a peer.
    """

    name = "http"
    reaches_all = False

    def __init__(self, peers: Sequence[str], secret: bytes, interval_s: float) -> None:
        self._secret, self.interval_s = secret, interval_s
        self._outboxes = {peer: _Outbox() for peer in peers}
        self._tasks: list[asyncio.Task[None]] = []

    def send(self, packets: Sequence[bytes], *, waiting_only: bool = False) -> None:  # noqa: ARG002 - not known here
        """Puts the packets into the outbox of each peer."""
        for outbox in self._outboxes.values():
            outbox.packets.extend(packets)
            outbox.news.set()

    async def start(self, receive: Callable[[bytes], None], missed: Callable[[], None]) -> None:  # noqa: ARG002 - see above
        """Starts sending."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep_sending(peer, box)) for peer, box in self._outboxes.items()]

    async def stop(self) -> None:
        """Stops sending."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep_sending(self, peer: str, outbox: "_Outbox") -> None:
        pause_ms = 0.0
        async with httpx.AsyncClient(base_url=peer, timeout=_TIMEOUT_S, trust_env=False) as client:
            while True:
                await outbox.news.wait()
                packets = list(outbox.packets)
                outbox.packets.clear()
                outbox.news.clear()
                try:
                    await self._post(client, packets)
                    pause_ms = 0.0
                except httpx.HTTPError as problem:
                    log.debug(
                        "The HTTP peer %s does not accept notifications: %s",
                        peer,
                        str(problem) or type(problem).__name__,
                    )
                    outbox.packets.extendleft(reversed(packets[: _KEPT_PACKETS - len(outbox.packets)]))
                    outbox.news.set()
                    pause_ms = doubled(pause_ms, _RETRY_FIRST_MS, _RETRY_LIMIT_MS)
                    await asyncio.sleep(pause_ms / 1000 * random.uniform(0.5, 1.0))  # noqa: S311 - no secret

    async def _post(self, client: httpx.AsyncClient, packets: Sequence[bytes]) -> None:
        body = b"[" + b",".join(packets) + b"]"
        headers = {
            "Content-Type": "application/json",
            SIGNATURE_HEADER: signature(self._secret, body, time.time_ns() // 1_000_000),
        }
        response = await client.post(PATH, content=body, headers=headers)
        if response.status_code >= 500:
            response.raise_for_status()
        elif response.status_code >= 400:
            log.warning(
                "The HTTP peer %s refused notifications (%d): %s", client.base_url, response.status_code, response.text
            )


class _Outbox:
    """Notifications that one peer has not accepted yet."""

    def __init__(self) -> None:
        self.packets: deque[bytes] = deque(maxlen=_KEPT_PACKETS)
        self.news = asyncio.Event()
