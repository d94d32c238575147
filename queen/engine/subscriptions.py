"""The WebSockets of this worker that have a subscription. HTTP adds them; the engine may run in another thread."""

from collections.abc import Sequence
from typing import Protocol

from queen.core.metrics import Connected


def address(client: tuple[str, int] | None) -> str:
    """How the address of a client is shown: with its port; empty if it is unknown."""
    if not client or not client[0]:
        return ""
    host, port = client
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Subscribed(Protocol):
    """A WebSocket."""

    def connected(self) -> Connected:
        """What is reported of it."""
        ...


class Subscriptions:
    """Those of a worker."""

    def __init__(self) -> None:
        self._open: dict[Subscribed, None] = {}

    def add(self, subscribed: Subscribed) -> None:
        """Adds one; one that is there keeps its place."""
        self._open[subscribed] = None

    def remove(self, subscribed: Subscribed) -> None:
        """Removes one, if it is there."""
        self._open.pop(subscribed, None)

    def longest(self, most: int) -> Sequence[Connected]:
        """At most so many, the longest connected first."""
        return [each.connected() for each in list(self._open)[:most]]


SUBSCRIPTIONS = Subscriptions()
