"""The report of an audit: verdicts, quality of the data, plots of the run; as JSON and as one HTML page."""

from collections.abc import Iterator, Sequence
from html import escape

import msgspec
from msgspec import Struct

from spec.guarantees import GUARANTEES

from .audits import INTERFACES, all_audits
from .figures import Series, bars, lines
from .page import document, table
from .run import Event, Evidence, Result, Verdict

EVENT = tuple(name.replace("number", "row") for name in Event.__struct_fields__)
"""The columns of a history."""

_NAMED = 3
_NOT_JUDGED = (
    "unknown: the load did nothing that the audit could judge; `queen bench load audit-all --audit` does all of it"
)
_WORST_FIRST = (Result.INVALID, Result.UNKNOWN, Result.VALID)


class Clock(Struct, frozen=True):
    """Bounds of the difference between an agent's clock and the server's, in microseconds; positive: ahead.

    ``moved``: comparisons contradict each other, so one of the two clocks drifted, or was set meanwhile.
    """

    agent: str
    low: int
    high: int
    comparisons: int
    moved: bool = False


class Tail(Struct, frozen=True):
    """An agent whose journal lacks rows."""

    agent: str
    missing: int
    ended: bool


class About(Struct, frozen=True):
    """The subject and the times of an audit; times as ISO 8601 in UTC.

    Attributes:
        began_at: when the audit began.
        snapshot_at: time of the snapshot of the database; null without one.
        database: host and database, without user and password.
        guarantees: the requested ones; all if empty.
    """

    began_at: str
    interface: str
    snapshot_at: str | None = None
    database: str | None = None
    journal: str | None = None
    archive: str | None = None
    guarantees: tuple[str, ...] = ()
    clock_bound_s: float = 0.0

    def rows(self) -> list[tuple[str, str]]:
        """The given inputs, with names for people."""
        found = {
            "audited at": self.began_at,
            "interface": self.interface,
            "database": self.database,
            "state of": self.snapshot_at,
            "journals": self.journal,
            "archive": self.archive,
            "guarantees": " ".join(self.guarantees),
        }
        return [(name, value) for name, value in found.items() if value]


class Guarantee(Struct, frozen=True):
    """The worst result of its audits (invalid, then unknown, then valid), and their number of violations."""

    id: str
    result: Result
    violations: int
    audits: tuple[str, ...]


class Report(Struct, frozen=True):
    """The whole report.

    Attributes:
        about: what was audited.
        rows: number of rows by table.
        torn: files of journals that end in the middle of a row.
        unknown_queues: queues of the journals that the database does not have.
        renewed: partitions that were deleted and created again under the same name.
        series: figures for the plots.
    """

    about: About
    verdicts: tuple[Verdict, ...]
    rows: dict[str, int]
    clocks: tuple[Clock, ...] = ()
    tails: tuple[Tail, ...] = ()
    torn: tuple[str, ...] = ()
    unknown_queues: tuple[str, ...] = ()
    renewed: tuple[str, ...] = ()
    series: tuple[Series, ...] = ()
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """1 if a guarantee was violated."""
        return int(self.result is Result.INVALID)

    @property
    def result(self) -> Result:
        """The result of all: invalid if a guarantee was violated, unknown if no audit could judge anything."""
        found = {verdict.result for verdict in self.verdicts}
        return next((each for each in (Result.INVALID, Result.VALID) if each in found), Result.UNKNOWN)

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """The verdict of each requested guarantee."""
        by: dict[str, list[Verdict]] = {}
        for verdict in self.verdicts:
            for id_ in verdict.ids:
                by.setdefault(id_, []).append(verdict)
        asked = self.about.guarantees or by
        return tuple(_guarantee(id_, by[id_]) for id_ in sorted(by) if id_ in asked)

    @property
    def summary(self) -> str:
        """One line."""
        by = {result: sum(verdict.result is result for verdict in self.verdicts) for result in Result}
        return (
            f"{by[Result.VALID]} audits valid, {by[Result.INVALID]} invalid, {by[Result.UNKNOWN]} unknown, "
            f"{sum(verdict.violations for verdict in self.verdicts)} violations, {self.seconds:.0f} s"
        )

    @property
    def notes(self) -> list[str]:
        """The limitations of the verdicts."""
        found = [_NOT_JUDGED] if any(verdict.result is Result.UNKNOWN for verdict in self.verdicts) else []
        found += [f"the journal of {tail.agent} {_why(tail)}: its other calls are unknown" for tail in self.tails]
        found += [f"{path} ends in the middle of a row" for path in self.torn]
        return [*found, *self._places(), *_about_clocks(self.clocks)]

    def _places(self) -> Iterator[str]:
        """What it says of queues and partitions that are not judged."""
        if self.unknown_queues:
            yield (
                f"{len(self.unknown_queues)} queues of the journals are not in the database, such as "
                f"{', '.join(self.unknown_queues[:_NAMED])}: they were deleted, or the journals belong to "
                "another server"
            )
        if self.renewed:
            yield (
                f"{len(self.renewed)} partitions were deleted and created again, such as "
                f"{', '.join(self.renewed[:_NAMED])}: their calls in the journals are not checked"
            )


