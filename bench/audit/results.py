"""What the benchmark of the audits found, and what it should have found."""

from msgspec import Struct

from queen_bench.machine import Machine

#: Messages a second that are read from the log, hashes only.
READ_TARGET = 2_500_000
#: A hot partition may make all audits so many times as long.
HOT_TARGET = 1.5


class Cost(Struct, frozen=True):
    """What one audit took, in seconds of time and of CPU of all processes."""

    name: str
    result: str
    seconds: float
    cpu_s: float


class Size(Struct, frozen=True):
    """All audits of one run. ``generated_s``: CPU to write its files; ``peak_bytes``: of memory of all processes."""

    messages: int
    hot: float
    costs: list[Cost]
    seconds: float
    cpu_s: float
    generated_s: float
    peak_bytes: int


class Reading(Struct, frozen=True):
    """How fast a log is read while producers write; ``exact``: it was the rows of the snapshot, and no other."""

    messages: int
    written_meanwhile: int
    seconds: float
    cpu_s: float
    exact: bool


class Report(Struct, frozen=True):
    """All of it."""

    machine: Machine
    driver_memory: str
    sizes: list[Size]
    reading: Reading | None
