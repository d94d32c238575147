"""The results of runs. Frozen values, written as JSON lines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from bench.database import Postgres
from bench.machine import Machine
from bench.scenario import Spread

OPERATIONS = ("push", "pop", "ack", "transaction", "enqueue", "dequeue")
#: With fewer messages, bytes per message depend too much on which pages happen to be full.
_WEIGHED = 10_000
PARTS = ("server", "postgres", "load")
_OF_ONE_RUN = {"QUEEN_URL", "PREFIX"}


class Latency(Struct, frozen=True):
    """Latency of one type of call, in milliseconds."""

    calls: int
    median: float
    p90: float
    p95: float
    p99: float
    p999: float
    longest: float


class Moment(Struct, frozen=True):
    """Latency of one type of call in one second, ``at`` seconds after the beginning, in milliseconds."""

    at: float
    operation: str
    median: float
    p99: float


class Second(Struct, frozen=True):
    """The counts at a moment of a run: seconds since its start, and totals so far.

    Attributes:
        cpu: seconds by ``server``, ``postgres`` and ``load``, if these run on this machine.
        loading: whether the load itself had begun, after the preparation.
    """

    at: float
    pushed: int
    delivered: int
    requests: int
    cpu: Mapping[str, float] = {}
    loading: bool = True


class Level(Struct, frozen=True):
    """Bytes of the server's memory and of its tables at a moment of a run."""

    at: float
    memory_bytes: int | None
    table_bytes: int | None


class Weight(Struct, frozen=True):
    """The pushed messages by a moment, the bytes of all tables, and of all WAL so far."""

    pushed: int
    tables: int
    wal: int


class Used(Struct, frozen=True):
    """CPU seconds by ``server``, ``postgres`` and ``load``, with the messages and the time of the measurement.

    Without preparation: from the first to the last second of the load itself.
    """

    messages: int
    seconds: float
    cpu: Mapping[str, float]


class Run(Struct, frozen=True):
    """One run of one scenario against one server.

    Attributes:
        session: start of its session.
        version: of the server.
        load: the generator and its version.
        postgres: version and settings; ``None`` if the database is unknown.
        seconds: of the load, without its preparation.
        pushed, delivered, acked: messages.
        dropped: calls of an open model that came due while all virtual users were busy.
        crossed: thresholds of the script that did not hold, and a kill of PostgreSQL that missed the load.
        latency: by operation; ``end_to_end`` and ``woken`` if the script measures them.
        memory_bytes: of the server's processes at the end.
        table_bytes, wal_bytes: per pushed message; ``None`` if unknown: see ``bytes_a_message``.
        stall_s: the longest time within the load in which nothing was delivered or pushed.
        timeline, moments, levels: the run over time.
        profiles: flame graphs, files in the folder of the run.
        workers: of the server, if it was started for this run.
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
        """The folder of its files, in the folder of all results."""
        return folder_of(self.session, self.scenario, self.number, self.server)

    @property
    def kind(self) -> tuple[object, ...]:
        """The key of runs that may be compared."""
        own = {name: value for name, value in self.settings.items() if name not in _OF_ONE_RUN}
        return self.scenario, self.server, self.workers, tuple(sorted(own.items()))

    @property
    def messages(self) -> int:
        """The measured messages: deliveries if there are any, else pushes."""
        return self.delivered or self.pushed

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds

    @property
    def cpu(self) -> Mapping[str, float]:
        """CPU seconds by part."""
        return self.used.cpu

    @property
    def cpu_us(self) -> float | None:
        """CPU of server and PostgreSQL per message, in microseconds."""
        spent = [self.cpu[name] for name in ("server", "postgres") if name in self.cpu]
        return 1e6 * sum(spent) / self.used.messages if spent and self.used.messages else None

    def part_us(self, part: str) -> float | None:
        """CPU of one part per message, in microseconds."""
        spent = self.cpu.get(part)
        return 1e6 * spent / self.used.messages if spent is not None and self.used.messages else None

    @property
    def key_latency(self) -> tuple[str, Latency] | None:
        """The main latency of the scenario, with its name: end to end, else that of its slowest call."""
        for name in ("end_to_end", "woken"):
            if name in self.latency:
                return name, self.latency[name]
        return max(self.latency.items(), key=lambda each: each[1].median, default=None)


def session_folder(session: str) -> str:
    """The folder of a session, so that sessions do not share files."""
    return session.replace(":", "")


def server_folder(session: str, server: str) -> str:
    """The folder of a server's runs in a session: only its journals are audited with its log."""
    return f"{session_folder(session)}/{server}"


def folder_of(session: str, scenario: str, number: int, server: str) -> str:
    """The folder of a run."""
    return f"{server_folder(session, server)}/{scenario}-{number}"


