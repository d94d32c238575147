"""docs/tutorial.md as it stands: its requests, its program with the published client, and what it says of both."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.guides import code, request_of
from tests.support.processes import ROOT, Server, open_folder, serving
from tests.support.published_client import VERSION, environment

PAGE = ROOT / "docs" / "tutorial.md"
PATIENCE_S = 240


@pytest.fixture
def own() -> Iterator[Server]:
    """A server that has seen nothing, as the reader's; its queues have the names of the page."""
    with open_folder() as folder, serving(folder / "data") as running:
        yield running


class Reader:
    """Types one line of the page after the other, in their order."""

    def __init__(self, server: Server, python: Path, folder: Path) -> None:
        self._server, self._python, self._folder = server, python, folder
        self._lines = [line for block in code(PAGE, "sh") for line in block.splitlines()]
        (program,) = code(PAGE, "python")
        (folder / "billing.py").write_text(program.replace("localhost:6632", f"127.0.0.1:{server.port}"))

    def next(self, **told: str) -> tuple[int, Any]:
        """Sends the next line that is a request, with what the reader was told filled in."""
        line = self._lines.pop(0)
        for name, value in told.items():
            line = line.replace(f"<{name}>", value)
        assert line.startswith("curl "), line
        assert "<" not in line, line
        method, path, body = request_of(line)
        connection = self._server.connection()
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        return answer.status, _decoded(text)

    def skip(self, *lines: str) -> None:
        """Lines that make or start what the test has already."""
        for line in lines:
            assert self._lines.pop(0) == line

    def bill(self) -> list[str]:
        """Runs the program as the page says; what it prints."""
        done = subprocess.run(
            [self._python, "-I", self._folder / "billing.py"],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            env=environment(),
            cwd="/",
        )
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith(("alice ", "bob "))]

    @property
    def is_done(self) -> bool:
        return not self._lines


def _decoded(text: bytes) -> Any:
    return json.loads(text) if text else None


def _names(answer: Any) -> list[tuple[str, str]]:
    return sorted((message["partition"], message["data"]["item"]) for message in answer["messages"])


def test_the_tutorial_works_as_it_stands(own: Server, client_python: Path, tmp_path: Path) -> None:
    reader = Reader(own, client_python, tmp_path)
    reader.skip("python3 -m venv server && server/bin/pip install .", "server/bin/queen serve")
    assert reader.next()[0] == 200

    assert [item["status"] for item in reader.next()[1]] == ["queued"] * 3
    assert [item["status"] for item in reader.next()[1]] == ["duplicate"]
    assert reader.next()[0] == 200
    assert len(reader.next()[1]["messages"]) == 3

    reader.skip(
        f"python3 -m venv client && client/bin/pip install queen-mq=={VERSION}", "client/bin/python client/billing.py"
    )
    assert reader.bill() == ["alice tea 4", "alice milk 1"]

    (dead,) = reader.next()[1]["messages"]
    assert dead["transactionId"] == "order-3"
    assert "price" in dead["errorMessage"]
    assert [item["status"] for item in reader.next()[1]] == ["queued"]
    assert reader.next(id=dead["id"])[0] == 200
    assert reader.bill() == ["bob a horse 900"]

    status, shipped = reader.next()
    assert status == 200
    everything = [("alice", "milk"), ("alice", "tea"), ("bob", "a horse"), ("bob", "a horse")]
    assert _names(shipped) == everything
    groups = reader.next()[1]
    assert {group["name"] for group in groups} >= {"billing", "shipping"}
    assert reader.next()[0] == 200
    assert _names(reader.next()[1]) == everything
    assert reader.is_done


def test_each_block_of_the_tutorial_is_one_that_the_test_knows() -> None:
    text = PAGE.read_text()
    assert text.count("```") == 2 * (len(code(PAGE, "sh")) + len(code(PAGE, "python")))
