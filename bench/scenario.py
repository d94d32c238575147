"""A scenario of ``queen bench``: its settings, its needs, its measurement, and the targets of its figures.

A scenario is a module of ``bench.scenarios`` with one value of ``Scenario``. Runner, results, report and command are
the same for all: ``run`` below, ``Sample``, ``report.py`` and ``command.py``.
"""

import operator
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeAlias

import msgspec
import uvloop
from msgspec import Struct

from bench import database, machine
from bench.database import Postgres
from bench.machine import Machine
from queen.core.errors import QueenError

#: Called with the next step and the share of the whole that is done.
Progress: TypeAlias = Callable[[str, float], None]
#: Names of producers and consumers in cases.
PUSH, TAKE = "push", "pop + ack"

_PERCENTILES = (("median ms", 0.5), ("p95 ms", 0.95), ("p99 ms", 0.99), ("longest ms", 1.0))
_COMPARED = {">=": operator.ge, "<=": operator.le, "<": operator.lt, "=": operator.eq}


#: Settings may be paths.
_encode = msgspec.json.Encoder(enc_hook=str).encode


class MismatchError(QueenError):
    """The measured system misbehaved: messages are missing, or a verdict is wrong."""

    code = "mismatch"


class Spread(Struct, frozen=True):
    """Smallest, middle and largest value of several runs."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The spread of some values."""
        return cls(min(values), median(values), max(values))


class Sample(Struct, frozen=True, tag="sample"):
    """The measurement of one case on one side in one run.

    Attributes:
        case: the operation, for example ``push, 100 per request``.
        side: the measured system. Samples of one case and run are neighbours: their sides were measured in turns.
        figures: by name, which ends with the unit.
    """

    case: str
    side: str
    run: int
    figures: Mapping[str, float]


class Session(Struct, frozen=True, tag="session"):
    """The origin of samples: the first line of a file of results."""

    scenario: str
    started_at: str
    settings: Mapping[str, Any]
    machine: Machine
    postgres: Postgres | None


class Target(Struct, frozen=True):
    """A target for the median of a figure.

    Attributes:
        case: pattern of the cases.
        of: a side, or two as ``this / that`` for their ratio.
        wanted: a comparison, for example ``>= 6``.
    """

    case: str
    figure: str
    of: str
    wanted: str

    def met(self, value: float) -> bool:
        """Whether a value meets the target."""
        how, bound = self.wanted.split()
        return bool(_COMPARED[how](value, float(bound)))


class Scenario(Struct, frozen=True):
    """A measurement, as data.

    Attributes:
        needs: ``postgres``: ``measure`` is called with the address of a PostgreSQL in which it makes databases of its
            own, and drops them; ``nothing``; ``spark``: the packages of the extra ``audit``.
        measure: yields samples. Called with address (or ``""``), settings and progress. Raises QueenError if it is not
            possible, MismatchError if figures are meaningless, because messages are missing.
        settings: frozen values with a default each. Those with ``typer.Option`` are options of the command.
        smoke: settings that ``--smoke`` changes, so that it takes seconds.
        ratios: pairs of sides. The report has the ratios of the first to the second.
    """

    name: str
    about: str
    needs: Literal["postgres", "spark", "nothing"]
    measure: Callable[[str, Any, Progress], AsyncIterator[Sample] | Iterator[Sample]]
    settings: type[Struct]
    smoke: Mapping[str, Any]
    ratios: Sequence[tuple[str, str]] = ()
    targets: Sequence[Target] = ()


class Results(Struct, frozen=True):
    """All of one session."""

    session: Session
    samples: Sequence[Sample]

    @property
    def sides(self) -> list[str]:
        """In the order of their arrival."""
        return list(dict.fromkeys(sample.side for sample in self.samples))

    @property
    def figures(self) -> list[tuple[str, str]]:
        """Case and name of all figures, by case."""
        found = dict.fromkeys((sample.case, figure) for sample in self.samples for figure in sample.figures)
        cases = dict.fromkeys(case for case, _ in found)
        return [key for case in cases for key in found if key[0] == case]

    def values(self, case: str, figure: str, of: str) -> list[float]:
        """A figure of each run: of a side, or the ratios of neighbours for ``this / that``."""
        this, _, that = of.partition(" / ")
        top, below = self._by_run(case, figure, this), self._by_run(case, figure, that)
        if not that:
            return list(top.values())
        return [value / below[run] for run, value in top.items() if below.get(run)]

    def _by_run(self, case: str, figure: str, side: str) -> dict[int, float]:
        mine = [sample for sample in self.samples if (sample.case, sample.side) == (case, side)]
        return {sample.run: sample.figures[figure] for sample in mine if figure in sample.figures}

    def verdicts(self, targets: Sequence[Target]) -> Iterator[tuple[str, Target, float, bool]]:
        """For each target: case, target, the median, and whether it is met."""
        for target in targets:
            cases = [c for c, figure in self.figures if figure == target.figure and fnmatchcase(c, target.case)]
            for case in cases:
                if values := self.values(case, target.figure, target.of):
                    yield case, target, median(values), target.met(median(values))


def percentiles(milliseconds: Sequence[float]) -> dict[str, float]:
    """The figures of some times."""
    ranked = sorted(milliseconds)
    return {name: ranked[int(part * (len(ranked) - 1))] for name, part in _PERCENTILES if ranked}


def in_turn(sides: Sequence[Any], number: int) -> Sequence[Any]:
    """The sides in the order of this run: the first one changes with each run, so that noise hits all alike."""
    return sides if number % 2 == 0 else sides[::-1]


def run(scenario: Scenario, dsn: str | None, settings: Struct, progress: Progress) -> Results:
    """Runs a scenario, on an embedded PostgreSQL if it needs one and none is named."""
    started_at, facts = datetime.now(UTC).isoformat(timespec="seconds"), machine.describe()
    postgres = None
    if scenario.needs == "postgres":
        with database.server(dsn) as url:
            samples = uvloop.run(_gather(scenario.measure(url, settings, progress)))  # the loop of a worker
            postgres = uvloop.run(database.describe_server(url, embedded=dsn is None))
    else:
        samples = list(scenario.measure("", settings, progress))  # type: ignore[arg-type]
    given = msgspec.structs.asdict(settings)
    return Results(Session(scenario.name, started_at, given, facts, postgres), samples)


async def _gather(samples: Any) -> list[Sample]:  # noqa: ANN401 - an asynchronous iterator
    return [sample async for sample in samples]


def write(path: Path, results: Results) -> None:
    """Writes a session as JSON lines: the origin, then one sample per line."""
    path.write_bytes(b"\n".join(map(_encode, (results.session, *results.samples))) + b"\n")


def read(path: Path, scenario: str) -> Results:
    """The last session of a scenario in a file, which may be a concatenation of files.

    Raises:
        ValueError: the file has none.
    """
    try:
        lines = msgspec.json.decode(b"[%b]" % b",".join(path.read_bytes().splitlines()), type=list[Session | Sample])
    except msgspec.DecodeError as problem:
        raise ValueError(f"{path} has no results of `queen bench {scenario}`: {problem}") from problem
    sessions: list[tuple[Session, list[Sample]]] = []
    for line in lines:
        if isinstance(line, Session):
            sessions.append((line, []))
        elif sessions:
            sessions[-1][1].append(line)
    own = [Results(session, samples) for session, samples in sessions if session.scenario == scenario]
    if not own:
        raise ValueError(f"{path} has no results of `queen bench {scenario}`")
    return own[-1]
