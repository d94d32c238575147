"""Runs the engine, in a thread of its own or in the loop of the requests, and passes requests to it (ADR 25)."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol
from uuid import UUID

from msgspec import Struct

from queen.core.errors import ShuttingDownError
from queen.core.job_type import JobType
from queen.engine.bridge import Bridge
from queen.engine.context import Context
from queen.engine.job import Job
from queen.engine.lane_store import LaneStore
from queen.engine.metrics import EngineMetrics


class JobTaker(Protocol):
    """An engine, as its handle uses it."""

    def accept(self, jobs: Sequence[Job]) -> None: ...  # noqa: D102
    def abandon(self, job: Job) -> None: ...  # noqa: D102
    def release_waiters(self) -> None: ...  # noqa: D102
    def take_over(self, leases: Sequence[UUID]) -> None: ...  # noqa: D102
    def metrics(self) -> EngineMetrics: ...  # noqa: D102
    async def stop(self) -> None: ...  # noqa: D102


class Assembled(Struct, frozen=True):
    """What was created in the engine's loop.

    Attributes:
        engine: the engine, ready for jobs.
        context: what its handlers use.
        receive_packet: takes a packet of notifications that came by HTTP.
        close: closes connections and ends tasks.
        lane_store: stores lanes of spool files in its database; ``None``: there are several.
    """

    engine: JobTaker
    context: Context
    receive_packet: Callable[[bytes], None]
    close: Callable[[], Awaitable[None]]
    lane_store: LaneStore | None = None


#: Creates the engine in its loop; its argument returns answers to the HTTP loop.
Assemble = Callable[[Callable[[Job, Any], None]], Awaitable[Assembled]]


class EngineHandle:
    """An engine for use from the HTTP loop. All methods are for that loop, except ``begin_stop``.

    Args:
        assemble: creates the engine.
        new_loop: creates the loop of a thread named ``queen-engine``; ``None``: the engine runs in the HTTP loop, and
            requests save the change of threads.
    """

    def __init__(self, assemble: Assemble, new_loop: Callable[[], asyncio.AbstractEventLoop] | None) -> None:
        self._assemble = assemble
        self._own = _LoopThread(new_loop()) if new_loop is not None else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bridge: Bridge | None = None
        self._assembled: Assembled | None = None

    async def start(self) -> None:
        """Starts thread and engine; raises what ``assemble`` raises."""
        http = asyncio.get_running_loop()
        self._loop = self._own.start() if self._own is not None else http
        await self._run(self._open(http, self._loop))

    @property
    def engine(self) -> JobTaker:
        """The engine; its ``status`` may be read from any thread."""
        if self._assembled is None:
            raise ShuttingDownError("The engine is not running")
        return self._assembled.engine

    def submit(self, kind: JobType, request: Any) -> Job:  # noqa: ANN401 - any operation
        """Hands a request to the engine; await ``future`` of the job for the result."""
        if self._bridge is None:
            raise ShuttingDownError("The engine is not running")
        job = Job(kind, request, asyncio.get_running_loop().create_future())
        self._bridge.submit(job)
        return job

    def abandon(self, job: Job) -> None:
        """The sender no longer waits for this job."""
        self._call(self.engine.abandon, job)

    async def beat(self) -> None:
        """Returns when the engine's loop has run once, to show that it is alive."""
        await self._run(asyncio.sleep(0))

    def receive_packet(self, packet: bytes) -> None:
        """Takes a packet of notifications that came by HTTP."""
        if self._assembled is not None:
            self._call(self._assembled.receive_packet, packet)

    def begin_stop(self) -> None:
        """Answers all long polls without messages, from now on. May be called from a signal handler."""
        if self._assembled is not None:
            self._call(self._assembled.engine.release_waiters)

    async def stop(self) -> None:
        """Finishes the jobs under way, closes the connections, and ends the thread."""
        if self._assembled is not None:
            await self._run(self._shut(self._assembled))
        if self._own is not None:
            await asyncio.to_thread(self._own.stop)

    async def _open(self, http: asyncio.AbstractEventLoop, home: asyncio.AbstractEventLoop) -> None:
        bridge = Bridge(http, home)
        self._assembled = await self._assemble(bridge.answer)
        bridge.accept = self._assembled.engine.accept
        self._bridge = bridge

    async def _shut(self, assembled: Assembled) -> None:
        await assembled.engine.stop()
        await assembled.close()

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - those of the function
        if self._loop is not None:
            self._loop.call_soon_threadsafe(function, *arguments)

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine in the engine's loop."""
        if self._own is None:
            await work
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._own.loop))


class _LoopThread:
    """A thread that runs an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._thread = threading.Thread(target=loop.run_forever, name="queen-engine", daemon=True)

    def start(self) -> asyncio.AbstractEventLoop:
        """Starts the thread; returns its loop."""
        self._thread.start()
        return self.loop

    def stop(self) -> None:
        """Ends loop and thread, also if never started. Blocks; call it from another thread."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
        self.loop.close()
