"""What an audit came to: verdicts, quality of the data, figures of the run; as JSON and as one HTML page."""

from html import escape

import msgspec
from msgspec import Struct

from .audits import INTERFACES, all_audits
from .figures import Series, bars, lines
from .page import document, table
from .run import Evidence, Result, Verdict

_NAMED = 3


class Clock(Struct, frozen=True):
    """By how much an agent's clock is ahead of the server's, in microseconds, between bounds."""

    agent: str
    low: int
    high: int
    comparisons: int


class Tail(Struct, frozen=True):
    """An agent whose journal lacks rows."""

    agent: str
    missing: int
    ended: bool


class Report(Struct, frozen=True):
    """All of it.

    Attributes:
        rows: how many there were, by table.
        torn: files of journals that end in the middle of a row.
        unknown_queues: those of the journals that the database does not have.
        series: figures for the plots.
    """

    verdicts: tuple[Verdict, ...]
    rows: dict[str, int]
    clocks: tuple[Clock, ...] = ()
    tails: tuple[Tail, ...] = ()
    torn: tuple[str, ...] = ()
    unknown_queues: tuple[str, ...] = ()
    series: tuple[Series, ...] = ()
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """1 when a guarantee was broken."""
        return int(any(verdict.result is Result.INVALID for verdict in self.verdicts))

    @property
    def summary(self) -> str:
        """One line."""
        by = {result: sum(verdict.result is result for verdict in self.verdicts) for result in Result}
        return (
            f"{by[Result.VALID]} audits valid, {by[Result.INVALID]} invalid, {by[Result.UNKNOWN]} could not judge, "
            f"{sum(verdict.violations for verdict in self.verdicts)} violations, {self.seconds:.0f} s"
        )

    @property
    def notes(self) -> list[str]:
        """What limits the verdicts."""
        found = [f"the journal of {tail.agent} {_why(tail)}: what it does not tell is unknown" for tail in self.tails]
        found += [f"{path} ends in the middle of a row" for path in self.torn]
        if self.unknown_queues:
            found.append(
                f"the database does not have {len(self.unknown_queues)} queues of the journals, as "
                f"{', '.join(self.unknown_queues[:_NAMED])}: they were deleted, or the journals are of another server"
            )
        unsure = [clock for clock in self.clocks if not clock.comparisons]
        if len(self.clocks) > 1 and unsure:
            found.append(
                f"{len(unsure)} of {len(self.clocks)} agents did not compare their clock with the server's: assumed "
                f"is a difference of at most {max(clock.high for clock in unsure) / 1e6} s (--clock-bound)"
            )
        if wide := [clock for clock in self.clocks if clock.comparisons]:
            worst = max(wide, key=lambda clock: max(abs(clock.low), abs(clock.high)))
            found.append(
                f"clocks differ most from the server's at {worst.agent}: ahead by {worst.low / 1e6} "
                f"to {worst.high / 1e6} s"
            )
        return found


def _why(tail: Tail) -> str:
    return f"lacks {tail.missing} rows" if tail.missing else "was cut short"


def as_json(report: Report) -> str:
    """The report for programs."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def as_html(report: Report) -> str:
    """The report as one file that needs nothing else."""
    definitions = {audit.name: audit.definition for each in INTERFACES for audit in all_audits(each)}
    end = max((x for each in report.series if each.over_time for _, x, _ in each.points), default=0.0) or 1.0
    parts = [
        f"<h1>Audit</h1><p>{escape(report.summary)}</p>",
        "".join(f"<p class=unknown>{escape(note)}</p>" for note in report.notes),
        "<h2>Guarantees</h2><table><tr><th>guarantee<th>result<th>violations<th>audit<th>s</tr>",
        "".join(_row(verdict, definitions[verdict.audit]) for verdict in report.verdicts),
        "</table><h2>Violations</h2>",
        "".join(_evidence(verdict) for verdict in report.verdicts if verdict.evidence) or "<p>None.</p>",
        "<h2>The run</h2>",
        "<div class=plots>",
        "".join(lines(each, end) if each.over_time else bars(each) for each in report.series),
        "</div>",
        "<h2>Data</h2>",
        table(("table", "rows"), ((name, f"{count:,}") for name, count in report.rows.items())),
    ]
    return document("Audit", parts)


def _row(verdict: Verdict, definition: str) -> str:
    name = escape(verdict.audit.replace("_", " "))
    about = f"<details><summary>{name}</summary>{escape(definition)}</details>{escape(verdict.text)}"
    return (
        f"<tr><td><code>{escape(' '.join(verdict.ids))}</code><td class={verdict.result}>{verdict.result}"
        f"<td>{verdict.violations or ''}<td>{about}<td>{verdict.seconds:.1f}</tr>"
    )


def _evidence(verdict: Verdict) -> str:
    fields = [
        name for name in Evidence.__struct_fields__ if any(getattr(each, name) is not None for each in verdict.evidence)
    ]
    head = "".join(f"<th>{name.replace('_', ' ')}" for name in fields)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(getattr(each, name)))}" for name in fields) + "</tr>"
        for each in verdict.evidence
    )
    shown = f"{len(verdict.evidence)} of {verdict.violations}"
    name = escape(verdict.audit.replace("_", " "))
    return f"<h3>{name} <small>({shown})</small></h3><table><tr>{head}</tr>{rows}</table>"


def _cell(value: object) -> str:
    return "" if value is None else str(value)