def _about_clocks(clocks: Sequence[Clock]) -> Iterator[str]:
    unsure = [clock for clock in clocks if not clock.comparisons]
    if len(clocks) > 1 and unsure:
        yield (
            f"{len(unsure)} of {len(clocks)} agents did not compare their clock with the server's: assumed "
            f"is a difference of at most {max(clock.high for clock in unsure) / 1e6} s (--clock-bound)"
        )
    if wide := [clock for clock in clocks if clock.comparisons]:
        worst = max(wide, key=lambda clock: max(abs(clock.low), abs(clock.high)))
        yield (
            f"the clock of {worst.agent} differs most from the server's: it is ahead by "
            f"{worst.low / 1e6} to {worst.high / 1e6} s"
        )
    if moved := [clock.agent for clock in clocks if clock.moved]:
        yield (
            f"the clocks of {len(moved)} agents, such as {', '.join(moved[:_NAMED])}, or the server's, "
            "drifted or were set during the run: their calls are checked for all times within the "
            "bounds"
        )


def _guarantee(id_: str, verdicts: list[Verdict]) -> Guarantee:
    worst = min((verdict.result for verdict in verdicts), key=_WORST_FIRST.index)
    return Guarantee(id_, worst, sum(each.violations for each in verdicts), tuple(each.audit for each in verdicts))


def line_of(evidence: Evidence) -> str:
    """A violation and its location, in a line for people."""
    queue = evidence.queue if evidence.partition is None else f"{evidence.queue}/{evidence.partition}"
    named = {
        "database": evidence.database,
        "group": evidence.group,
        "offset": evidence.offset,
        "transaction": evidence.transaction_id,
        "lease": evidence.lease,
        "journal of": evidence.agent,
        "row": evidence.number,
        "item": evidence.position,
    }
    places = [f"{name} {value}" for name, value in named.items() if value not in (None, "")]
    return _printable(f"{', '.join([*filter(None, [queue]), *places])}: {evidence.text}".removeprefix(": "))


def _printable(text: str) -> str:
    """Without what could command a terminal, as names that clients chose may have."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _why(tail: Tail) -> str:
    return f"lacks {tail.missing} rows" if tail.missing else "was cut short"


def as_json(report: Report) -> str:
    """The report for programs: its fields and derived values; docs/audit.md describes it."""
    derived = {"result": report.result, "summary": report.summary, "guarantees": report.guarantees}
    whole = derived | msgspec.structs.asdict(report) | {"notes": report.notes}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"


def as_html(report: Report) -> str:
    """The report as one self-contained file."""
    definitions = {audit.name: audit.definition for each in INTERFACES for audit in all_audits(each)}
    parts = [
        f"<h1>Audit: <span class={report.result}>{report.result}</span></h1><p>{escape(report.summary)}</p>",
        table(("", ""), report.about.rows(), texts=2),
        "".join(f"<p class=unknown>{escape(note)}</p>" for note in report.notes),
        "<h2>Guarantees</h2><table><tr><th>guarantee<th>what it says<th>result<th>violations<th>audits</tr>",
        "".join(map(_guarantee_row, report.guarantees)),
        "</table><h2>Audits</h2><table><tr><th>guarantee<th>result<th>violations<th>audit<th>s</tr>",
        "".join(_row(verdict, definitions[verdict.audit]) for verdict in report.verdicts),
        "</table><h2>Violations</h2>",
        "".join(_evidence(verdict) for verdict in report.verdicts if verdict.evidence) or "<p>None.</p>",
        "<h2>The run</h2>",
        "<div class=plots>",
        _plots(report.series),
        "</div>",
        "<h2>Data</h2>",
        table(("table", "rows"), ((name, f"{count:,}") for name, count in report.rows.items())),
    ]
    return document("Audit", parts)


def _plots(all_: Sequence[Series]) -> str:
    end = max((x for each in all_ if each.over_time for _, x, _ in each.points), default=0.0) or 1.0
    return "".join(lines(each, end) if each.over_time else bars(each) for each in all_)


def _guarantee_row(each: Guarantee) -> str:
    audits = escape(", ".join(name.replace("_", " ") for name in each.audits))
    return (
        f"<tr><td><code>{escape(each.id)}</code><td>{escape(sentence_of(each.id))}"
        f"<td class={each.result}>{each.result}<td>{each.violations or ''}<td>{audits}</tr>"
    )


def _row(verdict: Verdict, definition: str) -> str:
    name = escape(verdict.audit.replace("_", " "))
    about = f"<details><summary>{name}</summary>{escape(definition)}</details>{escape(verdict.text)}"
    return (
        f"<tr><td><code>{escape(' '.join(verdict.ids))}</code><td class={verdict.result}>{verdict.result}"
        f"<td>{verdict.violations or ''}<td>{about}<td>{verdict.seconds:.1f}</tr>"
    )


def _evidence(verdict: Verdict) -> str:
    fields = [
        name
        for name in Evidence.__struct_fields__
        if name != "history" and any(getattr(each, name) is not None for each in verdict.evidence)
    ]
    head = "".join(f"<th>{name.replace('_', ' ')}" for name in fields)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(getattr(each, name)))}" for name in fields) + "</tr>"
        for each in verdict.evidence
    )
    shown = f"{len(verdict.evidence)} of {verdict.violations}"
    name = escape(verdict.audit.replace("_", " "))
    histories = "".join(
        f"<details><summary>History: {escape(line_of(each))}</summary>"
        f"{table(EVENT, history_of(each), texts=7)}</details>"
        for each in verdict.evidence
        if each.history
    )
    return f"<h3>{name} <small>({shown})</small></h3><table><tr>{head}</tr>{rows}</table>{histories}"


def history_of(evidence: Evidence) -> list[tuple[str, ...]]:
    """The history of its message as rows of a table."""
    return [tuple(_printable(str(value)) for value in msgspec.structs.astuple(each)) for each in evidence.history]


def sentence_of(id_: str) -> str:
    """What a guarantee says: its first sentence."""
    return GUARANTEES[id_].statement.partition(". ")[0].rstrip(".")


def _cell(value: object) -> str:
    return "" if value is None else str(value)
