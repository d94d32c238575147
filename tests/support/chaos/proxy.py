"""A small TCP proxy that delays, swallows or resets what goes through it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

from tests.support.chaos.schedule import Direction

_PIECE_BYTES = 65_536
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
#: Opens a connection to what stands behind the proxy.
Open = Callable[[], Awaitable[Streams]]


@dataclass(eq=False)
class _Connection:
    near: asyncio.StreamWriter
    far: asyncio.StreamWriter | None = None
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    def abort(self) -> None:
        """Resets both ends."""
        for writer in (self.near, self.far):
            if writer is not None:
                writer.transport.abort()


class Proxy:
    """Listens on a port of its own and passes on what comes, as long as it is let.

    What a direction swallows is kept, and passed on when the direction opens, also if the sender has closed meanwhile:
    the network repeats what was sent.
    """

    def __init__(self, open_far: Open, seed: int) -> None:
        self._open_far, self._random = open_far, Random(seed)
        self._open = {"there": asyncio.Event(), "back": asyncio.Event()}
        for gate in self._open.values():
            gate.set()
        self._most_s = 0.0
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        #: Pieces that were swallowed and not delivered yet.
        self.held = 0

    async def start(self, port: int = 0) -> None:
        """Begins to listen on loopback."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Closes everything."""
        if self._server is not None:
            self._server.close()
        tasks = [task for connection in self._connections for task in connection.tasks]
        self.reset()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def reset(self) -> None:
        """Resets all connections."""
        for connection in list(self._connections):
            connection.abort()

    def swallow(self, direction: Direction) -> None:
        """From now on nothing gets through."""
        for name in self._directions(direction):
            self._open[name].clear()

    def deliver(self, direction: Direction) -> None:
        """All that was swallowed gets through, and what comes."""
        for name in self._directions(direction):
            self._open[name].set()

    def delay(self, most_s: float) -> None:
        """Each piece takes between 0 and so many seconds."""
        self._most_s = most_s

    @staticmethod
    def _directions(direction: Direction) -> tuple[str, ...]:
        return ("there", "back") if direction == "both" else (direction,)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(writer)
        self._connections.add(connection)
        current = asyncio.current_task()
        assert current is not None
        connection.tasks.append(current)
        try:
            far_reader, connection.far = await self._open_far()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, connection.far, "there"))
                group.create_task(self._pump(far_reader, writer, "back"))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            connection.abort()
            self._connections.discard(connection)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> None:
        """Passes on until the sender closes, in order."""
        while piece := await reader.read(_PIECE_BYTES):
            self.held += 1
            await self._open[name].wait()
            self.held -= 1
            if self._most_s:
                await asyncio.sleep(self._random.uniform(0, self._most_s))
            writer.write(piece)
            await writer.drain()
        await self._open[name].wait()
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()
