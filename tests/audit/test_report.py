"""What a report says, and how commands end that print one: no Spark."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_validation.journal.schema import WHOLE_MAX
from spark_validation.measures import lag
from spark_validation.report import About, Report, as_html, as_json, line_of
from spark_validation.run import Evidence, Result, Verdict
from spark_validation.times import utc
from tests.support.processes import PYTHON, ROOT, clean_environment

ABOUT = About("2026-11-21T10:00:00+00:00", "queen", database="db.example:5432, database <q>", journal="/journals")


def verdict(audit: str, result: Result, *ids: str, violations: int = 0, **fields: object) -> Verdict:
    return Verdict(audit, ids, result, violations, **fields)  # type: ignore[arg-type]


VALID, INVALID, UNKNOWN = Result.VALID, Result.INVALID, Result.UNKNOWN
VERDICTS = (
    verdict("first_deliveries_in_offset_order", VALID, "G-ORD-1"),
    verdict("deliveries_leave_no_gap", INVALID, "G-ORD-1", "G-ORD-2", violations=3),
    verdict("the_log_has_no_gap", UNKNOWN, "G-ORD-2", text="needs the log (--dsn)"),
    verdict("attempts_rise", VALID, "G-LEASE-1"),
    verdict("cursors_pass_only_what_is_done", UNKNOWN, "G-LEASE-1"),
)


def test_a_guarantee_is_what_its_worst_audit_says():
    found = {
        each.id: (each.result, each.violations, len(each.audits)) for each in Report(ABOUT, VERDICTS, {}).guarantees
    }
    assert found == {"G-ORD-1": (INVALID, 3, 2), "G-ORD-2": (INVALID, 3, 2), "G-LEASE-1": (UNKNOWN, 0, 2)}


def test_only_guarantees_that_were_asked_for_have_a_verdict():
    """Of others only some audits have run."""
    about = About(ABOUT.began_at, "queen", guarantees=("G-ORD-2",))
    assert [each.id for each in Report(about, VERDICTS, {}).guarantees] == ["G-ORD-2"]


@pytest.mark.parametrize(
    ("verdicts", "result"),
    [
        (VERDICTS, INVALID),
        (VERDICTS[:1], VALID),
        ((VERDICTS[0], VERDICTS[2]), VALID),
        (VERDICTS[2:3], UNKNOWN),
        ((), UNKNOWN),
    ],
)
def test_the_result_of_all(verdicts, result):
    assert json.loads(as_json(Report(ABOUT, verdicts, {})))["result"] == result


def test_a_report_says_what_was_audited_and_when():
    report = Report(ABOUT, VERDICTS, {})
    assert json.loads(as_json(report))["about"]["database"] == "db.example:5432, database <q>"
    page = as_html(report)
    for said in ("2026-11-21T10:00:00+00:00", "db.example:5432, database &lt;q&gt;", "/journals", "<code>G-LEASE-1"):
        assert said in page


@pytest.mark.parametrize(
    ("evidence", "line"),
    [
        (Evidence("it is gone"), "it is gone"),
        (
            Evidence("it is gone", "orders", "a", "g", 0, "o-1", "", "host-1", 7, 0),
            "orders/a, group g, offset 0, transaction o-1, journal of host-1, row 7, item 0: it is gone",
        ),
        (Evidence("it is gone", queue="orders"), "orders: it is gone"),
        (Evidence("it is gone", "a\nb", "\x1b[31mü"), r"a\nb/\x1b[31mü: it is gone"),
    ],
)
def test_evidence_is_a_line_for_people(evidence, line):
    assert line_of(evidence) == line


def test_a_time_that_no_calendar_has_is_a_number():
    assert utc(0) == "1970-01-01 00:00:00.000000 UTC"
    assert utc(253_402_300_799_999_999) == "9999-12-31 23:59:59.999999 UTC"
    assert utc(WHOLE_MAX) == f"{WHOLE_MAX} µs after 1970"


ENDING = """
import sys
from functools import partial
from pathlib import Path
sys.path.append(sys.argv[2])
import typer
from queen.cli.output import conclude
from queen.cli.audit import show
from spark_validation.journal.schema import WHOLE_MAX
from spark_validation.measures import lag
from spark_validation.report import as_json
from tests.audit.test_report import ABOUT, VERDICTS, Report

made = Report(ABOUT, VERDICTS, {})
app = typer.Typer()

@app.command()
def command():
    conclude(made.exit_code, partial(show, made), (Path(sys.argv[1]), partial(as_json, made)))

app(args=[])
"""


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """A pipe whose reader has left."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def conclude(path: Path, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """Ends a command with the report, whose JSON goes to a file."""
    command = [sys.executable, "-c", ENDING, str(path), str(ROOT)]
    return subprocess.run(
        command, cwd=ROOT, env=clean_environment(), stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
    )


def test_a_closed_pipe_changes_neither_the_files_nor_the_exit_code(tmp_path, closed_pipe):
    ended = conclude(tmp_path / "r.json", closed_pipe)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert json.loads((tmp_path / "r.json").read_text())["result"] == "invalid"


def test_a_command_without_a_verdict_ends_well_when_its_reader_leaves(closed_pipe):
    command = [*PYTHON, "bench", "load", "--list"]
    ended = subprocess.run(
        command, cwd=ROOT, env=clean_environment(), stdout=closed_pipe, stderr=subprocess.PIPE, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_report_that_cannot_be_written_is_one_line_beside_the_result():
    ended = conclude(Path("/dev/full"))
    assert ended.returncode == 1, "the verdict is worse"
    assert ended.stderr == "error: /dev/full cannot be written: No space left on device\n"
    assert "2 audits valid, 1 invalid" in ended.stdout


def test_without_a_terminal_a_table_is_whole(tmp_path):
    lines = conclude(tmp_path / "r.json").stdout.splitlines()
    assert any(line.startswith("| guarantee | result  | violations | audits | what it says") for line in lines)
    assert any(line.startswith("| G-ORD-2 ") and "every smaller offset" in line for line in lines)
    assert any("first_deliveries_in_offset_order" in line and "G-ORD-1" in line for line in lines)


def test_lag_is_of_every_group_that_asked_also_of_one_that_got_nothing():
    ins = [("q", 0, 3), ("q", 2, 1), ("q", 2, 1), ("other", 1, 1)]
    outs = [(("q", "a"), 1, 2), (("q", "a"), 2, 3)]
    assert lag({("q", "a"), ("q", "idle"), ("empty", "a")}, ins, outs, 4) == {
        ("q", "a"): [(0, 3), (1, 1), (2, 0), (4, 0)],
        ("q", "idle"): [(0, 3), (2, 5), (4, 5)],
    }
