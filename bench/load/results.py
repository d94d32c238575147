"""What a run of a scenario found. Frozen values, written as JSON lines."""

from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import Struct

from queen_bench.machine import Machine

OPERATIONS = ("push", "pop", "ack", "transaction", "enqueue", "dequeue")


class Latency(Struct, frozen=True):
    """Milliseconds of one kind of call."""

    calls: int
    median: float
    p95: float
    p99: float
    longest: float


class Second(Struct, frozen=True):
    """What had been counted by a moment of a run: seconds since its start, and the totals so far."""

    at: float
    pushed: int
    delivered: int
    requests: int


class Run(Struct, frozen=True):
    """One run of one scenario against one server.

    Attributes:
        seconds: of the load, without its preparation.
        pushed, delivered, acked: messages.
        dropped: calls of an open model that came due while all virtual users were busy.
        crossed: thresholds of the script that did not hold.
        latency: by operation; ``end_to_end`` and ``woken`` where the script measures them.
        cpu: seconds by ``server``, ``postgres`` and ``load``, where these run on this machine.
        memory_bytes: of the server's processes at the end.
        table_bytes, wal_bytes: a pushed message; ``None`` where the database is not known or nothing was pushed.
        stall_s: the longest time in which nothing was delivered or pushed.
    """

    scenario: str
    server: str
    version: str
    number: int
    started_at: str
    seconds: float
    settings: Mapping[str, str]
    pushed: int
    delivered: int
    acked: int
    dropped: int
    crossed: Sequence[str]
    latency: Mapping[str, Latency]
    cpu: Mapping[str, float]
    memory_bytes: int | None
    table_bytes: float | None
    wal_bytes: float | None
    stall_s: float
    timeline: Sequence[Second]
    machine: Machine

    @property
    def messages(self) -> int:
        """What the scenario is about: deliveries where there are some, else pushes."""
        return self.delivered or self.pushed

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float | None:
        """Microseconds of CPU a message, of server and PostgreSQL."""
        spent = [self.cpu[name] for name in ("server", "postgres") if name in self.cpu]
        return 1e6 * sum(spent) / self.messages if spent and self.messages else None


class Comparison(Struct, frozen=True):
    """Neighbouring runs of two servers: how many times as fast the first is."""

    scenario: str
    first: str
    second: str
    ratios: Sequence[float]

    @property
    def median(self) -> float:
        """The middle one."""
        return median(self.ratios)


def compare(runs: Sequence[Run]) -> list[Comparison]:
    """A comparison for each scenario that was run against two servers."""
    servers = list(dict.fromkeys(run.server for run in runs))
    if len(servers) < 2:
        return []
    first, second = servers[:2]
    found = []
    for scenario in dict.fromkeys(run.scenario for run in runs):
        rates = {(run.server, run.number): run.rate for run in runs if run.scenario == scenario}
        ratios = [
            rate / other
            for (server, number), rate in rates.items()
            if server == first and (other := rates.get((second, number)))
        ]
        if ratios:
            found.append(Comparison(scenario, first, second, ratios))
    return found


def stall_seconds(timeline: Sequence[Second]) -> float:
    """The longest time between two moments in which neither pushes nor deliveries went on."""
    longest = since = 0.0
    last = None
    for moment in timeline:
        progress = (moment.pushed, moment.delivered)
        if last is not None and progress == last:
            longest = max(longest, moment.at - since)
        else:
            since, last = moment.at, progress
    return longest
