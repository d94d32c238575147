"""The benchmark beside a held snapshot runs and counts right. Its times are nobody's business here."""

import json
from pathlib import Path

import asyncpg
import pytest
from typer.testing import CliRunner

from queen_bench.command import bench
from queen_bench.errors import MismatchError
from queen_bench.snapshot import holders
from queen_bench.snapshot.results import Pair, Side, verdicts

FIGURES = ["messages a second", "p99 of push + pop + ack, ms", "CPU of PostgreSQL a message, µs", "blocks a message"]


@pytest.mark.parametrize("options", [[], ["--slot"]])
def test_a_smoke_run_measures_both_sides(postgres: str, tmp_path: Path, options: list[str]) -> None:
    file = tmp_path / "report.json"
    arguments = ["held-snapshot", "--smoke", "--pairs", "2", "--dsn", postgres, "--json", str(file), *options]
    result = CliRunner().invoke(bench, arguments)
    assert result.exit_code == 0, result.output
    assert all(figure in result.stdout for figure in FIGURES)
    found = json.loads(file.read_text())
    assert found["profile"]["slot"] == bool(options)
    assert len(found["pairs"]) == 2
    for pair in found["pairs"]:
        for side in (pair["free"], pair["held"]):
            assert side["messages"] > 0
            assert side["blocks"] > side["messages"] / 10
            assert side["p99_ms"] > 0


async def oldest(connection: "asyncpg.Connection[asyncpg.Record]") -> int:
    """The transaction before which rows that were deleted may be removed, as vacuum sees it."""
    await connection.execute("CREATE TEMP TABLE IF NOT EXISTS gone AS SELECT 1 AS a")
    return int(
        await connection.fetchval(
            "SELECT min(x::text::bigint) FROM ("
            "SELECT backend_xmin AS x FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " UNION ALL SELECT xmin FROM pg_replication_slots) AS held"
        )
        or 0
    )


@pytest.mark.parametrize("holder", [holders.snapshot, holders.slot])
async def test_what_is_held_keeps_old_versions(postgres: str, holder: "type[holders.snapshot]") -> None:
    connection = await asyncpg.connect(postgres)
    try:
        await connection.execute("CREATE TABLE IF NOT EXISTS held_versions AS SELECT 1 AS a")
        async with holder(postgres):
            held = await oldest(connection)
            assert held > 0
            await connection.execute("UPDATE held_versions SET a = a + 1")
            assert await connection.fetchval("SELECT txid_current()") > held
            assert await oldest(connection) == held
        assert await connection.fetchval("SELECT count(*) FROM pg_replication_slots") == 0
    finally:
        await connection.execute("DROP TABLE IF EXISTS held_versions")
        await connection.close()


async def test_a_transaction_that_was_ended_meanwhile_is_no_measurement(postgres: str) -> None:
    connection = await asyncpg.connect(postgres)
    try:
        with pytest.raises(MismatchError, match="not the same snapshot"):
            async with holders.snapshot(postgres):
                await connection.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                    " WHERE application_name = 'queen bench' AND state = 'idle in transaction'"
                )
    finally:
        await connection.close()


def side(rate: float, p99_ms: float, cpu_us: float | None, blocks: float) -> Side:
    cpu_s = None if cpu_us is None else cpu_us * 1000 / 1e6
    return Side(1000, 1000 / rate, p99_ms, cpu_s, int(1000 * blocks))


def test_verdicts_are_of_medians_of_pairs() -> None:
    free = side(1000, 10, 50, 20)
    pairs = [Pair(free, side(950, 14, 54, 21)), Pair(free, side(905, 30, 54.9, 22)), Pair(free, side(500, 12, 80, 90))]
    assert [verdict.met for verdict in verdicts(pairs)] == [True, True, True, True]
    worse = [Pair(free, side(890, 15.5, 56, 22.5))] * 3
    assert [verdict.met for verdict in verdicts(worse)] == [False] * 4
    assert [verdict.what for verdict in verdicts([Pair(free, side(1, 1, None, 1))])] == [
        FIGURES[0],
        FIGURES[1],
        FIGURES[3],
    ]
