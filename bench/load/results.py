"""What a run of a scenario found. Frozen values, written as JSON lines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from queen_bench.database import Postgres
from queen_bench.machine import Machine
from queen_bench.procedures.results import Spread

OPERATIONS = ("push", "pop", "ack", "transaction", "enqueue", "dequeue")
#: With fewer messages the bytes a message say more of the pages that happened to be full.
_WEIGHED = 10_000
PARTS = ("server", "postgres", "load")
_OF_ONE_RUN = {"QUEEN_URL", "PREFIX"}


class Latency(Struct, frozen=True):
    """Milliseconds of one kind of call."""

    calls: int
    median: float
    p90: float
    p95: float
    p99: float
    p999: float
    longest: float


class Moment(Struct, frozen=True):
    """Milliseconds of the calls of one kind that were answered in one second, ``at`` seconds after the beginning."""

    at: float
    operation: str
    median: float
    p99: float


class Second(Struct, frozen=True):
    """What had been counted by a moment of a run: seconds since its start, and the totals so far.

    Attributes:
        cpu: seconds by ``server``, ``postgres`` and ``load``, where these run on this machine.
        loading: whether the load itself had begun: what comes before is preparation.
    """

    at: float
    pushed: int
    delivered: int
    requests: int
    cpu: Mapping[str, float] = {}
    loading: bool = True


class Level(Struct, frozen=True):
    """What grows, or should not: bytes of the server's memory and of its tables at a moment of a run."""

    at: float
    memory_bytes: int | None
    table_bytes: int | None


class Weight(Struct, frozen=True):
    """How many messages the load had pushed by a moment, and the bytes of all tables, and of all WAL ever."""

    pushed: int
    tables: int
    wal: int


class Used(Struct, frozen=True):
    """CPU seconds by ``server``, ``postgres`` and ``load``, and the messages and the time in which they were used.

    Preparation is not among it: it is counted from the first to the last second of the load itself.
    """

    messages: int
    seconds: float
    cpu: Mapping[str, float]


class Run(Struct, frozen=True):
    """One run of one scenario against one server.

    Attributes:
        session: the beginning of the session that it belongs to.
        version: of the server.
        load: version of k6.
        postgres: version and settings; ``None`` where the database is not known.
        seconds: of the load, without its preparation.
        pushed, delivered, acked: messages.
        dropped: calls of an open model that came due while all virtual users were busy.
        crossed: thresholds of the script that did not hold, and a kill of PostgreSQL that did not meet the load.
        latency: by operation; ``end_to_end`` and ``woken`` where the script measures them.
        memory_bytes: of the server's processes at the end.
        table_bytes, wal_bytes: a pushed message; ``None`` where that is not known: see ``bytes_a_message``.
        stall_s: the longest time, between others, in which nothing was delivered or pushed.
        timeline, moments, levels: the run over time.
        profiles: flame graphs, files in the folder of the run.
        workers: of the server, where it was started for this.
    """

    scenario: str
    server: str
    version: str
    number: int
    session: str
    started_at: str
    seconds: float
    settings: Mapping[str, str]
    pushed: int
    delivered: int
    acked: int
    dropped: int
    crossed: Sequence[str]
    latency: Mapping[str, Latency]
    used: Used
    memory_bytes: int | None
    table_bytes: float | None
    wal_bytes: float | None
    stall_s: float
    timeline: Sequence[Second]
    moments: Sequence[Moment]
    levels: Sequence[Level]
    machine: Machine
    postgres: Postgres | None = None
    load: str = ""
    profiles: Sequence[str] = ()
    workers: int | None = None

    @property
    def folder(self) -> str:
        """Where its files are, in the folder of all results."""
        return folder_of(self.session, self.scenario, self.number, self.server)

    @property
    def kind(self) -> tuple[object, ...]:
        """What runs have in common that may be compared."""
        own = {name: value for name, value in self.settings.items() if name not in _OF_ONE_RUN}
        return self.scenario, self.server, self.workers, tuple(sorted(own.items()))

    @property
    def messages(self) -> int:
        """What the scenario is about: deliveries where there are some, else pushes."""
        return self.delivered or self.pushed

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def cpu(self) -> Mapping[str, float]:
        """CPU seconds by part."""
        return self.used.cpu

    @property
    def cpu_us(self) -> float | None:
        """Microseconds of CPU a message, of server and PostgreSQL."""
        spent = [self.cpu[name] for name in ("server", "postgres") if name in self.cpu]
        return 1e6 * sum(spent) / self.used.messages if spent and self.used.messages else None

    def part_us(self, part: str) -> float | None:
        """Microseconds of CPU a message of one part."""
        spent = self.cpu.get(part)
        return 1e6 * spent / self.used.messages if spent is not None and self.used.messages else None

    @property
    def key_latency(self) -> tuple[str, Latency] | None:
        """The times that the scenario is about, with their name: end to end, else those of its slowest call."""
        for name in ("end_to_end", "woken"):
            if name in self.latency:
                return name, self.latency[name]
        return max(self.latency.items(), key=lambda each: each[1].median, default=None)


