"""The open WebSockets of a worker."""

import asyncio

from queen.http.socket.session import GOING_AWAY, Session


class Sockets:
    """Counts them, and ends them when the worker stops.

    Args:
        limit: the most that may be open.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[Session, asyncio.Task[None]] = {}
        self._stopping = False

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_stopping(self) -> bool:
        """Whether the worker stops and takes no new ones."""
        return self._stopping

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another one."""
        return len(self._open) >= self._limit

    async def run(self, session: Session) -> None:
        """Serves a socket to its end."""
        self._open[session] = asyncio.ensure_future(session.run())
        try:
            await self._open[session]
        finally:
            del self._open[session]

    async def stop(self) -> None:
        """Ends all of them; returns when what they had asked for is answered and what they held is given back."""
        self._stopping = True
        tasks = list(self._open.values())
        for session in self._open:
            session.end(GOING_AWAY)
        await asyncio.gather(*tasks, return_exceptions=True)
