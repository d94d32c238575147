"""Sail runs in the process of the command."""

import subprocess
import sys

from tests.support.processes import ROOT, clean_environment

_QUERIES_BESIDE_FORKS = """
import subprocess, sys, threading
from pathlib import Path
from spark_validation import sail

ended = threading.Event()

def ask(session):
    while not ended.is_set():
        assert session.range(20_000).toArrow().num_rows == 20_000

with sail.spoken(), sail.started(Path(sys.argv[1]), 1 << 30, 2) as session:
    asking = threading.Thread(target=ask, args=(session,))
    asking.start()
    for _ in range(100):
        # With a function to call, Python forks; it does not, otherwise.
        subprocess.Popen(["true"], preexec_fn=int).wait()
    ended.set()
    asking.join()
"""


def test_no_fork_takes_parts_of_an_answer_away(tmp_path):
    """gRPC would continue in the child, and says so."""
    ended = subprocess.run(
        [sys.executable, "-c", _QUERIES_BESIDE_FORKS, str(tmp_path)],
        env=clean_environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
