"""A consumer over a WebSocket, which tracks its credit."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

PATIENCE_S = 240.0
PATH = "/api/v1/subscribe"
Frame = dict[str, Any]


class Socket:
    """Frames in and out.

    Attributes:
        held: messages delivered whose ack has not been answered, by message id.
        most: the most that were ever held.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.credit = 0
        self.held: dict[str, int] = {}
        self.most = 0
        self._pending: dict[Any, set[str]] = {}
        self._serial = 0

    async def send(self, **frame: Any) -> None:
        await self.connection.send(json.dumps(frame))

    async def receive(self, seconds: float = PATIENCE_S) -> Frame:
        """The next frame; a batch may not exceed the credit."""
        async with asyncio.timeout(seconds):
            text = await self.connection.recv()
        assert isinstance(text, str)
        frame: Frame = json.loads(text)
        if frame["type"] == "batch":
            self.held.update({message["id"]: frame["batch"] for message in frame["messages"]})
            self.most = max(self.most, len(self.held))
            assert len(self.held) <= self.credit, f"{len(self.held)} held, credit {self.credit}"
        elif frame["type"] == "acked":
            for message_id in self._pending.pop(frame["ref"], set()):
                self.held.pop(message_id, None)
        return frame

    async def expect(self, kind: str, seconds: float = PATIENCE_S) -> Frame:
        """The next frame, which has to be of this type."""
        frame = await self.receive(seconds)
        assert frame["type"] == kind, frame
        return frame

    async def ask(self, **frame: Any) -> Frame:
        """The answer to a frame, when nothing else may come before."""
        self._serial += 1
        await self.send(ref=self._serial, **frame)
        answer = await self.receive()
        assert answer["ref"] == self._serial, answer
        return answer

    async def subscribe(self, queue: str | None = None, *, credit: int = 100, **fields: Any) -> Frame:
        self.credit = credit
        fields = fields if queue is None else {"queue": queue, **fields}
        answer = await self.ask(type="subscribe", credit=credit, **fields)
        assert answer["type"] == "subscribed", answer
        return answer

    async def ack(self, batch: Frame, status: str = "completed", **fields: Any) -> int:
        """Acks a whole batch, without waiting for the answer; its ref."""
        self._serial += 1
        self._pending[self._serial] = {message["id"] for message in batch["messages"]}
        await self.send(type="ack", ref=self._serial, batch=batch["batch"], status=status, **fields)
        return self._serial

    async def acked(self, batch: Frame, status: str = "completed", **fields: Any) -> Frame:
        """Acks a whole batch; the answer, when nothing else may come before."""
        await self.ack(batch, status, **fields)
        return await self.expect("acked")


def data_of(batch: Mapping[str, Any]) -> list[Any]:
    return [message["data"] for message in batch["messages"]]


@asynccontextmanager
async def open_socket(port: int, **options: Any) -> AsyncIterator[Socket]:
    """A socket that has been welcomed."""
    async with connect(f"ws://127.0.0.1:{port}{PATH}", max_size=None, proxy=None, **options) as connection:
        socket = Socket(connection)
        welcome = await socket.expect("welcome")
        assert welcome["protocol"] == "queen.v1"
        yield socket
