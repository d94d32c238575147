"""The client commands of ``queen`` as people and scripts call them."""

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

from queen.cli.main import app
from tests.support.processes import PATIENCE_S, PYTHON, ROOT, Server, clean_environment


class Terminal:
    """What somebody sees and types.

    Args:
        file: our end of it.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self.shown = b""

    def read_until(self, text: str, times: int = 1) -> None:
        """Returns when it has been shown so often."""
        seen = b""
        while seen.count(text.encode()) < times:
            some = self._read()
            assert some, f"{text!r} never came: {seen!r}"
            seen += some

    def read_to_the_end(self) -> None:
        """What is still said must go somewhere."""
        while self._read():
            pass

    def write(self, text: str) -> None:
        """Types."""
        os.write(self._file, text.encode())

    def _read(self) -> bytes:
        try:
            some = os.read(self._file, 1 << 16)
        except OSError:
            # The other end is closed.
            return b""
        self.shown += some
        return some


@dataclass(frozen=True)
class Result:
    """How a command ended, and what it printed."""

    code: int
    stdout: str
    stderr: str


class Client:
    """Commands that are sent to one server. Those that end by themselves run in this process, which saves its start.

    Args:
        server: at its address; or a URL.
        token: sent with each.
    """

    def __init__(self, server: Server | str, token: str = "") -> None:
        url = server if isinstance(server, str) else f"http://127.0.0.1:{server.port}"
        self.environment = {"QUEEN_URL": url, **({"QUEEN_TOKEN": token} if token else {})}

    def call(self, *arguments: str, given: str = "") -> Result:
        """A command that may end with any code, but never with a traceback."""
        kept = clean_environment(**self.environment)
        result = CliRunner(env={**dict.fromkeys(os.environ), **kept}).invoke(app, arguments, given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Result(result.exit_code, result.stdout, result.stderr)

    def text(self, *arguments: str, given: str = "") -> str:
        """What a command that succeeds prints."""
        result = self.call(*arguments, given=given)
        assert result.code == 0, result
        return result.stdout

    def json(self, *arguments: str, given: str = "") -> Any:
        """The document that a command prints."""
        return json.loads(self.text(*arguments, "--json", given=given))

    def lines(self, *arguments: str, given: str = "") -> list[Any]:
        """The lines of JSON that a command prints."""
        return [json.loads(line) for line in self.text(*arguments, "--json", given=given).splitlines()]

    def refusal(self, code: int, *arguments: str, given: str = "") -> str:
        """The one line with which a command fails."""
        result = self.call(*arguments, given=given)
        assert result.code == code, result
        (line,) = result.stderr.splitlines()
        assert line.startswith("error: ")
        return line

    @contextmanager
    def lasting(self, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        """A command that runs until it is ended."""
        with subprocess.Popen(
            [*PYTHON, *arguments],
            cwd=ROOT,
            env=clean_environment(**self.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.terminate()
                process.wait(PATIENCE_S)

    @contextmanager
    def on_a_terminal(self, *arguments: str) -> Iterator[tuple["subprocess.Popen[bytes]", Terminal]]:
        """A command in front of somebody."""
        ours, theirs = pty.openpty()
        environment = clean_environment(TERM="xterm", **self.environment)
        command = [*PYTHON, *arguments]
        try:
            with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as it:
                os.close(theirs)
                try:
                    yield it, Terminal(ours)
                finally:
                    it.terminate()
        finally:
            os.close(ours)
