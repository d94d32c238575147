"""What a message costs in each layer."""

from collections.abc import Callable, Sequence
from math import isfinite, nan
from statistics import median

from msgspec import Struct

from queen_bench.database import Postgres
from queen_bench.machine import Machine
from queen_bench.procedures.results import Spread

PUSH, TAKE = "push", "pop + ack"


class Profile(Struct, frozen=True):
    """How much is measured.

    Attributes:
        seconds: of each layer of each shape in each run.
        runs: how often all of it is measured.
        backlog: most messages that are pushed at once for consumers to take.
        shapes: messages of a request, and how many clients send such requests.
        http: whether a whole server is measured, too.
        http_s: seconds of each run of k6; it counts whole ones.
        http_backlog: messages for the consumers of k6; ``None``: as many as its scenarios have.
    """

    seconds: float = 2.0
    runs: int = 5
    backlog: int = 200_000
    shapes: tuple[tuple[int, int], ...] = ((1, 50), (10, 50), (100, 8), (1000, 8))
    http: bool = True
    http_s: int = 5
    http_backlog: int | None = None


SMOKE = Profile(http_s=2, http_backlog=2_000, seconds=0.05, runs=1, backlog=2_000, shapes=((10, 4),))


class Cost(Struct, frozen=True):
    """Messages, and what they took.

    Attributes:
        seconds: by the clock.
        python_s: CPU seconds of Python, without those of the clients; not a number if nobody could look at it.
        postgres_s: CPU seconds of PostgreSQL; ``None`` if that runs elsewhere.
        calls: of procedures; 0 where they are not known.
    """

    messages: int
    seconds: float
    python_s: float
    postgres_s: float | None
    calls: int = 0

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def python_us(self) -> float:
        """Microseconds of Python a message."""
        return 1e6 * self.python_s / self.messages

    @property
    def postgres_us(self) -> float:
        """Microseconds of PostgreSQL a message; 0 where that is not known."""
        return 1e6 * (self.postgres_s or 0.0) / self.messages

    @property
    def cpu_us(self) -> float:
        """Both."""
        return self.python_us + self.postgres_us


class Shape(Struct):
    """One kind of work in all layers; places of the lists belong together: neighbours of one run.

    Attributes:
        calls: procedures alone, with as many messages a call as the engine fused.
        engine: the engine with parsing and rendering, without HTTP.
        http: a server with one worker.
    """

    operation: str
    batch: int
    clients: int
    calls: list[Cost] = []
    engine: list[Cost] = []
    http: list[Cost] = []

    @property
    def layers(self) -> dict[str, Spread]:
        """CPU microseconds a message of each layer: what it needs beyond the one below it."""
        calls, engine, http = self.calls, self.engine, self.http
        found = {
            "PostgreSQL": [cost.postgres_us for cost in engine],
            "driver": [cost.python_us for cost in calls],
            "engine": _beyond(engine, calls),
            "HTTP": _beyond(http, engine) if http else [],
        }
        return {name: Spread.of(known) for name, costs in found.items() if (known := list(filter(isfinite, costs)))}

    def ratio(self, above: Sequence[Cost], below: Sequence[Cost]) -> Spread:
        """How many times the rate of the layer below the one above reaches."""
        return Spread.of([a.rate / b.rate for a, b in zip(above, below, strict=True)])


def _beyond(above: Sequence[Cost], below: Sequence[Cost]) -> list[float]:
    return [a.python_us - b.python_us for a, b in zip(above, below, strict=True)]


class Report(Struct, frozen=True):
    """All figures of a run."""

    started_at: str
    machine: Machine
    postgres: Postgres
    profile: Profile
    shapes: list[Shape]


def middle(costs: Sequence[Cost], figure: Callable[[Cost], float]) -> float:
    """The median of a figure, of those that are known; not a number if none is."""
    known = [each for cost in costs if isfinite(each := figure(cost))]
    return median(known) if known else nan