def median_run(runs: Sequence[Run]) -> Run:
    """The median run by rate."""
    return sorted(runs, key=lambda run: run.rate)[(len(runs) - 1) // 2]


def used(timeline: Sequence[Second], whole: Used) -> Used:
    """The resources used from the first to the last moment of the load with activity.

    Args:
        timeline: of a run.
        whole: the whole run, with preparation; the result if the run was too short for two moments.
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
    """Bytes of tables and of WAL per message, from the first sample of the load to the last one that more load follows.

    At later samples its queues may be deleted already.

    Args:
        weights: samples of a run.
        pushed: messages of the whole run.

    Returns:
        both; ``None`` if unknown: too little was pushed, or the tables had free space for it.
    """
    weights = [weight for weight in weights if weight.pushed < pushed]
    if not weights or (messages := weights[-1].pushed - weights[0].pushed) < _WEIGHED:
        return None, None
    tables, wal = weights[-1].tables - weights[0].tables, weights[-1].wal - weights[0].wal
    return (tables / messages if tables > 0 else None), wal / messages


# ---------------------------------------------------------------- comparisons

#: The compared metrics, and whether more is better.
FIGURES: Mapping[str, tuple[Callable[[Run], float | None], bool]] = {
    "messages/s": (lambda run: run.rate, True),
    "median": (lambda run: run.key_latency[1].median if run.key_latency else None, False),
    "p99": (lambda run: run.key_latency[1].p99 if run.key_latency else None, False),
    # Each part separately: PostgreSQL's CPU is often unknown for another server.
    "CPU of the server per message": (lambda run: run.part_us("server"), False),
    "CPU of PostgreSQL per message": (lambda run: run.part_us("postgres"), False),
    "CPU of both per message": (lambda run: run.cpu_us if {"server", "postgres"} <= run.cpu.keys() else None, False),
}


class Comparison(Struct, frozen=True):
    """Runs of one scenario by two servers, or at two times: the ratios of the first to the second."""

    scenario: str
    figure: str
    first: str
    second: str
    ratios: Sequence[float]
    more_is_better: bool = True

    @property
    def median(self) -> float:
        """The median."""
        return median(self.ratios)

    @property
    def spread(self) -> Spread:
        """Smallest, middle and largest."""
        return Spread.of(self.ratios)


def compare(runs: Sequence[Run]) -> list[Comparison]:
    """A comparison per metric and scenario that was run against two servers, of neighbouring runs."""
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
    """This session's runs, each against the median of an earlier session, for each earlier session.

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
    """The longest time without pushes and deliveries that was followed by some."""
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
    """Pushes and deliveries per second as (kind, second, rate), during the load."""
    found = [
        (kind, after.at, (getattr(after, kind) - getattr(before, kind)) / (after.at - before.at))
        for before, after in pairwise([moment for moment in timeline if moment.loading])
        for kind in ("pushed", "delivered")
    ]
    return [point for point in found if any(other[0] == point[0] and other[2] for other in found)]


class Drift(Struct, frozen=True):
    """The change of a metric within a run: its medians in the first and the last third."""

    figure: str
    first: float
    last: float

    @property
    def ratio(self) -> float:
        """The ratio of the last third to the first."""
        return self.last / self.first


def drifts(run: Run) -> list[Drift]:
    """Whether a run is steady: rate, p99, memory and tables; without those that have too few samples."""
    found = []
    for name, values in _over_time(run).items():
        third = len(values) // 3
        if third and (first := median(values[:third])):
            found.append(Drift(name, first, median(values[-third:])))
    return found


def _over_time(run: Run) -> dict[str, list[float]]:
    key = run.key_latency[0] if run.key_latency else ""
    wanted = "delivered" if run.delivered else "pushed"
    return {
        "messages/s": [rate for kind, _, rate in rates(run.timeline) if kind == wanted],
        f"p99 of {key}, ms": [moment.p99 for moment in run.moments if moment.operation == key],
        "memory, MB": [level.memory_bytes / 1e6 for level in run.levels if level.memory_bytes],
        "tables, MB": [level.table_bytes / 1e6 for level in run.levels if level.table_bytes],
    }


# ---------------------------------------------------------------- files


def read(path: Path) -> list[Run]:
    """The runs of a file of results, without those that an older version wrote in another form.

    Raises:
        ValueError: it is no such file.
    """
    decoder, found, strange = msgspec.json.Decoder(Run), [], 0
    for line in path.read_bytes().splitlines():
        try:
            found.append(decoder.decode(line))
        except msgspec.ValidationError:
            continue
        except msgspec.DecodeError:
            # The incomplete line of an interrupted session begins like all others.
            strange += not line.startswith(b"{")
    if strange and not found:
        raise ValueError(f"{path} has no results of `queen bench load`: give a results.jsonl")
    return found
