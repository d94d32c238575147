"""What the benchmark of depth found."""

from statistics import median, quantiles

from msgspec import Struct

from queen_bench.database import Postgres
from queen_bench.machine import Machine

#: By how much a poll of the deep queue may take longer than one of the shallow queue.
TARGET_RATIO = 1.2


class Profile(Struct, frozen=True):
    """How much is measured.

    Attributes:
        messages: in the deep queue; the shallow one has one.
        polls: of each queue in a run.
        step: messages of a call that fills the queue.
    """

    messages: int = 5_000_000
    polls: int = 1_000
    runs: int = 5
    step: int = 10_000


SMOKE = Profile(messages=2_000, polls=20, runs=2, step=1_000)


class Run(Struct, frozen=True):
    """Milliseconds of each poll, from request to answer, in pairs: the two queues take turns."""

    shallow_ms: list[float]
    deep_ms: list[float]

    @property
    def ratio(self) -> float:
        """How many times as long as the shallow queue's the deep queue's median is."""
        return median(self.deep_ms) / median(self.shallow_ms)

    @property
    def p95_ratio(self) -> float:
        """The same of the 95th percentiles."""
        return p95(self.deep_ms) / p95(self.shallow_ms)


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return quantiles(values, n=20, method="inclusive")[-1]


class Report(Struct):
    """Everything that one call of the benchmark found.

    Attributes:
        filling_s: how long it took to fill the deep queue.
        depth: messages that it held at the end.
    """

    started_at: str
    profile: Profile
    machine: Machine
    postgres: Postgres
    filling_s: float
    depth: int
    runs: list[Run]

    @property
    def ratio(self) -> float:
        """The middle of the runs' ratios."""
        return median(run.ratio for run in self.runs)

    @property
    def met(self) -> bool:
        """Whether depth does not matter."""
        return self.ratio <= TARGET_RATIO