def session_folder(session: str) -> str:
    """The folder of a session, so that none adds to the files of another."""
    return session.replace(":", "")


def server_folder(session: str, server: str) -> str:
    """The folder of a server's runs in a session: its journals are audited with its log, and no others."""
    return f"{session_folder(session)}/{server}"


def folder_of(session: str, scenario: str, number: int, server: str) -> str:
    """The folder of a run."""
    return f"{server_folder(session, server)}/{scenario}-{number}"


def median_run(runs: Sequence[Run]) -> Run:
    """The one in the middle by its rate."""
    return sorted(runs, key=lambda run: run.rate)[(len(runs) - 1) // 2]


def used(timeline: Sequence[Second], whole: Used) -> Used:
    """What was used from the first to the last moment of the load at which something went on.

    Args:
        timeline: of a run.
        whole: all of it, with preparation; it is the answer where the run was too short for two moments.
    """
    loading = [moment for moment in timeline if moment.loading]
    delivers = any(moment.delivered for moment in loading)
    counts = [moment.delivered if delivers else moment.pushed for moment in loading]
    steps = [n for n, (before, after) in enumerate(pairwise(counts)) if after > before]
    if not steps:
        return whole
    begin, end = steps[0], steps[-1] + 1
    first, last = loading[begin], loading[end]
    cpu = {part: last.cpu[part] - first.cpu[part] for part in last.cpu if part in first.cpu}
    return Used(counts[end] - counts[begin], last.at - first.at, cpu)


def bytes_a_message(weights: Sequence[Weight], pushed: int) -> tuple[float | None, float | None]:
    """Of tables and of WAL, from the first look at the load to the last one behind which there was more of it.

    At the others its queues may be deleted already.

    Args:
        weights: of a run, as it was looked at.
        pushed: messages, in all of it.

    Returns:
        both; ``None`` where they are not known: hardly anything was pushed, or the tables had room for it.
    """
    weights = [weight for weight in weights if weight.pushed < pushed]
    if not weights or (messages := weights[-1].pushed - weights[0].pushed) < _WEIGHED:
        return None, None
    tables, wal = weights[-1].tables - weights[0].tables, weights[-1].wal - weights[0].wal
    return (tables / messages if tables > 0 else None), wal / messages


# ---------------------------------------------------------------- comparisons

#: What is compared, and whether more of it is better.
FIGURES: Mapping[str, tuple[Callable[[Run], float | None], bool]] = {
    "messages/s": (lambda run: run.rate, True),
    "median": (lambda run: run.key_latency[1].median if run.key_latency else None, False),
    "p99": (lambda run: run.key_latency[1].p99 if run.key_latency else None, False),
    # Each part by itself: of another server, PostgreSQL's is often not known.
    "CPU of the server a message": (lambda run: run.part_us("server"), False),
    "CPU of PostgreSQL a message": (lambda run: run.part_us("postgres"), False),
}


class Comparison(Struct, frozen=True):
    """Runs of one scenario by two servers, or at two times: how many times the second's figure the first has."""

    scenario: str
    figure: str
    first: str
    second: str
    ratios: Sequence[float]
    more_is_better: bool = True

    @property
    def median(self) -> float:
        """The middle one."""
        return median(self.ratios)

    @property
    def spread(self) -> Spread:
        """Smallest, middle and largest."""
        return Spread.of(self.ratios)


def compare(runs: Sequence[Run]) -> list[Comparison]:
    """A comparison for each figure of each scenario that was run against two servers: neighbouring runs."""
    servers = list(dict.fromkeys(run.server for run in runs))
    if len(servers) < 2:
        return []
    first, second = servers[:2]
    pairs = {(run.scenario, run.server, run.number): run for run in runs}
    found: list[Comparison] = []
    for scenario in dict.fromkeys(run.scenario for run in runs):
        mine = [run for run in runs if (run.scenario, run.server) == (scenario, first)]
        both = [(run, other) for run in mine if (other := pairs.get((scenario, second, run.number)))]
        found += _comparisons(scenario, first, second, both)
    return found


def compare_with_earlier(runs: Sequence[Run], earlier: Sequence[Run]) -> list[Comparison]:
    """This session's runs, each against the median of an earlier session, for each earlier session there is.

    Only runs with the same settings and number of workers.
    """
    found: list[Comparison] = []
    for session in dict.fromkeys(run.session for run in earlier):
        for kind in dict.fromkeys(run.kind for run in runs):
            then = [run for run in earlier if (run.session, run.kind) == (session, kind)]
            now = [run for run in runs if run.kind == kind]
            if then:
                first = now[0]
                found += _comparisons(first.scenario, first.server, session, [(run, median_run(then)) for run in now])
    return found


def _comparisons(scenario: str, first: str, second: str, pairs: Sequence[tuple[Run, Run]]) -> Iterable[Comparison]:
    for figure, (of, more_is_better) in FIGURES.items():
        values = [(of(run), of(other)) for run, other in pairs]
        if ratios := [a / b for a, b in values if a and b]:
            yield Comparison(scenario, figure, first, second, ratios, more_is_better)


# ---------------------------------------------------------------- over time


def stall_seconds(timeline: Sequence[Second]) -> float:
    """The longest time between two moments in which neither pushes nor deliveries went on, though they did later."""
    longest = still = since = 0.0
    last = (0, 0)
    for moment in timeline:
        progress = (moment.pushed, moment.delivered)
        if progress == last:
            still = moment.at - since
            continue
        if any(last):
            longest = max(longest, still)
        since, still, last = moment.at, 0.0, progress
    return longest


def rates(timeline: Sequence[Second]) -> list[tuple[str, float, float]]:
    """Pushes and deliveries a second as (kind, second, rate), while the load went on."""
    found = [
        (kind, after.at, (getattr(after, kind) - getattr(before, kind)) / (after.at - before.at))
        for before, after in pairwise([moment for moment in timeline if moment.loading])
        for kind in ("pushed", "delivered")
    ]
    return [point for point in found if any(other[0] == point[0] and other[2] for other in found)]


class Drift(Struct, frozen=True):
    """How a figure of a run has changed: its median in the last third beside that in the first third."""

    figure: str
    first: float
    last: float

    @property
    def ratio(self) -> float:
        """How many times the first third's the last third's is."""
        return self.last / self.first


def drifts(run: Run) -> list[Drift]:
    """Whether a run is steady: rate, p99, memory and tables; nothing of what there are too few figures of."""
    key = run.key_latency[0] if run.key_latency else ""
    wanted = "delivered" if run.delivered else "pushed"
    figures = {
        "messages/s": [rate for kind, _, rate in rates(run.timeline) if kind == wanted],
        f"p99 of {key}, ms": [moment.p99 for moment in run.moments if moment.operation == key],
        "memory, MB": [level.memory_bytes / 1e6 for level in run.levels if level.memory_bytes],
        "tables, MB": [level.table_bytes / 1e6 for level in run.levels if level.table_bytes],
    }
    found = []
    for name, values in figures.items():
        third = len(values) // 3
        if third and (first := median(values[:third])):
            found.append(Drift(name, first, median(values[-third:])))
    return found


# ---------------------------------------------------------------- files


def read(path: Path) -> list[Run]:
    """The runs of a file of results; those that an older version wrote in another form are left out.

    Raises:
        ValueError: it is no such file at all.
    """
    decoder, found, strange = msgspec.json.Decoder(Run), [], 0
    for line in path.read_bytes().splitlines():
        try:
            found.append(decoder.decode(line))
        except msgspec.ValidationError:
            continue
        except msgspec.DecodeError:
            # The line of who was ended in the middle begins as all do.
            strange += not line.startswith(b"{")
    if strange and not found:
        raise ValueError(f"{path} has no results of `queen bench load`: it wants a results.jsonl")
    return found
