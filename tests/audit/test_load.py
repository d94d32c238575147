"""From k6 to the verdict: load with a PostgreSQL that is killed in the middle, its journal, and the audit of both."""

import json
import signal
import threading
from pathlib import Path

from queen_audit.journal.files import open_journal
from tests.support.processes import Server, open_folder, run, serving, wait_until

SETTINGS = ["RATE=60", "VUS=3", "TOLERATE=1", "DURATION=12s"]


def kill_in_the_middle(server: Server) -> None:
    """Kills PostgreSQL once messages flow; the server starts it again."""

    def messages() -> bool:
        status, answer = server.request("GET", "/api/v1/resources/overview")
        return status == 200 and answer["messages"]["total"] > 50

    wait_until(messages, "messages")
    server.postmaster().send_signal(signal.SIGKILL)


def test_load_with_a_kill_in_the_middle_is_audited_green(tmp_path: Path) -> None:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:
        url = f"http://127.0.0.1:{server.port}"
        killer = threading.Thread(target=kill_in_the_middle, args=(server,))
        killer.start()
        done = run(
            "bench", "load", "flow-1000", "--url", url, "--dsn", server.dsn, "--runs", "1", "--journal", *settings,
            "--folder", str(tmp_path), patience=200,
        )  # fmt: skip
        killer.join()
        assert done.returncode == 0, done.stderr
        journal = tmp_path / "flow-1000-1-queen"
        assert open_journal(journal, tmp_path).torn == ()
        report = tmp_path / "audit.json"
        audited = run("audit", "--dsn", server.dsn, "--journal", str(journal), "--json", str(report), patience=500)
    assert audited.returncode == 0, audited.stdout + audited.stderr
    found = json.loads(report.read_text())
    assert found
