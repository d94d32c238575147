"""What the benchmark of listings found."""

from statistics import median

from msgspec import Struct

from queen_bench.database import Postgres
from queen_bench.machine import Machine

#: What every listing and status operation is to stay below, in milliseconds.
TARGET_MS = 300.0


class Profile(Struct, frozen=True):
    """How much is listed.

    Attributes:
        partitions, messages: of the one queue; a segment holds one message, the worst case.
        runs: how often each operation is timed.
        step: messages of a push.
    """

    partitions: int = 100_000
    messages: int = 1_000_000
    runs: int = 9
    step: int = 1_000


SMOKE = Profile(partitions=200, messages=1_000, runs=2, step=100)


class Timing(Struct):
    """One operation.

    Attributes:
        ms: milliseconds of each run, from request to answer.
        cpu_ms: of them, those that server and PostgreSQL computed, on all cores; empty for a PostgreSQL elsewhere.
        answer_bytes: length of the answer.
    """

    operation: str
    ms: list[float]
    cpu_ms: list[float]
    answer_bytes: int

    @property
    def median_ms(self) -> float:
        """The middle of the runs."""
        return median(self.ms)

    @property
    def met(self) -> bool:
        """Whether the middle of the runs is below the target."""
        return self.median_ms < TARGET_MS


class Report(Struct):
    """Everything that one run of the benchmark found; ``refresh_ms``: computing the statistics, in the background."""

    started_at: str
    profile: Profile
    machine: Machine
    postgres: Postgres
    timings: list[Timing]
    refresh_ms: list[float]
