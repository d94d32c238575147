"""What a run of the benchmark found, and what it should have found."""

from collections.abc import Sequence

from msgspec import Struct

from queen_bench.database import Postgres
from queen_bench.machine import Machine


class Profile(Struct, frozen=True):
    """How much is measured.

    Attributes:
        waiters: long polls on one instance.
        queues: that they wait at; the n-th waits at the n-th of them.
        workers: of the instance.
        idle_s: seconds for which nothing happens and CPU time is counted.
        pushes: messages, each to the queue of another waiter, through the worker that does not hold it.
        pause_ms: between two pushes.
        timeouts: long polls whose lateness is measured.
        rounds: messages from one instance to a consumer at another, for each way of notices.
    """

    waiters: int = 30_000
    queues: int = 30_000
    workers: int = 2
    idle_s: float = 30.0
    pushes: int = 1000
    pause_ms: float = 5.0
    timeouts: int = 1000
    rounds: int = 1000


SMOKE = Profile(
    waiters=60, queues=60, idle_s=0.5, pushes=20, pause_ms=1, timeouts=20, rounds=20,
)  # fmt: skip


class Latencies(Struct, frozen=True):
    """Times in milliseconds, of so many cases; ``failed`` of them had no answer, or another than was due."""

    count: int
    failed: int
    p50: float
    p95: float
    p99: float
    worst: float

    @classmethod
    def of(cls, milliseconds: Sequence[float], failed: int = 0) -> "Latencies":
        """The percentiles of some times."""
        ranked = sorted(milliseconds)

        def at(share: float) -> float:
            return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else 0.0

        return cls(len(ranked), failed, at(0.5), at(0.95), at(0.99), at(1.0))


class Idle(Struct, frozen=True):
    """What the long polls cost while nothing happens.

    Attributes:
        connection_bytes: of memory (PSS) in the workers for an idle kept-alive connection.
        waiter_bytes: for a long poll, beyond that.
        worker_cpu: CPU time of all workers over the idle time, in percent of one core.
        postgres_cpu: the same of PostgreSQL.
        per_worker: how many each worker holds.
    """

    waiters: int
    queues: int
    connection_bytes: float
    waiter_bytes: float
    worker_cpu: float
    postgres_cpu: float
    per_worker: tuple[int, ...]


class Target(Struct, frozen=True):
    """What was to be reached, and whether it was."""

    what: str
    wanted: str
    measured: float
    met: bool


class Report(Struct):
    """Everything that one run of the benchmark found.

    Attributes:
        woken: from a push on one worker to the answer of a long poll on the other.
        lateness: of long polls that end by their timeout.
        notify, udp: from a push on one instance to the answer of a long poll on another, by PostgreSQL alone, and by
            UDP besides.
    """

    started_at: str
    profile: Profile
    machine: Machine
    postgres: Postgres
    idle: Idle
    woken: Latencies
    lateness: Latencies
    notify: Latencies
    udp: Latencies


def targets(report: Report) -> list[Target]:
    """The targets of the project, beside what a report says of them."""
    idle = report.idle
    failed = report.woken.failed + report.lateness.failed + report.notify.failed + report.udp.failed
    return [
        _below(f"{idle.waiters:,} idle long polls: workers' CPU, % of a core", 5, idle.worker_cpu),
        _below("memory of a long poll beyond its connection, bytes", 10_000, idle.waiter_bytes),
        _below("woken by a push on the other worker, p99, ms", 50, report.woken.p99, report.woken.count),
        _below("late at its timeout, worst, ms", 50, report.lateness.worst, report.lateness.count),
        _below("from instance to instance by NOTIFY, p99, ms", 50, report.notify.p99, report.notify.count),
        _below("from instance to instance by UDP, p99, ms", 10, report.udp.p99, report.udp.count),
        Target("answers that did not come as they should", "0", failed, failed == 0),
    ]


def _below(what: str, wanted: float, measured: float, cases: int = 1) -> Target:
    """Nothing is below where there was no case."""
    return Target(what, f"< {wanted:g}", measured, cases > 0 and measured < wanted)
