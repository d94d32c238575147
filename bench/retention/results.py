"""What a run of the benchmark found."""

from collections.abc import Sequence
from statistics import median, quantiles

from msgspec import Struct

from queen_bench.database import Postgres
from queen_bench.machine import Machine

#: Retention beside producers and consumers: their p99 within so many times the quiet one.
RATIO_MAX = 2.0


class Profile(Struct, frozen=True):
    """How much is measured.

    Attributes:
        messages: that retention removes in each run.
        batch: messages a segment of these.
        partitions: they lie in.
        batch_size: most messages of one transaction of retention.
        interval_s: between two sweeps; one that lasts longer takes more of the time.
        rate: pushes a second, and pops with their acks a second, of one message each, offered whatever happens.
        quiet_s: length of the quiet measurement of each run.
        runs: how often all is measured.
    """

    messages: int = 1_000_000
    batch: int = 100
    partitions: int = 100
    batch_size: int = 1000
    interval_s: float = 300.0
    rate: float = 100.0
    quiet_s: float = 10.0
    runs: int = 3


SMOKE = Profile(messages=20_000, batch=100, partitions=10, rate=50.0, quiet_s=0.5, runs=2)


class Latencies(Struct, frozen=True):
    """Milliseconds of calls, from when each was due."""

    push_ms: Sequence[float]
    pop_ms: Sequence[float]


class Run(Struct, frozen=True):
    """One quiet measurement, and one beside retention.

    Attributes:
        removed: messages.
        seconds: that retention took for them, pauses included.
        busy_s: of these in its calls.
    """

    quiet: Latencies
    beside: Latencies
    removed: int
    seconds: float
    busy_s: float


class Report(Struct, frozen=True):
    """Everything that one run of the benchmark found."""

    started_at: str
    profile: Profile
    machine: Machine
    postgres: Postgres
    runs: Sequence[Run]


def p99(values: Sequence[float]) -> float:
    """The time within which 99 of 100 calls were answered."""
    return quantiles(values, n=100)[98]


def ratios(runs: Sequence[Run]) -> tuple[float, float]:
    """How many times the quiet p99 it is beside retention, for pushes and for pops: medians over the runs."""
    return (
        median(p99(run.beside.push_ms) / p99(run.quiet.push_ms) for run in runs),
        median(p99(run.beside.pop_ms) / p99(run.quiet.pop_ms) for run in runs),
    )
