"""What a report has of a violation: a script that shows it again, or the calls of a workload that prove it."""

import json
import subprocess
from pathlib import Path

import pytest

from spec.conformance import run
from tests.conformance.test_verify import Forgetful, Loses, broken
from tests.mutants.catalogue import MUTANTS
from tests.mutants.run import mutated, serving_copy
from tests.support.nightly import mostly_at_night
from tests.support.processes import open_folder, serving
from tests.support.stubs import stub

#: What a script's last answer shows, of a fault that needs values of earlier answers, one that takes time, and one of
#: requests at once.
FAULTS = {
    "an ack is accepted under any lease": '"success":true',
    "a lease is not exclusive": '"data":2',
    "no pause after a failure": '"data":0',
}


@pytest.mark.parametrize("name", mostly_at_night(FAULTS, ["a lease is not exclusive"]))
def test_the_script_of_a_violation_shows_it(name: str, tmp_path: Path) -> None:
    [mutant] = [each for each in MUTANTS if each.name == name]
    with open_folder() as place, mutated(mutant) as tree, serving_copy(tree, place / "data") as server:
        url = f"http://127.0.0.1:{server.port}"
        report = run(url, seed=7, profile="quick", only=[mutant.guarantee], fail_fast=True)
        rows = [row for row in report.rows if row.result == "invalid" and row.evidence.startswith("#!/bin/sh")]
        assert rows, report.rows
        script = tmp_path / "script.sh"
        script.write_text(rows[0].evidence)
        done = subprocess.run(["sh", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert FAULTS[name] in done.stdout, rows[0].evidence + done.stdout
    assert rows[0].text in rows[0].evidence


def test_only_requests_about_the_queue_of_the_violation_are_in_its_script() -> None:
    """The fault shows with the first of three limits: the queues of the others do not exist yet, those before go."""
    [mutant] = [each for each in MUTANTS if each.name == "a dead letter one try late"]
    with open_folder() as place, mutated(mutant) as tree, serving_copy(tree, place / "data") as server:
        report = run(f"http://127.0.0.1:{server.port}", seed=7, only=[mutant.guarantee], fail_fast=True)
    [row, *_] = [row for row in report.rows if row.result == "invalid"]
    assert row.evidence.count("curl -") == 4, row.evidence
    assert "verify-" not in row.evidence


def test_a_violation_of_the_workload_comes_with_the_calls_that_prove_it() -> None:
    with (
        open_folder() as place,
        serving(place / "data") as server,
        stub(Loses, upstream=server.port) as (url, _),
    ):
        report = run(url, seed=7, profile="quick", only=["G-GRP-1"])
    [row] = [row for row in report.rows if row.check == "workload: every group gets every message"]
    calls = [json.loads(line) for line in row.evidence.splitlines()]
    assert "Push" in {call["kind"] for call in calls}
    assert all(row.text.partition(": ")[2].partition(":")[0] in line for line in row.evidence.splitlines())


def test_evidence_is_written_into_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "shown"
    folder.mkdir()
    report, _ = broken(Forgetful, tmp_path, "--only=G-LEASE-3", f"--evidence={folder}")
    told = {row["evidence"] for row in report["rows"] if row["evidence"]}
    assert {file.read_text() for file in folder.iterdir()} == told
    assert "G-LEASE-3-a-foreign-lease-changes-nothing.sh" in {file.name for file in folder.iterdir()}
    assert "What shows it" in (tmp_path / "html").read_text()
    assert not [row for row in report["rows"] if row["evidence"] and row["result"] != "invalid"]


def test_what_is_not_done_at_once_gets_the_same_verdict_each_time() -> None:
    """Of a broken server, with the same seed: those that send requests at once, and the workload, are left out."""
    only = ["G-ORD-4", "G-IDEM-3", "G-LEASE-3", "G-LEASE-6", "G-ACK-4", "G-DLQ-1", "G-TXN-1", "G-GRP-1"]

    def verdicts() -> list[tuple[str, str, str]]:
        with stub(Forgetful) as (url, _):
            rows = run(url, seed=7, profile="quick", only=only, fail_fast=True).rows
        return [(row.id, row.check, row.result) for row in rows if not row.check.startswith("workload")]

    first = verdicts()
    assert "invalid" in {result for _, _, result in first}
    assert [verdicts(), verdicts()] == [first, first]
