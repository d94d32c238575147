"""What a run of the benchmark found, and what it should have found."""

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from queen_bench.database import Postgres
from queen_bench.machine import Machine

PUSH_SERVER_IDS = "push, server-made ids"
PUSH_CHOSEN_IDS = "push, client-chosen ids"
POP_ACK_SERVER_IDS = "pop + ack, server-made ids"
POP_ACK_CHOSEN_IDS = "pop + ack, client-chosen ids"

#: Where the targets for rates are set.
_BATCH = 100


class Profile(Struct, frozen=True):
    """How much is measured.

    Attributes:
        seconds: of each rate in each run, at least.
        runs: how often all of it is measured.
        chunk: messages whose calls are prepared at once, before the clock starts.
        backlog: messages of each kind that pops find.
        stored: messages of each kind that are pushed to measure bytes.
        partitions, ready: of the pop of any partition.
        pops: pops of any partition that are timed, each run.
    """

    seconds: float = 1.0
    runs: int = 5
    batches: tuple[int, ...] = (1, 10, 100, 1000)
    connections: tuple[int, ...] = (1, 4)
    chunk: int = 20_000
    backlog: int = 200_000
    stored: int = 50_000
    partitions: int = 100_000
    ready: int = 10
    pops: int = 30


SMOKE = Profile(
    seconds=0.02, runs=2, batches=(1, 100), connections=(1, 2), chunk=200, backlog=2_000, stored=1_000,
    partitions=300, ready=10, pops=3,
)  # fmt: skip


class Sample(Struct, frozen=True):
    """Messages and the seconds that they took."""

    messages: int
    seconds: float

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds


class Spread(Struct, frozen=True):
    """Smallest, middle and largest value of several runs."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The spread of some values."""
        return cls(min(values), median(values), max(values))


class Rate(Struct):
    """One scenario: a sample of each side for each run; neighbours were measured one after the other."""

    scenario: str
    batch: int
    connections: int
    queen: list[Sample] = []
    rows: list[Sample] = []
    logged: list[Sample] = []

    @property
    def ratio(self) -> Spread:
        """How many times as many messages a second the product makes."""
        return _ratio(self.queen, self.rows)

    @property
    def logged_ratio(self) -> Spread | None:
        """The same against rows that are taken as the original does it; ``None`` for a push."""
        return _ratio(self.queen, self.logged) if self.logged else None


def _ratio(queen: Sequence[Sample], other: Sequence[Sample]) -> Spread:
    return Spread.of([q.rate / r.rate for q, r in zip(queen, other, strict=True)])


class Storage(Struct):
    """Bytes a message, pushed 100 a call; one value a run. WAL is that of the whole server."""

    scenario: str
    queen_table: list[float] = []
    rows_table: list[float] = []
    queen_wal: list[float] = []
    rows_wal: list[float] = []


class Wildcard(Struct):
    """Pop of any partition: milliseconds in the database, the median of each run."""

    partitions: int
    ready: int
    queen_ms: list[float] = []
    rows_ms: list[float] = []


class Target(Struct, frozen=True):
    """What was to be reached, and whether the medians reach it."""

    what: str
    wanted: str
    measured: float
    met: bool


class Report(Struct):
    """Everything that one run of the benchmark found."""

    started_at: str
    profile: Profile
    machine: Machine
    postgres: Postgres
    rates: list[Rate]
    wildcard: Wildcard
    storage: list[Storage]
    targets: list[Target] = []


_RATIOS = {PUSH_SERVER_IDS: 6.0, PUSH_CHOSEN_IDS: 3.0, POP_ACK_SERVER_IDS: 8.0, POP_ACK_CHOSEN_IDS: 8.0}
_BYTES = {PUSH_SERVER_IDS: (160, 220), PUSH_CHOSEN_IDS: (300, 400)}
_WILDCARD_MS = 1.0


def targets(report: Report) -> list[Target]:
    """The targets of the project, beside what a report says of them."""
    found = []
    for rate in report.rates:
        if rate.batch == _BATCH:
            what = f"{rate.scenario}, {rate.batch} a call, {_connections(rate.connections)}: times the row table"
            found.append(_at_least(what, _RATIOS[rate.scenario], rate.ratio.median))
            if rate.logged_ratio is not None:
                what += " with the original's log"
                found.append(_at_least(what, _RATIOS[rate.scenario], rate.logged_ratio.median))
    wide = report.wildcard
    what = f"pop of any partition, {wide.ready} ready of {wide.partitions:,}: ms in the database"
    found.append(_below(what, _WILDCARD_MS, median(wide.queen_ms)))
    for storage in report.storage:
        table, wal = _BYTES[storage.scenario]
        found.append(_at_most(f"{storage.scenario}: bytes stored a message", table, median(storage.queen_table)))
        found.append(_at_most(f"{storage.scenario}: bytes of WAL a message", wal, median(storage.queen_wal)))
    return found


def _connections(count: int) -> str:
    return f"{count} connection{'s' if count > 1 else ''}"


def _at_least(what: str, wanted: float, measured: float) -> Target:
    return Target(what, f">= {wanted:g}", measured, measured >= wanted)


def _at_most(what: str, wanted: float, measured: float) -> Target:
    return Target(what, f"<= {wanted:g}", measured, measured <= wanted)


def _below(what: str, wanted: float, measured: float) -> Target:
    return Target(what, f"< {wanted:g}", measured, measured < wanted)
