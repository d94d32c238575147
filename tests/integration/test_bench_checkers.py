"""``queen bench checkers``: a short history, judged by every checker."""

import json
from pathlib import Path

from queen_spec.checkers import all_checkers
from tests.support.processes import run


def test_the_benchmark_of_the_checkers_times_each_of_them(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    result = run("bench", "checkers", "--calls", "3000", "--json", str(file))
    assert result.returncode == 0, result.stderr
    report = json.loads(file.read_text())
    assert len(report["timings"]) == len(all_checkers())
    assert all(timing["judged"] for timing in report["timings"])
    assert report["events"] > report["calls"] >= 3000
    assert "target: 10 s" in result.stdout
