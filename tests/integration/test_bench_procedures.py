"""The benchmark of the procedures runs and counts right. Its times are nobody's business here."""

import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from typer.testing import CliRunner

from queen_bench.command import bench
from queen_bench.procedures.results import SMOKE
from queen_bench.procedures.side import PAYLOAD_BYTES, MessageSource

SCENARIOS = 4


@pytest.fixture(scope="module")
def found(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file: Path = tmp_path_factory.mktemp("bench") / "report.json"
    result = CliRunner().invoke(bench, ["procedures", "--smoke", "--dsn", postgres, "--json", str(file)])
    assert result.exit_code == 0, result.output
    assert "Targets" in result.stdout
    return json.loads(file.read_text())


def test_every_scenario_is_measured_on_both_sides_in_every_run(found: dict[str, Any]) -> None:
    shapes = {(rate["scenario"], rate["batch"], rate["connections"]) for rate in found["rates"]}
    assert len(shapes) == len(found["rates"]) == SCENARIOS * len(SMOKE.batches) * len(SMOKE.connections)
    for rate in found["rates"]:
        for samples in (rate["queen"], rate["rows"]):
            assert len(samples) == SMOKE.runs
            assert all(sample["messages"] > 0 and sample["seconds"] > 0 for sample in samples)


def test_pushes_are_whole_calls(found: dict[str, Any]) -> None:
    for rate in found["rates"]:
        if rate["scenario"].startswith("push"):
            for sample in (*rate["queen"], *rate["rows"]):
                assert sample["messages"] % (rate["batch"] * rate["connections"]) == 0


def test_bytes_and_pops_are_measured_in_every_run(found: dict[str, Any]) -> None:
    for storage in found["storage"]:
        for column in ("queen_table", "rows_table", "queen_wal", "rows_wal"):
            assert len(storage[column]) == SMOKE.runs
    wildcard = found["wildcard"]
    assert (wildcard["partitions"], wildcard["ready"]) == (SMOKE.partitions, SMOKE.ready)
    assert len(wildcard["queen_ms"]) == len(wildcard["rows_ms"]) == SMOKE.runs


def test_a_report_says_what_it_ran_on_and_which_targets_are_met(found: dict[str, Any]) -> None:
    settings = found["postgres"]["settings"]
    assert settings["fsync"] == settings["synchronous_commit"] == settings["full_page_writes"] == "on"
    assert found["machine"]["cpus"] > 0
    assert {target["met"] for target in found["targets"]} <= {True, False}
    per_shape = SCENARIOS + sum(rate["logged"] != [] for rate in found["rates"]) // (
        len(SMOKE.batches) * len(SMOKE.connections)
    )
    assert len(found["targets"]) == per_shape * len(SMOKE.connections) + 1 + 2 * len(found["storage"])


async def test_nothing_is_left_behind(postgres: str, found: dict[str, Any]) -> None:
    connection = await asyncpg.connect(postgres)
    try:
        assert await connection.fetchval("SELECT count(*) FROM pg_database WHERE datname LIKE 'queen\\_bench\\_%'") == 0
    finally:
        await connection.close()


def test_commits_that_do_not_wait_for_the_disk_are_refused(postgres: str) -> None:
    separator = "&" if "?" in postgres else "?"
    dsn = f"{postgres}{separator}options=-csynchronous_commit%3Doff"
    result = CliRunner().invoke(bench, ["procedures", "--smoke", "--dsn", dsn])
    assert result.exit_code == 1
    assert "synchronous_commit is 'off'" in result.stderr


def test_messages_have_the_size_that_the_report_speaks_of() -> None:
    messages = MessageSource().take(5000, 0, chosen=True)
    assert {len(message.payload) for message in messages} == {PAYLOAD_BYTES}
    assert len({message.transaction_id for message in messages}) == 5000
    assert all(json.loads(message.payload) for message in messages[:100])
