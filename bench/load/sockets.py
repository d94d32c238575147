"""Our own load on sockets as a process: starts and polls it, and reads its result."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version as version_of
from pathlib import Path

import msgspec

from bench.load.generator import Counters, Generator, Outcome, process
from bench.sockets.settings import KNOWN
from queen.core.errors import QueenError

#: A busy process answers later, and one that has ended does not.
_PATIENCE_S = 1.0


class SocketsError(QueenError):
    """The load failed."""

    code = "bench_sockets"


def version() -> str:
    """The name of the load generator."""
    return f"bench.sockets, uvloop {version_of('uvloop')}"


class Sockets(Generator):
    """A running load."""

    name, error = "The load on sockets", SocketsError

    async def counters(self) -> Counters | None:
        """The counts so far; ``None`` while it does not answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError, TimeoutError, msgspec.DecodeError):
            self._process.stdin.write(b"\n")
            async with asyncio.timeout(_PATIENCE_S):
                return msgspec.json.decode(await self._process.stdout.readline(), type=Counters)
        return None

    async def outcome(self) -> Outcome:
        """Waits for the end; raises SocketsError if it failed."""
        return msgspec.json.decode(await self._ended(), type=Outcome)


@asynccontextmanager
async def running(kind: str, settings: Mapping[str, str], folder: Path, period_s: int) -> AsyncIterator[Sockets]:
    """Load of a type; its files go to ``folder``. ``calls.log`` is its journal, in the form of k6's."""
    outcome, log = folder / "summary.json", folder / "sockets.log"
    # It gets its variables from the settings only, not from the shell, except the token.
    own = KNOWN[kind] - {"QUEEN_TOKEN"} | {"SMOKE", "JOURNAL"}
    variables = {**settings, "SUMMARY": str(outcome), "PERIOD_S": str(period_s)}
    command = [sys.executable, "-m", "bench.sockets", kind]
    async with process(command, variables, own, log, piped=True) as started:
        yield Sockets(started, outcome, log)
