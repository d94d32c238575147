"""Every scenario of ``queen bench`` runs and counts right. Its times do not matter here."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
from typer.testing import CliRunner, Result

from bench import database, holders
from bench.messages import PAYLOAD_BYTES, MessageSource
from bench.scenario import PUSH, TAKE, MismatchError, Results, Scenario, read
from bench.scenarios import SCENARIOS
from queen.cli.main import app
from queen.sqs.model import actions as known_actions
from spec.checkers import all_checkers
from tests.support.nightly import mostly_at_night
from tests.support.processes import Server, run

#: All of it takes minutes.
pytestmark = pytest.mark.nightly

NOWHERE = "postgresql://x@127.0.0.1:1/x"
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
ON_POSTGRES = [scenario.name for scenario in SCENARIOS if scenario.needs == "postgres"]
ALL = [*ON_POSTGRES, "checkers", "sqs"]


class Smoked:
    """The results of each scenario, which is run once."""

    def __init__(self, postgres: str, folder: Path) -> None:
        self._postgres, self._folder = postgres, folder
        self._found: dict[tuple[str, ...], tuple[Results, str]] = {}

    def __call__(self, name: str, *options: str) -> tuple[Results, str]:
        """What was found, and what was printed."""
        key = (name, *options)
        if key not in self._found:
            file = self._folder / f"{len(self._found)}.jsonl"
            dsn = ["--dsn", self._postgres] if BY_NAME[name].needs == "postgres" else []
            done = invoke(name, "--smoke", *dsn, "--samples", str(file), *options)
            assert done.exit_code == 0, done.output
            self._found[key] = read(file, name), done.stdout
        return self._found[key]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments])


@pytest.fixture(scope="module")
def smoked(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Smoked:
    return Smoked(postgres, tmp_path_factory.mktemp("bench"))


def figures_of(results: Results, case: str, side: str) -> list[dict[str, float]]:
    """Of each run."""
    return [dict(each.figures) for each in results.samples if (each.case, each.side) == (case, side)]


def smoke(scenario: Scenario) -> Any:
    return scenario.settings(**scenario.smoke)


@pytest.mark.parametrize("name", mostly_at_night(ALL, {*ALL} - {"growth", "waiters"}))
def test_what_was_measured_is_told_and_judged(smoked: Smoked, name: str) -> None:
    scenario, (results, printed) = BY_NAME[name], smoked(name)
    session = results.session
    assert session.machine.cpus > 0
    assert (session.postgres is not None) == (scenario.needs == "postgres")
    if session.postgres:
        settings = session.postgres.settings
        assert settings["fsync"] == settings["synchronous_commit"] == settings["full_page_writes"] == "on"
    times = Counter((each.case, each.side, each.run) for each in results.samples)
    assert set(times.values()) == {1}
    figures = {(case, figure) for case, figure in results.figures}
    assert all(case in printed and figure in printed for case, figure in figures)
    judged = list(results.verdicts(scenario.targets))
    assert {id(target) for _, target, _, _ in judged} == {id(target) for target in scenario.targets}, (
        "some judge nothing"
    )
    assert scenario.targets == () or "Targets" in printed


def test_every_rate_of_the_procedures_is_measured_on_both_sides_in_every_run(smoked: Smoked) -> None:
    settings, (results, _) = smoke(BY_NAME["procedures"]), smoked("procedures")
    rates = {case for case, figure in results.figures if figure == "messages/s"}
    assert len(rates) == 4 * len(settings.batches) * len(settings.connections)
    for case in rates:
        for side in results.sides if case.startswith(TAKE) else results.sides[:2]:
            found = figures_of(results, case, side)
            assert len(found) == settings.runs
            assert all(each["messages/s"] > 0 for each in found)
    for ids in ("server-made", "client-chosen"):
        for side in results.sides[:2]:
            assert [len(each) for each in figures_of(results, f"{PUSH}, {ids} ids", side)] == [2] * settings.runs
    wide = f"pop of any partition, {settings.ready} ready of {settings.partitions}"
    assert len(results.values(wide, "ms in the database", "queen")) == settings.runs


def test_a_server_of_sqs_carries_out_every_action_and_can_be_measured_beside_another(
    smoked: Smoked, server: Server
) -> None:
    results, _ = smoked("sqs")
    [actions] = figures_of(results, "actions (1: carried out)", "queen")
    assert actions == dict.fromkeys((name for name in known_actions() if "." not in name), 1.0)
    [memory] = figures_of(results, "memory", "queen")
    assert memory["before MiB"] > 0
    url = f"http://127.0.0.1:{server.port}/sqs"
    beside, _ = smoked("sqs", "--url", f"one={url}@{server.process.pid}", "--url", url)
    assert beside.sides == ["one", url]
    assert figures_of(beside, "memory", url) == []
    for side in beside.sides:
        [rates] = figures_of(beside, "2 connections, single messages", side)
        assert all(rate > 0 for rate in rates.values())
    assert "is not an endpoint" in invoke("sqs", "--url", "nonsense").output


async def test_nothing_is_left_behind(postgres: str, smoked: Smoked) -> None:
    smoked("procedures")
    connection = await asyncpg.connect(postgres)
    try:
        assert await connection.fetchval("SELECT count(*) FROM pg_database WHERE datname LIKE 'queen\\_bench\\_%'") == 0
    finally:
        await connection.close()


def test_commits_that_do_not_wait_for_the_disk_are_refused(postgres: str) -> None:
    separator = "&" if "?" in postgres else "?"
    dsn = f"{postgres}{separator}options=-csynchronous_commit%3Doff"
    refused = invoke("procedures", "--smoke", "--dsn", dsn)
    assert refused.exit_code == 1
    assert "synchronous_commit is 'off'" in refused.stderr


def test_messages_have_the_size_that_reports_speak_of() -> None:
    messages = MessageSource().take(5000, 0, chosen=True)
    assert {len(message.payload) for message in messages} == {PAYLOAD_BYTES}
    assert len({message.transaction_id for message in messages}) == 5000
    assert all(json.loads(message.payload) for message in messages[:100])


def test_every_layer_is_measured_and_is_what_it_takes_beyond_the_one_below(smoked: Smoked) -> None:
    results, _ = smoked("engine")
    assert {case.partition(",")[0] for case, _ in results.figures} == {PUSH, TAKE}
    python, own = "Python, µs per message", "Python's own, µs per message"
    for case in dict.fromkeys(case for case, _ in results.figures):
        [procedures], [engine], [http] = (figures_of(results, case, side) for side in ("procedures", "engine", "HTTP"))
        assert min(each["messages/s"] for each in (procedures, engine, http)) > 0
        assert procedures[own] == procedures[python] > 0
        assert engine[own] == pytest.approx(engine[python] - procedures[python])
        assert engine["requests per call"] > 0
        # Its backlog may be done before anybody has looked twice.
        assert own not in http or http[own] == pytest.approx(http[python] - engine[python])


def test_without_http_no_server_is_started(smoked: Smoked) -> None:
    assert smoked("engine", "--no-http")[0].sides == ["procedures", "engine"]


def test_full_systems_are_measured_beside_the_empty_one(smoked: Smoked) -> None:
    settings, (results, _) = smoke(BY_NAME["growth"]), smoked("growth")
    for name in ("2,000 messages", "200 partitions", "3 groups"):
        for work in settings.works:
            assert len(results.values(f"{name}: {work}", "messages/s", "full / empty")) == settings.runs


@pytest.mark.parametrize("options", [(), ("--slot",)])
def test_both_sides_of_a_held_snapshot_are_measured(smoked: Smoked, options: tuple[str, ...]) -> None:
    results, _ = smoked("held-snapshot", *options)
    assert results.session.settings["slot"] == bool(options)
    for figure in ("messages/s", "p99 ms", "PostgreSQL, µs per message", "blocks per message"):
        ratios = results.values("push + pop + ack", figure, "held / free")
        assert len(ratios) == 2
        assert min(ratios) > 0
    assert min(results.values("push + pop + ack", "blocks per message", "free")) > 0.1


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


def test_pushes_to_postgresql_and_to_the_spool_are_neighbours_of_the_replay(smoked: Smoked) -> None:
    settings, (results, _) = smoke(BY_NAME["spool"]), smoked("spool")
    for batch in settings.batches:
        for ratio in ("spooling / normal", "replay / normal"):
            assert len(results.values(f"push, {batch} per request", "messages/s", ratio)) == settings.runs
    [drained] = results.values("from the return of PostgreSQL to an empty spool", "messages", "replay")
    assert drained >= settings.drained


def test_retention_removes_what_it_should_and_both_sides_are_told(smoked: Smoked) -> None:
    settings, (results, _) = smoke(BY_NAME["retention"]), smoked("retention")
    found = figures_of(results, "retention", "beside retention")
    assert [each["messages removed"] for each in found] == [settings.messages] * settings.runs
    assert all(0 < each["share of the time in calls"] < 1 for each in found)
    for case in (PUSH, TAKE):
        assert len(results.values(case, "p99 ms", "beside retention / quiet")) == settings.runs


def test_every_long_poll_is_answered_as_it_should_be(smoked: Smoked) -> None:
    results, _ = smoked("waiters")
    cases = [case for case, figure in results.figures if figure == "cases"]
    assert len(cases) == 4
    for case in cases:
        [times] = figures_of(results, case, "queen")
        assert (times["cases"], times["failed"]) == (20, 0)
        assert times["median ms"] <= times["p95 ms"] <= times["p99 ms"] <= times["longest ms"]
    assert results.values("60 idle long polls", "largest share of a worker", "queen") == [0.5]


def test_every_listing_is_timed_in_every_run(smoked: Smoked) -> None:
    settings, (results, _) = smoke(BY_NAME["listing"]), smoked("listing")
    operations = {case for case, _ in results.figures}
    assert len(operations) > 31
    assert "POST /api/v1/stats/refresh" in operations
    for operation in operations:
        assert len(results.values(operation, "ms", "server")) == settings.runs
        assert min(results.values(operation, "answer KiB", "server")) > 0


def test_polls_of_both_queues_are_timed_in_every_run(smoked: Smoked) -> None:
    settings, (results, _) = smoke(BY_NAME["depth"]), smoked("depth")
    assert len(results.values("poll", "median ms", "deep / shallow")) == settings.runs
    # The deep queue lost one message a poll, those of the warm-up included.
    left = settings.messages - settings.runs * settings.polls - settings.polls // 10
    assert results.values("filling", "messages at the end", "deep") == [left]


def test_a_queue_that_would_be_empty_before_the_end_is_refused(postgres: str) -> None:
    refused = run("bench", "depth", "--messages", "1000", "--dsn", postgres)
    assert refused.returncode == 1
    assert "5,100 polls take 5,100 messages, and the deep queue has 1,000" in " ".join(refused.stderr.split())


def test_every_checker_is_timed(smoked: Smoked) -> None:
    results, _ = smoked("checkers")
    judged = [case for case, figure in results.figures if figure == "judged"]
    assert len(judged) == len(all_checkers())
    assert all(min(results.values(case, "judged", "checkers")) > 0 for case in judged)
    [total] = figures_of(results, "all checkers together", "checkers")
    assert total["events"] > total["calls"] >= 3000


def test_results_are_shown_beside_those_of_an_earlier_session(smoked: Smoked, tmp_path: Path) -> None:
    file = tmp_path / "then.jsonl"
    assert invoke("checkers", "--smoke", "--samples", str(file)).exit_code == 0
    beside = invoke("checkers", "--smoke", "--earlier", str(file))
    assert f"Beside {read(file, 'checkers').session.started_at}" in beside.stdout
    assert "1.00 / 1.00 / 1.00" in beside.stdout
    refused = invoke("depth", "--smoke", "--earlier", str(file), "--dsn", NOWHERE)
    assert refused.exit_code == 2
    assert "has no results of `queen bench depth`" in " ".join(refused.stderr.split())


# ---------------------------------------------------------------- databases


async def test_a_database_is_dropped_also_when_the_connection_that_made_it_was_cut(postgres: str) -> None:
    connection = await asyncpg.connect(postgres)
    try:
        async with database.scratch_database(postgres) as url:
            name = urlsplit(url).path.removeprefix("/")
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'queen bench'"
            assert await connection.fetch(cut)
        assert not await connection.fetchval("SELECT count(*) FROM pg_database WHERE datname = $1", name)
    finally:
        await connection.close()


async def test_what_cannot_be_dropped_is_told_and_hides_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    await database._drop(NOWHERE, "queen_bench_1")
    assert "The benchmark's database queen_bench_1 is left behind: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ON_POSTGRES)
def test_a_server_that_is_not_there_is_an_error_in_a_line(name: str) -> None:
    ended = invoke(name, "--smoke", "--dsn", NOWHERE)
    assert ended.exit_code == 1
    assert ended.stderr.splitlines()[-1].startswith("error: "), ended.stderr


@pytest.fixture
async def ordinary(postgres: str) -> AsyncIterator[str]:
    """The connection string of a user who may make databases, and nothing else."""
    name = f"ordinary_{uuid4().hex[:8]}"
    connection = await asyncpg.connect(postgres)
    await connection.execute(f"CREATE ROLE {name} LOGIN CREATEDB PASSWORD 'x'")
    parts = urlsplit(postgres)
    place = parts.netloc.rpartition("@")[2]
    yield urlunsplit(parts._replace(netloc=f"{name}:x@{place}"))
    await connection.execute(f"DROP ROLE {name}")
    await connection.close()


@pytest.mark.parametrize("name", ["growth", "listing", "retention"])
def test_an_ordinary_user_is_enough(ordinary: str, name: str) -> None:
    done = run("bench", name, "--smoke", "--dsn", ordinary, patience=300)
    assert done.returncode == 0, done.stderr
