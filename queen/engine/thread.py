"""The thread of the engine, and its door for the HTTP loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from queen.core.errors import ShuttingDownError
from queen.core.operations import JobType
from queen.engine.bridge import Bridge
from queen.engine.engine import Engine
from queen.engine.job import Job


class Assembled(Struct, frozen=True):
    """What was made in the engine's loop.

    Attributes:
        engine: the engine, ready.
        hear: takes a sheet of notices that came in by HTTP.
        close: closes what was opened.
    """

    engine: Engine
    hear: Callable[[bytes], None]
    close: Callable[[], Awaitable[None]]


#: Makes the engine in its own loop; gets the way back for answers.
Assemble = Callable[[Callable[[Job, Any], None]], Awaitable[Assembled]]


class EngineThread:
    """An engine in a thread named ``queen-engine``. All methods are for the HTTP loop, except ``begin_stop``."""

    def __init__(self, assemble: Assemble, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._assemble = assemble
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="queen-engine", daemon=True)
        self._bridge: Bridge | None = None
        self._assembled: Assembled | None = None

    async def start(self) -> None:
        """Starts thread and engine; raises what the assembly raises."""
        self._thread.start()
        await self._run(self._open(asyncio.get_running_loop()))

    @property
    def engine(self) -> Engine:
        """The engine; its ``status`` may be read from any thread."""
        if self._assembled is None:
            raise ShuttingDownError("The engine does not run")
        return self._assembled.engine

    def submit(self, kind: JobType, request: Any) -> Job:  # noqa: ANN401 - any operation
        """Hands a request to the engine; await ``future`` of the job for the result."""
        if self._bridge is None:
            raise ShuttingDownError("The engine does not run")
        job = Job(kind, request, asyncio.get_running_loop().create_future())
        self._bridge.submit(job)
        return job

    def abandon(self, job: Job) -> None:
        """The sender no longer waits for this job."""
        self._loop.call_soon_threadsafe(self.engine.abandon, job)

    def hear(self, sheet: bytes) -> None:
        """Takes a sheet of notices that came in by HTTP."""
        if self._assembled is not None:
            self._loop.call_soon_threadsafe(self._assembled.hear, sheet)

    async def beat(self) -> None:
        """Returns when the engine's loop has had its turn."""
        await self._run(asyncio.sleep(0))

    def begin_stop(self) -> None:
        """Answers all long polls empty, from now on. May be called from a signal handler."""
        if self._assembled is not None:
            self._loop.call_soon_threadsafe(self._assembled.engine.release_waiters)

    async def stop(self) -> None:
        """Finishes what is under way, closes the connections, ends the thread."""
        if self._assembled is not None:
            await self._run(self._shut(self._assembled))
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def _open(self, http: asyncio.AbstractEventLoop) -> None:
        bridge = Bridge(http, self._loop)
        self._assembled = await self._assemble(bridge.answer)
        bridge.accept = self._assembled.engine.accept
        self._bridge = bridge

    async def _shut(self, assembled: Assembled) -> None:
        await assembled.engine.stop()
        await assembled.close()

    async def _run(self, work: Awaitable[None]) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_coroutine(work), self._loop))


async def _coroutine(work: Awaitable[None]) -> None:
    await work
