"""``queen verify`` against servers of another worker class, or with the engine in a thread of its own.

In short by default; tox has an environment for each of them in full. `test_verify.py` judges the usual server.
"""

import json
import os
import re

import pytest

from tests.support.processes import clean_environment, open_folder, serving
from tests.support.verifying import verify

SERVERS = os.environ.get("QUEEN_TEST_SERVERS", "asgi gthread thread").split()
PROFILE = os.environ.get("QUEEN_TEST_PROFILE", "quick")
#: What a check says that is about long polls, where the server holds none.
NO_WAITING = re.compile("the server holds no long polls")
#: And one of a random workload in which, by chance, nothing of its kind happened.
NOTHING_HAPPENED = re.compile("the history has nothing for it to judge")


@pytest.mark.parametrize("kind", SERVERS)
def test_every_guarantee_is_valid_on_a_server_of_this_kind(kind: str) -> None:
    options = [] if kind == "thread" else ["--worker-class", kind]
    environment = clean_environment(QUEEN_ENGINE_HOME="thread") if kind == "thread" else clean_environment()
    with open_folder() as folder, serving(folder / "data", "--workers", "2", *options, env=environment) as server:
        result = verify(f"http://127.0.0.1:{server.port}", f"--profile={PROFILE}", "--json")
        assert server.stop() == 0
        output = server.output.read_text()
    report = json.loads(result.stdout)
    assert not [row for row in report["rows"] if row["result"] == "invalid"]
    unknown = [row for row in report["rows"] if row["result"] == "unknown" and not NOTHING_HAPPENED.search(row["text"])]
    assert not unknown, result.stdout
    skipped = [row for row in report["rows"] if row["result"] == "skipped"]
    if kind == "meinheld":
        assert {row["id"] for row in skipped} == {"G-WAIT-1", "G-WAIT-4"}, result.stdout
        assert all(NO_WAITING.search(row["text"]) for row in skipped), result.stdout
    else:
        assert not skipped, result.stdout
    if kind != "thread":
        assert f"class {kind}" in output
        assert f"Note        {kind}: " in output, "what it cannot do is said at the start"
