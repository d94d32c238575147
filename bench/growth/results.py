"""What a run of the benchmark of growth found, and what it should have found."""

from collections.abc import Callable, Sequence
from statistics import median

from msgspec import Struct

from queen_bench.database import Postgres
from queen_bench.engine.results import PUSH, TAKE, Cost
from queen_bench.machine import Machine
from queen_bench.procedures.results import Spread

#: A full system reaches at least so much of the empty one's rate.
RATIO_MIN = 0.8


class Profile(Struct, frozen=True):
    """How much there is, and how much is measured.

    Attributes:
        messages: retained in the queue of the first system, consumed by nobody.
        partitions: of the queue of the second, with a consumed message each.
        groups: of the queue of the third, which consume nothing.
        seconds: of each operation in each run.
        runs: how often all of it is measured.
        backlog: most messages that are pushed at once for consumers to take.
        operations: push or pop + ack, messages of a request, and clients.
        step: messages, or partitions, of a call that fills a system.
    """

    messages: int = 10_000_000
    partitions: int = 1_000_000
    groups: int = 100
    seconds: float = 2.0
    runs: int = 5
    backlog: int = 200_000
    operations: tuple[tuple[str, int, int], ...] = ((PUSH, 1, 50), (PUSH, 100, 8), (TAKE, 1, 8), (TAKE, 100, 8))
    step: int = 1_000


SMOKE = Profile(
    messages=2_000,
    partitions=200,
    groups=3,
    seconds=0.05,
    runs=1, backlog=2_000,
    operations=((PUSH, 100, 2), (TAKE, 100, 2)),
    step=100,
)  # fmt: skip


class Pair(Struct, frozen=True):
    """Neighbouring measurements of one operation: in the empty and in the full system."""

    operation: str
    batch: int
    empty: Cost
    full: Cost


class System(Struct):
    """A full system: what it is full of, how long that took, and its pairs."""

    name: str
    filled_s: float
    pairs: list[Pair] = []


class Report(Struct, frozen=True):
    """All figures of a run."""

    started_at: str
    machine: Machine
    postgres: Postgres
    profile: Profile
    systems: list[System]


class Ratio(Struct, frozen=True):
    """One operation in one system: how many times the empty system's rate and CPU it has."""

    system: str
    operation: str
    batch: int
    empty_rate: float
    full_rate: float
    rate: Spread
    cpu: Spread

    @property
    def met(self) -> bool:
        """Whether the middle of the rates is within the target."""
        return self.rate.median >= RATIO_MIN


def ratios(systems: Sequence[System]) -> list[Ratio]:
    """All of them, in the order of the report."""
    found = []
    for system in systems:
        for operation, batch in dict.fromkeys((pair.operation, pair.batch) for pair in system.pairs):
            pairs = [pair for pair in system.pairs if (pair.operation, pair.batch) == (operation, batch)]
            found.append(
                Ratio(
                    system.name, operation, batch, median(pair.empty.rate for pair in pairs),
                    median(pair.full.rate for pair in pairs), _spread(pairs, lambda cost: cost.rate),
                    _spread(pairs, lambda cost: cost.cpu_us),
                )
            )  # fmt: skip
    return found


def _spread(pairs: Sequence[Pair], figure: Callable[[Cost], float]) -> Spread:
    return Spread.of([figure(pair.full) / figure(pair.empty) for pair in pairs])
