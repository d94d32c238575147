"""The benchmark of listings runs and asks for everything. Its times are nobody's business here."""

import json
from pathlib import Path

from typer.testing import CliRunner

from queen_bench.command import bench
from queen_bench.listing.results import SMOKE


def test_every_operation_is_timed_in_every_run(postgres: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    result = CliRunner().invoke(bench, ["listing", "--smoke", "--dsn", postgres, "--json", str(file)])
    assert result.exit_code == 0, result.output
    found = json.loads(file.read_text())
    operations = [timing["operation"] for timing in found["timings"]]
    assert len(operations) == len(set(operations)) > 30
    assert all(len(timing["ms"]) == SMOKE.runs and timing["answer_bytes"] > 0 for timing in found["timings"])
    assert len(found["refresh_ms"]) == SMOKE.runs
