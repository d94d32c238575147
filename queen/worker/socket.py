"""A client whose messages come over WebSockets: a socket per task, a message per delivery (docs/websocket.md)."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec import Raw, Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from queen.worker.client import Batch, Client, Popped, RefusedError, UnavailableError, passes
from queen.worker.tasks import Task, Worker

log = logging.getLogger("queen.worker")

_PAUSE_S = 0.5


class _Head(Struct):
    type: str
    ref: int | str | None = None


class _Problem(Struct):
    status: int
    detail: str = ""


class _Error(Struct):
    problem: _Problem


class _Acked(Struct):
    refused: list[Raw]
    dlq: int


class SocketClient(Client):
    """A :class:`Client` for the tasks of a worker; pushes and options go over HTTP.

    After ``stop``, nothing more is fetched, and what no function has begun is released.
    """

    def __init__(
        self, worker: Worker, stop: asyncio.Event, url: str | None = None, token: str | None = None
    ) -> None:  # fmt: skip
        super().__init__(url, token)
        place = self.url.replace("http", "ws", 1).rstrip("/") + "/api/v1/subscribe"
        self._sockets = {(task.queue, task.group): _Socket(task, place, self.headers, stop) for task in worker.tasks}
        #: The socket of each lease.
        self._leases: dict[str, _Socket] = {}
        self._running: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._running = [asyncio.create_task(each.run()) for each in self._sockets.values()]
        return await super().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._running:
            each.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await super().__aexit__(kind, error, trace)

    async def pop(  # the subscription of the task says the rest
        self,
        queue: str,
        group: str | None,
        batch: int,  # noqa: ARG002
        lease_s: int,  # noqa: ARG002
        wait_s: float,  # noqa: ARG002
    ) -> list[Popped]:
        """The next message; no more are fetched than the task has places."""
        socket = self._sockets[queue, group]
        popped = await socket.next()
        self._leases[popped.lease_id] = socket
        return [popped]

    async def ack(self, message: Popped, status: str, error: str | None = None) -> bool:
        """As that of a Client. A message of a socket that has ended is refused: it is being delivered again."""
        acked = await self._leases[message.lease_id].ack(message, status, error)
        self._leases.pop(message.lease_id)
        return acked

    async def extend(self, lease_id: str, seconds: int) -> None:
        """Extends a lease."""
        if socket := self._leases.get(lease_id):
            await socket.ask("renew", leaseId=lease_id, seconds=seconds)


class _Socket:
    """The socket of a task, opened again whenever it ends."""

    def __init__(self, task: Task[..., Any], url: str, headers: dict[str, str], stop: asyncio.Event) -> None:
        self._task, self._url, self._headers, self._stop = task, url, headers, stop
        self._messages: asyncio.Queue[Popped] = asyncio.Queue()
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._numbers = itertools.count(1)
        self._open: ClientConnection | None = None
        #: Why its subscription has failed.
        self._problem: RefusedError | UnavailableError | None = None
        self._refused: asyncio.Future[Popped] = asyncio.get_running_loop().create_future()

    async def next(self) -> Popped:
        """Waits for a message.

        Raises:
            RefusedError: the server refuses the subscription.
        """
        coming = asyncio.ensure_future(self._messages.get())
        try:
            await asyncio.wait({coming, self._refused}, return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() else self._refused.result()
        except asyncio.CancelledError:
            if coming.done():
                # Nobody takes it now: it is given back.
                self._messages.put_nowait(coming.result())
            raise
        finally:
            coming.cancel()

    async def ack(self, message: Popped, status: str, error: str | None) -> bool:
        """Says what has become of a message; whether its lease goes on."""
        item = {
            "transactionId": message.transaction_id, "partitionId": message.partition_id, "status": status,
            "leaseId": message.lease_id,
        } | ({} if error is None else {"error": error})  # fmt: skip
        acked = msgspec.json.decode(await self.ask("ack", acknowledgments=[item]), type=_Acked)
        return not acked.refused and (status in ("completed", "dlq") or acked.dlq > 0)

    async def ask(self, kind: str, **fields: object) -> bytes:
        """The frame that answers a frame.

        Raises:
            UnavailableError: the socket is not open, or ends before the answer.
            RefusedError: the server refuses the frame.
        """
        if self._open is None:
            raise UnavailableError(f"{self._url} is not connected")
        number = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            await self._open.send(msgspec.json.encode({"type": kind, "ref": number, **fields}).decode())
            return await answer
        except ConnectionClosed as problem:
            raise UnavailableError(f"{self._url} ended: {problem}") from None
        finally:
            self._answers.pop(number, None)

    async def run(self) -> None:
        """Keeps the socket open until it is cancelled, or the server refuses it."""
        while True:
            try:
                async with connect(
                    self._url, subprotocols=["queen.v1"], additional_headers=self._headers, max_size=None  # type: ignore[list-item]
                ) as socket:  # fmt: skip
                    await self._read(socket)
                if self._problem is not None:
                    raise self._problem
            except InvalidStatus as problem:
                said = problem.response
                if not passes(said.status_code):
                    text = f"{self._url} answered {said.status_code}: {bytes(said.body or b'').decode()[:200]}"
                    self._refused.set_exception(RefusedError(text))
                    return
                log.warning("%s; connecting again", problem)
            except RefusedError as problem:
                self._refused.set_exception(problem)
                return
            except (OSError, WebSocketException, UnavailableError) as problem:
                log.warning("%s: %s; connecting again", self._url, str(problem) or type(problem).__name__)
            await asyncio.sleep(_PAUSE_S)

    async def _read(self, socket: ClientConnection) -> None:
        async with self._used(socket):
            async for text in socket:
                data = text if isinstance(text, bytes) else text.encode()
                head = msgspec.json.decode(data, type=_Head)
                answer = self._answers.get(head.ref) if isinstance(head.ref, int) else None
                if head.type == "batch":
                    for popped in msgspec.json.decode(data, type=Batch).messages:
                        self._messages.put_nowait(popped)
                elif answer is not None and not answer.done():
                    if head.type == "error":
                        answer.set_exception(_error_of(self._url, data))
                    else:
                        answer.set_result(data)
                elif head.type == "error":
                    raise _error_of(self._url, data)

    @asynccontextmanager
    async def _used(self, socket: ClientConnection) -> AsyncIterator[None]:
        """Subscribes over a socket; at its end, what it has delivered and nobody has begun is forgotten."""
        self._open, self._problem = socket, None
        working = asyncio.create_task(self._work(socket))
        try:
            yield
        finally:
            self._open = None
            working.cancel()
            while not self._messages.empty():
                self._messages.get_nowait()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(UnavailableError(f"{self._url} ended"))

    async def _work(self, socket: ClientConnection) -> None:
        """Subscribes, and at the stop takes no more and gives back what nobody has begun."""
        places = self._task.concurrency
        group = {} if self._task.group is None else {"consumerGroup": self._task.group}
        if self._stop.is_set():
            return
        try:
            await self.ask(
                "subscribe", queue=self._task.queue, credit=places, batch=1, partitions=1,
                leaseSeconds=self._task.lease_s, **group,
            )  # fmt: skip
            await self._stop.wait()
            await self.ask("unsubscribe")
        except (RefusedError, UnavailableError) as problem:
            self._problem = problem
            await socket.close()
            return
        with suppress(UnavailableError):
            while True:
                await self.ack(await self._messages.get(), "retry", None)


def _error_of(url: str, frame: bytes) -> RefusedError | UnavailableError:
    problem = msgspec.json.decode(frame, type=_Error).problem
    text = f"{url} answered {problem.status}: {problem.detail}"
    return UnavailableError(text) if passes(problem.status) else RefusedError(text)
