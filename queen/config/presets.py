"""Presets: the sizes for which the first design of Queen MQ names servers, as defaults of several settings."""

from collections.abc import Mapping

from msgspec import Struct

#: Of the design's threads: background services, beside those that check long polls and windows.
_SERVICES = 5


def split(connections: int) -> tuple[int, int]:
    """Connections for messages and for everything else: 95 to 5, at least one for each of two or more."""
    rest = connections - connections * 95 // 100
    return connections - rest, rest


class Preset(Struct, frozen=True, kw_only=True):
    """A size of server.

    Attributes:
        workers: worker processes.
        connections: to PostgreSQL, without those of the background.
        poll_workers: threads of the design that check long polls.
        stream_workers: its threads that look after windows.
        stream_checks: windows that each of these checks at a time.
        poll_interval_ms: first interval between two checks of a long poll.
        items: messages of one transaction.
    """

    workers: int
    connections: int
    poll_workers: int
    stream_workers: int
    stream_checks: int
    poll_interval_ms: int
    items: int

    @property
    def budget(self) -> int:
        """Calls to PostgreSQL that the design has at a time for long polls, windows and services, one per thread.

        There are no such threads here. The number limits the calls of pops instead, over all workers.
        """
        return self.poll_workers + self.stream_workers + self.stream_workers * self.stream_checks + _SERVICES

    def variables(self) -> Mapping[str, str]:
        """What it sets."""
        messages, rest = split(self.connections)
        numbers = {
            "NUM_WORKERS": self.workers,
            "SIDECAR_POOL_SIZE": messages,
            "DB_POOL_SIZE": rest,
            "POLL_DB_INTERVAL": self.poll_interval_ms,
            "QUEEN_POP_MAX_CONCURRENT": max(1, round(self.budget / self.workers)),
            "SIDECAR_MAX_ITEMS_PER_TX": self.items,
        }
        return {name: str(number) for name, number in numbers.items()}


PRESETS: Mapping[str, Preset] = {
    "balanced": Preset(
        workers=10, connections=150, poll_workers=2, stream_workers=2, stream_checks=10, poll_interval_ms=100,
        items=1000,
    ),
    "high-throughput": Preset(
        workers=20, connections=300, poll_workers=10, stream_workers=4, stream_checks=20, poll_interval_ms=50,
        items=2000,
    ),
    "low-latency": Preset(
        workers=10, connections=150, poll_workers=4, stream_workers=2, stream_checks=10, poll_interval_ms=50,
        items=1000,
    ),
}  # fmt: skip
