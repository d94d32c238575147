"""The benchmark of depth runs and compares what it says. Its times are nobody's business here."""

import json
from pathlib import Path

from typer.testing import CliRunner

from queen_bench.command import bench
from queen_bench.depth.results import SMOKE, Profile, Report, Run


def test_polls_of_both_queues_are_timed_in_every_run(postgres: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    result = CliRunner().invoke(bench, ["depth", "--smoke", "--dsn", postgres, "--json", str(file)])
    assert result.exit_code == 0, result.output
    found = json.loads(file.read_text())
    assert len(found["runs"]) == SMOKE.runs
    for run in found["runs"]:
        assert len(run["shallow_ms"]) == len(run["deep_ms"]) == SMOKE.polls
    # The deep queue lost one message a poll, those of the warm-up included.
    assert found["depth"] == SMOKE.messages - SMOKE.runs * SMOKE.polls - SMOKE.polls // 10
    assert "median of the ratios" in result.output


def test_the_verdict_is_that_of_the_middle_run() -> None:
    runs = [Run([1.0, 1.0, 1.0], [ratio, ratio, ratio]) for ratio in (1.0, 1.1, 9.0)]
    report = Report("", Profile(), None, None, 0.0, 0, runs)  # type: ignore[arg-type]
    assert report.ratio == 1.1
    assert report.met
    assert not Report("", Profile(), None, None, 0.0, 0, runs[1:]).met  # type: ignore[arg-type]
