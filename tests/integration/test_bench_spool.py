"""The benchmark of the spool runs and counts right. Its times are nobody's business here."""

import json
from pathlib import Path

from typer.testing import CliRunner

from queen_bench.command import bench
from queen_bench.spool.results import SMOKE


def test_report_has_all_figures_and_every_message_is_stored(postgres: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    result = CliRunner().invoke(bench, ["spool", "--smoke", "--dsn", postgres, "--json", str(file)])
    assert result.exit_code == 0, result.output
    assert "Targets" in result.stdout
    found = json.loads(file.read_text())
    assert [rates["batch"] for rates in found["rates"]] == list(SMOKE.batches)
    for rates in found["rates"]:
        for samples in (rates["normal"], rates["spooling"], rates["replay"]):
            assert len(samples) == SMOKE.runs
            assert all(sample["messages"] > 0 and sample["seconds"] > 0 for sample in samples)
        assert [s["messages"] for s in rates["replay"]] == [s["messages"] for s in rates["spooling"]]
    assert found["drain"]["messages"] >= SMOKE.drained
