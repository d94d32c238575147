"""The open WebSockets of a worker."""

import asyncio

from queen.http.socket.session import GOING_AWAY, Session


class Sockets:
    """Counts the open WebSockets, and closes them when the worker stops.

    Args:
        limit: maximum of open WebSockets.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[Session, asyncio.Task[None]] = {}
        self._stopping = False

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_stopping(self) -> bool:
        """Whether the worker is stopping and accepts no new ones."""
        return self._stopping

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return len(self._open) >= self._limit

    async def run(self, session: Session) -> None:
        """Serves a socket until it closes."""
        self._open[session] = asyncio.ensure_future(session.run())
        try:
            await self._open[session]
        finally:
            del self._open[session]

    async def stop(self) -> None:
        """Closes all of them; returns when pending requests are answered and messages in flight are released."""
        self._stopping = True
        tasks = list(self._open.values())
        for session in self._open:
            session.end(GOING_AWAY)
        await asyncio.gather(*tasks, return_exceptions=True)
