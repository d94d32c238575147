"""What a report has of a violation: a script that shows it again, or the calls of a workload that prove it."""

import json
import subprocess
from pathlib import Path

import pytest

from spec.conformance import run
from tests.conformance.test_verify import Loses
from tests.mutants.catalogue import MUTANTS
from tests.mutants.run import mutated
from tests.support.processes import open_folder, serving
from tests.support.stubs import stub

#: What a script's last answer shows, of a fault that needs values of earlier answers, one that takes time, and one of
#: requests at once.
FAULTS = {
    "an ack is accepted under any lease": '"success":true',
    "a lease is not exclusive": '"data":2',
    "no pause after a failure": '"data":0',
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_script_of_a_violation_shows_it(name: str, tmp_path: Path) -> None:
    [mutant] = [each for each in MUTANTS if each.name == name]
    with open_folder() as place, mutated(mutant) as tree, serving(place / "data", cwd=tree) as server:
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
    with open_folder() as place, mutated(mutant) as tree, serving(place / "data", cwd=tree) as server:
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
