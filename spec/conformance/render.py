"""The report as text, JSON, JUnit XML and one HTML page."""

from __future__ import annotations

import json
from dataclasses import asdict
from html import escape
from xml.etree import ElementTree as ET

from ..guarantees import GUARANTEES
from .report import Report, Row

_COLOURS = {"valid": "#1a7f37", "invalid": "#cf222e", "unknown": "#9a6700", "skipped": "#57606a"}
_STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem}
table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #d0d7de;padding:.3rem .6rem;text-align:left;
vertical-align:top}td:first-child{white-space:nowrap}"""


def as_table(report: Report) -> str:
    """Plain text, one line a result: id, level, result, check, text."""
    rows = [(row.id, row.level, row.result, row.check, row.text) for row in report.rows]
    statuses = [
        ("status", "", each.shown, each.situation, f"recommended: {each.recommended}") for each in report.statuses
    ]
    lines = [("id", "level", "result", "check", ""), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    table = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[4]]) for line in lines
    ]
    seen = [f"{situation}: {shown}; {wanted}" for _, _, shown, situation, wanted in statuses]
    return "\n".join([*(line.rstrip() for line in table), "", *seen, "", report.summary, ""])


def as_json(report: Report) -> str:
    """Every field of the report, and whether it passed."""
    return json.dumps({**asdict(report), "passed": report.passed}, indent=2) + "\n"


def as_junit(report: Report) -> str:
    """One test case a result; a result that is unknown is an error."""
    counts = [str(sum(row.result == result for row in report.rows)) for result in ("invalid", "unknown", "skipped")]
    totals = dict(zip(("failures", "errors", "skipped"), counts, strict=True))
    suite = ET.Element(
        "testsuite", {"name": "queen verify", "tests": str(len(report.rows)), "time": f"{report.seconds:.3f}", **totals}
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (("url", report.url), ("seed", str(report.seed)), ("profile", report.profile)):
        ET.SubElement(properties, "property", name=name, value=value)
    for row in report.rows:
        _add_case(suite, row)
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(suite: ET.Element, row: Row) -> None:
    case = ET.SubElement(suite, "testcase", classname=row.id, name=row.check)
    kind = {"invalid": "failure", "unknown": "error", "skipped": "skipped"}.get(row.result)
    if kind:
        ET.SubElement(case, kind, message=row.text).text = _printable(row.evidence) or None
    elif row.text:
        ET.SubElement(case, "system-out").text = row.text


def _printable(text: str) -> str:
    """The text without what XML and HTML cannot hold."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text)


def as_html(report: Report) -> str:
    """One page without references to others."""
    rows = "\n".join(_html_row(row) for row in report.rows)
    statuses = "\n".join(
        _cells(each.situation, each.shown, each.recommended, "" if each.as_recommended else "differs")
        for each in report.statuses
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>queen verify {escape(report.url)}</title>
<style>{_STYLE}</style></head><body>
<h1>queen verify {escape(report.url)}</h1>
<p>{escape(report.summary)}, profile {escape(report.profile)}</p>
<table><tr><th>guarantee</th><th>level</th><th>result</th><th>check</th><th></th></tr>
{rows}
</table>
<h2>Statuses</h2><p>No guarantee depends on them.</p>
<table><tr><th>answer</th><th>seen</th><th>recommended</th><th></th></tr>
{statuses}
</table></body></html>
"""


def _html_row(row: Row) -> str:
    title, colour = escape(GUARANTEES[row.id].statement, quote=True), _COLOURS[row.result]
    return (
        f'<tr><td title="{title}">{row.id}</td><td>{row.level}</td><td style="color:{colour}">{row.result}</td>'
        f"<td>{escape(row.check)}</td><td>{escape(row.text)}{_details(row)}</td></tr>"
    )


def _details(row: Row) -> str:
    """What shows a violation, folded."""
    if not row.evidence:
        return ""
    return f"<details><summary>What shows it</summary><pre>{escape(_printable(row.evidence))}</pre></details>"


def _cells(*texts: str) -> str:
    return "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in texts) + "</tr>"
