"""`queen bench load`: every scenario runs against a real server, and says what happened."""

import subprocess
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from queen_bench.load.results import Run
from queen_bench.load.scenarios import SCENARIOS, chosen
from queen_bench.load.session import settings
from queen_bench.load.target import Target
from tests.support.processes import Server, run


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return run("bench", "load", *arguments, patience=300)


def runs_of(folder: Path) -> list[Run]:
    return [msgspec.json.decode(line, type=Run) for line in (folder / "results.jsonl").read_bytes().splitlines()]


def test_every_kind_of_scenario_runs_against_a_server_and_both_sides_take_turns(server: Server, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{server.port}"
    names = ["push-10", "pop-ack-10", "fan-out-10", "transactions", "waiters-2000"]
    done = bench(*names, "--smoke", "--url", url, "--dsn", server.dsn, "--against", url, "--folder", str(tmp_path))
    assert done.returncode == 0, done.stderr + done.stdout
    runs = runs_of(tmp_path)
    assert [(each.scenario, each.server) for each in runs] == [
        (name, who) for name in names for who in ("queen", "other")
    ]
    for each in runs:
        assert each.crossed == []
        assert each.messages > 0
        assert each.seconds > 0
        assert set(each.cpu) >= {"server", "load"}
    by_name = {each.scenario: each for each in runs if each.server == "queen"}
    fan_out = by_name["fan-out-10"]
    assert fan_out.pushed < fan_out.delivered <= 10 * fan_out.pushed
    assert by_name["pop-ack-10"].delivered == by_name["pop-ack-10"].acked
    assert by_name["push-10"].cpu["postgres"] >= 0
    assert set(by_name["transactions"].latency) >= {"pop", "transaction"}
    assert "woken" in by_name["waiters-2000"].latency
    assert "How many times the figures of other queen has" in done.stdout
    page = (tmp_path / "report.html").read_text()
    assert all(f"<h2>{name}</h2>" in page for name in names)
    assert "<h2>queen beside other</h2>" in page


def test_every_other_scenario_runs_and_is_compared_with_what_was_there_before(server: Server, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{server.port}"
    names = ["flow-max", "spike", "soak", "simple-mq-dead-letter", "simple-mq-happy-path"]
    for chosen_names in (names, names[-1:]):
        done = bench(*chosen_names, "--smoke", "--url", url, "--dsn", server.dsn, "--folder", str(tmp_path))
        assert done.returncode == 0, done.stderr + done.stdout
    runs = runs_of(tmp_path)
    assert [each.scenario for each in runs] == [*names, names[-1]]
    assert [each.crossed for each in runs] == [[]] * len(runs)
    first, second = runs[-2:]
    assert first.session < second.session
    assert first.postgres is not None
    assert f"<h2>Beside {first.session}</h2>" in (tmp_path / "report.html").read_text()


def test_the_load_of_simple_mq_runs_too(server: Server, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{server.port}"
    done = bench("simple-mq", "--smoke", "--url", url, "--dsn", server.dsn, "--folder", str(tmp_path))
    assert done.returncode == 0, done.stderr + done.stdout
    [found] = runs_of(tmp_path)
    assert found.crossed == []
    assert found.pushed >= found.delivered == found.acked > 0
    assert set(found.latency) == {"enqueue", "dequeue", "ack"}
    assert found.used.messages > 0


def test_a_failover_is_lived_through(tmp_path: Path) -> None:
    done = bench("failover", "--smoke", "--folder", str(tmp_path))
    assert done.returncode == 0, done.stderr + done.stdout
    [found] = runs_of(tmp_path)
    assert found.pushed > 0
    assert "postgres" not in found.cpu, "the one that was looked at is dead"


async def test_of_a_database_that_is_away_for_the_moment_nothing_is_known() -> None:
    away = Target("queen", "http://127.0.0.1:9", "postgresql://x@127.0.0.1:9/x")
    assert (await away.sizes(), await away.postmaster(), await away.describe()) == (None, None, None)


@pytest.mark.skipif(
    find_spec("pyarrow") is not None, reason="pyarrow is there; tests/audit/test_load.py takes the journal"
)
def test_a_journal_without_what_writes_it_is_refused_at_once(tmp_path: Path) -> None:
    refused = bench("push-1", "--smoke", "--journal", "--folder", str(tmp_path))
    assert refused.returncode != 0
    assert "pip install 'queen-for-python[audit]'" in " ".join(refused.stderr.split())


def test_the_scenarios_are_listed_and_a_wrong_one_is_refused_with_their_names() -> None:
    listed = bench("--list")
    assert listed.returncode == 0
    assert all(scenario.name in listed.stdout for scenario in SCENARIOS)
    refused = bench("push-7")
    assert refused.returncode != 0
    assert "There is no scenario push-7" in refused.stderr
    assert "push-10k-partitions" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["push-1", "--url", "http://127.0.0.1:9"], "No server at http://127.0.0.1:9"),
        (["push-1", "--url", "http://127.0.0.1:9", "--dsn", "postgresql://x@127.0.0.1:9/x"], "cannot be looked at"),
        (["push-1", "--set", "VUS"], "expected is NAME=value"),
        (["failover", "--url", "http://127.0.0.1:9"], "only done to the embedded one"),
    ],
)
def test_what_cannot_be_done_is_one_line(arguments: list[str], text: str, tmp_path: Path) -> None:
    refused = bench(*arguments, "--folder", str(tmp_path))
    assert refused.returncode != 0
    assert text in " ".join(refused.stderr.split())
    assert "Traceback" not in refused.stderr


def test_names_with_a_star_take_all_that_begin_so() -> None:
    assert [each.name for each in chosen(["pop-ack-*", "spike"])] == [
        "pop-ack-1", "pop-ack-10", "pop-ack-100", "pop-ack-1000", "spike",
    ]  # fmt: skip
    assert settings(["VUS=3", "A=b=c"], smoke=True) == {"SMOKE": "1", "VUS": "3", "A": "b=c"}
