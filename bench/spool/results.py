"""What a run of the spool's benchmark found, and what it should have found."""

from statistics import median

from msgspec import Struct

from queen_bench.database import Postgres
from queen_bench.machine import Machine
from queen_bench.procedures.results import Sample, Spread

#: Where the target for the replay is set.
BATCH = 100
#: The replay shall be so many times as fast as normal pushes.
REPLAY_TIMES = 3.0


class Profile(Struct, frozen=True):
    """How much is measured.

    Attributes:
        seconds: of each rate in each run.
        runs: how often all of it is measured.
        batches: messages of a request.
        producers: each waits for its answer before it pushes again.
        drained: messages of the drain at the end.
    """

    seconds: float = 2.0
    runs: int = 5
    batches: tuple[int, ...] = (1, 10, 100)
    producers: int = 50
    drained: int = 1_000_000


SMOKE = Profile(seconds=0.05, runs=2, batches=(1, 100), producers=4, drained=2_000)


class Rates(Struct):
    """Samples of one size of requests; places of the lists belong together."""

    batch: int
    normal: list[Sample] = []
    spooling: list[Sample] = []
    replay: list[Sample] = []

    @property
    def spooling_ratio(self) -> Spread:
        """How many times as fast as normally pushes are answered while the spool takes them."""
        return Spread.of([a.rate / b.rate for a, b in zip(self.spooling, self.normal, strict=True)])

    @property
    def replay_ratio(self) -> Spread:
        """How many times as fast as normal pushes they are replayed."""
        return Spread.of([a.rate / b.rate for a, b in zip(self.replay, self.normal, strict=True)])


class Report(Struct, frozen=True):
    """All figures of a run."""

    machine: Machine
    postgres: Postgres
    profile: Profile
    rates: list[Rates]
    drain: Sample

    @property
    def targets(self) -> list[tuple[str, bool]]:
        """What should hold, and whether it does, by medians."""
        pushes = [
            (f"pushes of {each.batch} while spooling at least as fast", each.spooling_ratio) for each in self.rates
        ]
        replays = [each.replay_ratio for each in self.rates if each.batch == BATCH]
        return [
            *((text, spread.median >= 1) for text, spread in pushes),
            *((f"replay at least {REPLAY_TIMES:g} times normal at {BATCH}", s.median >= REPLAY_TIMES) for s in replays),
        ]


def middle(samples: list[Sample]) -> float:
    """The median rate, in messages a second."""
    return median(sample.rate for sample in samples)
