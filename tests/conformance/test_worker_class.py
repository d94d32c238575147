"""``queen verify`` against each of gunicorn's worker classes; tox has an environment for each."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.support.processes import open_folder, serving
from tests.support.verifying import verify

CLASSES = os.environ.get("QUEEN_TEST_WORKER_CLASSES", "asgi gthread").split()
#: What a check says that is about long polls, where the server holds none.
NO_WAITING = re.compile("the server holds no long polls")
#: And one of a random workload in which, by chance, nothing of its kind happened.
NOTHING_HAPPENED = re.compile("the history holds nothing that it judges")


@pytest.mark.parametrize("worker_class", CLASSES)
def test_every_guarantee_is_valid_on_a_worker_class(worker_class: str, tmp_path: Path) -> None:
    report_file = tmp_path / "report.json"
    with open_folder() as folder, serving(folder / "data", "--workers", "2", "--worker-class", worker_class) as server:
        result = verify(f"http://127.0.0.1:{server.port}", f"--json={report_file}")
        assert server.stop() == 0
        output = server.output.read_text()
    report = json.loads(report_file.read_text())
    assert not [row for row in report["rows"] if row["result"] == "invalid"]
    unknown = [row for row in report["rows"] if row["result"] == "unknown" and not NOTHING_HAPPENED.search(row["text"])]
    assert not unknown, result.stdout
    skipped = [row for row in report["rows"] if row["result"] == "skipped"]
    if worker_class == "meinheld":
        assert {row["id"] for row in skipped} == {"G-WAIT-1", "G-WAIT-4"}, result.stdout
        assert all(NO_WAITING.search(row["text"]) for row in skipped), result.stdout
    else:
        assert not skipped, result.stdout
    assert f"class {worker_class}" in output
    assert f"Note        {worker_class}: " in output, "what it cannot do is said at the start"
