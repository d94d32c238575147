"""Limits the memory of requests: the size of one, and the number of large ones at a time.

A request takes several times its bytes while it is processed, and a kilobyte per element: all are decoded, laid out
for PostgreSQL and answered. Forty requests of a megabyte with 40,000 messages each took 700 MiB, and delayed others by
eight seconds. So large requests wait for each other, in order of arrival; small ones do not wait.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from queen.core import limits
from queen.core.errors import OverloadedError, TooManyItemsError
from queen.http.elements import count_elements

if TYPE_CHECKING:
    from queen.http.request import QueenRequest

#: Requests up to this size do not wait and are not counted, by default.
SMALL_BYTES = 16 << 10
#: Memory per byte and per object of a body, with all copies; measured for pushes, acks and transactions.
_BYTES_OF_BYTE, _BYTES_OF_OBJECT = 4, 1200
#: An element has two characters at least.
_ELEMENT_BYTES_MIN = 2
_NO_ROOM = "Large requests wait for memory, and this one waited too long. Try again later"


class Room:
    """The memory that the requests of a worker share, or the frames of a WebSocket.

    Args:
        items_max: maximum of elements of one request.
        bytes_max: maximum of estimated memory of all requests; a single one may take more.
        retry_timeout_s: how long a request waits for room; ``None``: without limit.
        small_bytes: requests up to this size do not wait and are not counted.
    """

    def __init__(
        self,
        items_max: int = limits.ITEMS_MAX,
        bytes_max: int = limits.WORK_BYTES_MAX,
        retry_timeout_s: float | None = 20,
        small_bytes: int = SMALL_BYTES,
    ) -> None:
        self._items_max, self._bytes_max, self._patience_s = items_max, bytes_max, retry_timeout_s
        self._small_bytes = small_bytes
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def check(self, decoder: "msgspec.json.Decoder[Any]", body: bytes) -> None:
        """Raises TooManyItemsError for a body with too many elements, before it is decoded."""
        if len(body) <= self._items_max * _ELEMENT_BYTES_MIN:
            return
        try:
            count = count_elements(decoder, body, self._items_max)
        except (msgspec.DecodeError, RecursionError):
            return  # the decoder reports the error
        if count > self._items_max:
            raise TooManyItemsError(
                f"The request has at least {count} elements, at most {self._items_max} are allowed (QUEEN_MAX_ITEMS). "
                "Send it in parts"
            )

    async def enter(self, body: bytes) -> int:
        """Waits for room for a request with this body; returns the size to give back with ``leave``.

        Raises:
            OverloadedError: there was no room in time.
        """
        size = len(body) * _BYTES_OF_BYTE + min(body.count(b"{"), self._items_max) * _BYTES_OF_OBJECT
        if size <= self._small_bytes:
            return 0
        if not self._waiting and self._has_room(size):
            self._taken += size
            return size
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await asyncio.wait([turn], timeout=self._patience_s)
        except asyncio.CancelledError:
            self._give_up(size, turn)
            raise
        if not turn.done():
            self._give_up(size, turn)
            raise OverloadedError(_NO_ROOM)
        return size

    def leave(self, size: int) -> None:
        """Gives back the room of a request."""
        self._taken -= size
        while self._waiting and self._has_room(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            self._taken += size
            turn.set_result(None)

    def _has_room(self, size: int) -> bool:
        return not self._taken or self._taken + size <= self._bytes_max

    def _give_up(self, size: int, turn: "asyncio.Future[None]") -> None:
        if turn.done():
            self.leave(size)
        else:
            self._waiting.remove((size, turn))
            self.leave(0)  # the next ones may be smaller


class LeaveRoom:
    """A falcon middleware that releases the room of a request when its answer is ready, before the client reads it."""

    async def process_response(self, req: "QueenRequest", _resp: object, _resource: object, _succeeded: bool) -> None:
        """Releases the room of the request."""
        if req.size:
            req.leave_room()
