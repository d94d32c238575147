"""What a run of the benchmark found, and what it should have found."""

from collections.abc import Sequence
from statistics import median, quantiles

from msgspec import Struct

from queen_bench.database import Postgres
from queen_bench.machine import Machine
from queen_bench.procedures.results import Spread

#: Of the time that is measured, the last part counts: what is held hurts more the longer it is held.
COUNTED = 0.2


class Profile(Struct, frozen=True):
    """How much is measured.

    Attributes:
        seconds: of load on each side of a pair; as long something is held on one of them.
        pairs: how often both sides are measured.
        slot: whether a physical replication slot holds an xmin, instead of a transaction a snapshot.
        clients: that push, pop and ack one call after the other.
        batch: messages of a push, and most of a pop.
        partitions: that the messages go to in turns.
    """

    seconds: float = 600.0
    pairs: int = 3
    slot: bool = False
    clients: int = 4
    batch: int = 10
    partitions: int = 100


SMOKE = Profile(seconds=1.0, pairs=1, clients=2, partitions=10)


class Side(Struct, frozen=True):
    """What the last part of the load took.

    Attributes:
        messages: pushed, popped and acked.
        seconds: of the clock.
        p99_ms: of a push, a pop and its ack together: 99 of 100 took no longer.
        cpu_s: of all of PostgreSQL, autovacuum included; ``None`` if it runs elsewhere.
        blocks: looked at in the database, autovacuum included.
    """

    messages: int
    seconds: float
    p99_ms: float
    cpu_s: float | None
    blocks: int

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float | None:
        """Microseconds of PostgreSQL a message."""
        return None if self.cpu_s is None else 1e6 * self.cpu_s / self.messages

    @property
    def blocks_each(self) -> float:
        """Blocks a message."""
        return self.blocks / self.messages


class Pair(Struct, frozen=True):
    """Neighbouring measurements, each in a database of its own: while nothing is held, and while something is."""

    free: Side
    held: Side


class Report(Struct, frozen=True):
    """Everything that one run of the benchmark found."""

    started_at: str
    profile: Profile
    machine: Machine
    postgres: Postgres
    pairs: Sequence[Pair]


class Verdict(Struct, frozen=True):
    """One figure: medians of both sides, how many times the one of the free side it is, and whether that is enough.

    Attributes:
        most: the median of the ratios is at most this; else it is at least ``bound``.
    """

    what: str
    free: float
    held: float
    ratio: Spread
    bound: float
    most: bool

    @property
    def met(self) -> bool:
        """Whether the median is within the bound."""
        return self.ratio.median <= self.bound if self.most else self.ratio.median >= self.bound


def p99(values: Sequence[float]) -> float:
    """The value within which 99 of 100 are."""
    return quantiles(values, n=100)[98] if len(values) > 1 else max(values)


def verdicts(pairs: Sequence[Pair]) -> list[Verdict]:
    """All figures that are known."""
    found = [
        _verdict("messages a second", [(pair.free.rate, pair.held.rate) for pair in pairs], 0.9, most=False),
        _verdict("p99 of push + pop + ack, ms", [(pair.free.p99_ms, pair.held.p99_ms) for pair in pairs], 1.5),
    ]
    cpu = [(p.free.cpu_us, p.held.cpu_us) for p in pairs if p.free.cpu_us is not None and p.held.cpu_us is not None]
    if cpu:
        found.append(_verdict("CPU of PostgreSQL a message, µs", cpu, 1.1))
    blocks = [(pair.free.blocks_each, pair.held.blocks_each) for pair in pairs]
    return [*found, _verdict("blocks a message", blocks, 1.1)]


def _verdict(what: str, values: Sequence[tuple[float, float]], bound: float, *, most: bool = True) -> Verdict:
    return Verdict(
        what, median(free for free, _ in values), median(held for _, held in values),
        Spread.of([held / free for free, held in values]), bound, most,
    )  # fmt: skip
