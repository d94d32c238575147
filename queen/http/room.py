"""Room for the requests that a worker works on: how large one may be, and how many large ones go on at a time.

What a request takes while it is worked on is several times its bytes, and a kilobyte for each element: all are decoded,
laid out for PostgreSQL and answered. Forty requests with 40,000 messages each, a megabyte long, took 700 MiB and eight
seconds of the time of others. So large requests wait for each other, in the order in which they came; small ones pass.
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

#: A request that takes no more neither waits nor counts, unless it is said otherwise.
SMALL_BYTES = 16 << 10
#: What a byte and an object of a body take, with all copies; measured for pushes, acks and transactions.
_BYTES_OF_BYTE, _BYTES_OF_OBJECT = 4, 1200
#: An element has two characters at least.
_ELEMENT_BYTES_MIN = 2
_NO_ROOM = "Large requests wait for each other, and this one had no turn in time; try again later"


class Room:
    """What the requests of a worker share, or the frames of a WebSocket.

    Args:
        items_max: elements that one request may have.
        bytes_max: what all that are worked on may take by our estimate; one alone may take more.
        patience_s: how long a request waits for its turn; ``None``: as long as it takes.
        small_bytes: what takes no more neither waits nor counts.
    """

    def __init__(
        self,
        items_max: int = limits.ITEMS_MAX,
        bytes_max: int = limits.WORK_BYTES_MAX,
        patience_s: float | None = 20,
        small_bytes: int = SMALL_BYTES,
    ) -> None:
        self._items_max, self._bytes_max, self._patience_s = items_max, bytes_max, patience_s
        self._small_bytes = small_bytes
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def check(self, decoder: "msgspec.json.Decoder[Any]", body: bytes) -> None:
        """Raises TooManyItemsError before a decoder makes more elements than a request may have."""
        if len(body) <= self._items_max * _ELEMENT_BYTES_MIN:
            return
        try:
            count = count_elements(decoder, body)
        except (msgspec.DecodeError, RecursionError):
            return  # the decoder itself says what is wrong
        if count > self._items_max:
            raise TooManyItemsError(
                f"The request has {count} elements, more than {self._items_max} (QUEEN_MAX_ITEMS); send it in parts"
            )

    async def enter(self, body: bytes) -> int:
        """Returns when a request with this body may be worked on: what has to be given back with ``leave``.

        Raises:
            OverloadedError: others took too long.
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
        """A request is answered."""
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
            self.leave(0)  # what comes behind may be smaller


class LeaveRoom:
    """A falcon middleware: an answer that is ready takes no room, whether its client reads it or not."""

    async def process_response(self, req: "QueenRequest", _resp: object, _resource: object, _succeeded: bool) -> None:
        """Gives back what the request took."""
        req.leave_room()
