"""The benchmark of retention runs and counts right. Its times are nobody's business here."""

import json
from pathlib import Path

from typer.testing import CliRunner

from queen_bench.command import bench
from queen_bench.retention.results import SMOKE


def test_a_smoke_run_removes_what_it_should_and_reports_both_sides(postgres: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    result = CliRunner().invoke(
        bench, ["retention", "--smoke", "--messages", "5000", "--dsn", postgres, "--json", str(file)]
    )
    assert result.exit_code == 0, result.output
    assert "messages removed a second" in result.stdout
    found = json.loads(file.read_text())
    assert len(found["runs"]) == SMOKE.runs
    for run in found["runs"]:
        assert run["removed"] == 5000
        assert 0 < run["busy_s"] < run["seconds"]
        for side in ("quiet", "beside"):
            assert len(run[side]["push_ms"]) > 1
            assert len(run[side]["pop_ms"]) > 1
