"""``queen bench waiters``: it works, every answer comes as it should, and the report holds what it says."""

import json
import subprocess
from pathlib import Path

from tests.support.processes import PYTHON, ROOT, clean_environment


def test_a_small_run_has_all_answers(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    result = subprocess.run(
        [*PYTHON, "bench", "waiters", "--smoke", f"--json={file}"],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(file.read_text())
    for name in ("woken", "lateness", "notify", "udp"):
        times = report[name]
        assert (times["count"], times["failed"]) == (20, 0), name
        assert times["p50"] <= times["p95"] <= times["p99"] <= times["worst"]
    assert report["idle"]["per_worker"] == [30, 30]
    assert "| push on one worker to long poll on the other" in result.stdout
