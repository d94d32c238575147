"""From k6 to the verdict: load with a PostgreSQL that is killed in the middle, its journal, and the audit of both."""

import asyncio
import json
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from queen.postgres.dsn import UNREACHABLE, connect, parse
from spark_validation.journal.files import open_journal, read_lines
from tests.mutants.catalogue import MUTANTS
from tests.mutants.run import mutated
from tests.support.processes import Server, open_folder, run, serving, wait_until
from tests.support.servers import create_database, drop_database, serving_database

PATIENCE_MS = 10_000
SETTINGS = ["RATE=60", "VUS=3", "TOLERATE=1"]


def kill_in_the_middle(server: Server) -> None:
    """Kills PostgreSQL once messages flow, and waits until the server has started it again."""

    def messages() -> bool:
        status, answer = server.request("GET", "/api/v1/resources/overview")
        return status == 200 and answer["messages"]["total"] > 50

    wait_until(messages, "messages")
    server.postmaster().send_signal(signal.SIGKILL)
    wait_until(lambda: asyncio.run(answers(server.dsn)), "PostgreSQL again")


async def answers(dsn: str) -> bool:
    """Whether PostgreSQL does."""
    try:
        connection = await connect(parse(dsn, "test", PATIENCE_MS))
    except UNREACHABLE:
        return False
    await connection.close()
    return True


def load(server: Server, dsn: str, folder: Path, seconds: int) -> Path:
    """Runs k6 against the server; the folder of its journal."""
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    done = run(
        "bench", "load", "flow-1000", "--url", f"http://127.0.0.1:{server.port}", "--dsn", dsn, "--runs", "1",
        "--seconds", str(seconds), "--journal", *words, "--folder", str(folder), patience=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [journal] = folder.glob("*/queen/flow-1000-1")
    assert open_journal(journal, folder).torn == ()
    # The folder of all sessions has the results beside them.
    assert open_journal(folder, folder) == open_journal(journal, folder)
    assert f"Audit it: queen audit --dsn … --journal {journal.parents[1]}" in done.stdout
    return journal


def audit(dsn: str, journal: Path, *options: str) -> tuple[int, Any]:
    """The exit code, and the report."""
    done = run("audit", "--dsn", dsn, "--journal", str(journal), "--json", *options, patience=1500)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.timeout(2400)
def test_load_with_a_kill_in_the_middle_is_audited_green(tmp_path: Path) -> None:
    with (
        open_folder() as folder,
        serving(folder / "data", "--workers", "2") as server,
        ThreadPoolExecutor(1) as threads,
    ):
        killing = threads.submit(kill_in_the_middle, server)
        journal = load(server, server.dsn, tmp_path, 12)
        killing.result()
        code, report = audit(server.dsn, journal)
    assert (code, [each for each in report["verdicts"] if each["violations"]]) == (0, [])
    judged = {each["audit"] for each in report["verdicts"] if each["result"] == "valid"}
    assert {"answered_pushes_are_in_the_log", "first_deliveries_in_offset_order", "the_log_has_no_gap"} <= judged


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_a_session_is_audited_before_its_server_is_gone(tmp_path: Path) -> None:
    size = ("--seconds", "12", "--runs", "1")
    done = run("bench", "load", "audit-all", *size, "--audit", "--folder", str(tmp_path), patience=1500)
    assert done.returncode == 0, done.stderr + done.stdout
    [page] = tmp_path.glob("*/audit.html")
    assert "answered pushes are in the log" in page.read_text()
    assert "audit-all" in done.stdout
    assert " audits valid, 0 invalid" in done.stdout


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_what_sockets_were_told_is_audited_too(tmp_path: Path) -> None:
    done = run(
        "bench", "load", "socket-take-ack", "socket-latency", "--smoke", "--audit", "--folder", str(tmp_path),
        patience=1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    judged = {words[1]: words[3] for line in done.stdout.splitlines() if len(words := line.split()) > 3}
    for guarantee in ("G-ACK-1", "G-ACK-2", "G-DUR-1", "G-LEASE-1", "G-ORD-1", "G-ORD-2", "G-ORD-3"):
        assert judged[guarantee] == "valid"


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_of_two_servers_the_first_is_audited_with_its_own_journals(tmp_path: Path) -> None:
    """What the other one was told is not in the first one's log."""
    with open_folder() as folder, serving(folder / "data", "--workers", "1") as other:
        url = f"http://127.0.0.1:{other.port}"
        done = run(
            "bench",
            "load",
            "transactions",
            "--smoke",
            "--audit",
            "--against",
            url,
            "--folder",
            str(tmp_path),
            patience=1500,
        )
    assert done.returncode == 0, done.stderr + done.stdout
    assert len(list(tmp_path.rglob("journal.parquet"))) == 2


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_the_same_on_a_server_with_a_fault_is_audited_red(tmp_path: Path, postgres: str) -> None:
    """It leaves out an offset between two flushes, and the audits of that guarantee say so; others do not."""
    [mutant] = [each for each in MUTANTS if each.guarantee == "G-ORD-2"]
    url = asyncio.run(create_database(postgres))
    try:
        with (
            mutated(mutant) as tree,
            serving_database(url, tmp_path, "--workers", "1", root=tree, PYTHONPATH=str(tree)) as server,
        ):
            journal = load(server, url, tmp_path, 5)
            asked = ("G-ORD-2", "G-ORD-3", "G-DUR-1", "G-IDEM-1")
            code, report = audit(url, journal, *(word for id_ in asked for word in ("--guarantee", id_)))
    finally:
        asyncio.run(drop_database(postgres, url))
    assert code == 1
    assert {id_ for each in report["verdicts"] if each["violations"] for id_ in each["ids"]} == {"G-ORD-2"}
    assert "the_log_has_no_gap" in {each["audit"] for each in report["verdicts"] if each["violations"]}


def test_a_kill_of_postgresql_is_in_the_journals(tmp_path: Path) -> None:
    """So that the report of an audit can lay it over its plots."""
    done = run("bench", "load", "failover", "--smoke", "--journal", "--folder", str(tmp_path), patience=300)
    # A threshold of the load may be crossed on a machine that is busy.
    assert done.returncode in (0, 1), done.stderr
    [path] = tmp_path.rglob("faults.jsonl")
    journal = open_journal(path.parent, tmp_path)
    fault, end = read_lines(path)
    assert (fault.kind, fault.client, end.kind) == ("fault", "PostgreSQL killed", "end")
    sent = pq.read_table(path.parent / "journal.parquet", columns=["sent"])["sent"].to_pylist()
    assert min(sent) < fault.sent
    assert len(journal.parquet) == 2
