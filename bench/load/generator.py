"""The load generator: a process, either k6 with a script or our own for sockets."""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from bench import meter
from bench.load.results import Latency, Moment
from queen.core.errors import QueenError


class Counters(Struct, frozen=True):
    """Messages and requests so far, and whether the load itself has begun."""

    pushed: int
    delivered: int
    requests: int
    loading: bool


class Outcome(Struct, frozen=True):
    """The result of a load.

    Attributes:
        prepared: messages that were stored before the load itself.
        dropped: calls of an open model that were due while all virtual users were busy.
        began_ms, ended_ms: the first and the last call of the load itself, since 1970.
        latency: by operation.
        moments: latency over time.
        crossed: thresholds that did not hold.
    """

    pushed: int
    prepared: int
    delivered: int
    acked: int
    dropped: int
    began_ms: float
    ended_ms: float
    latency: Mapping[str, Latency]
    moments: Sequence[Moment]
    crossed: Sequence[str]


class Generator(ABC):
    """A running load.

    Args:
        process: of the generator.
        summary: the file that it writes at its end.
        log: its output.
    """

    #: Its name, exit codes of success, and the error for others.
    name: str
    fine: Collection[int] = (0,)
    error: type[QueenError]

    def __init__(self, process: asyncio.subprocess.Process, summary: Path, log: Path) -> None:
        self._process, self._summary, self._log = process, summary, log
        self._used = meter.found(process.pid)

    def cpu_seconds(self) -> float:
        """User and system time so far; 0 if it ended before the first check, as with an invalid setting."""
        return meter.cpu_seconds(self._used)

    def running(self) -> bool:
        """Whether it is running."""
        return self._process.returncode is None

    @abstractmethod
    async def counters(self) -> Counters | None:
        """The counts so far; ``None`` while it does not answer."""

    @abstractmethod
    async def outcome(self) -> Outcome:
        """Waits for the end; raises QueenError if it failed for another reason than a threshold."""

    async def _ended(self) -> bytes:
        """The summary; the text of an error ends with its last lines of output."""
        code = await self._process.wait()
        if code not in self.fine or not self._summary.exists():
            raise self.error(f"{self.name} ended with {code}: {self._log.read_text(errors='replace')[-2000:]}")
        return self._summary.read_bytes()


@asynccontextmanager
async def process(
    command: Sequence[str | Path],
    variables: Mapping[str, str],
    without: Collection[str],
    log: Path,
    *,
    piped: bool = False,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that is stopped at the end of the block if it is still running.

    Args:
        command: program and arguments.
        variables: additions to its environment.
        without: variables of our environment that it does not get.
        log: for its standard error and standard output.
        piped: its standard input and output are pipes instead.
    """
    around = {name: value for name, value in os.environ.items() if name not in without}
    with log.open("wb") as output:
        pipe = asyncio.subprocess.PIPE
        made = await asyncio.create_subprocess_exec(
            *command, stdin=pipe if piped else asyncio.subprocess.DEVNULL, stdout=pipe if piped else output,
            stderr=output, env={**around, **variables},
        )  # fmt: skip
    try:
        yield made
    finally:
        if made.returncode is None:
            made.terminate()
            await made.wait()
