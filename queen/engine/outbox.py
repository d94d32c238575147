"""Moves what SQL has pushed (``sql/procedures/outbox``) into the log: in the order of transactions, once each."""

import math
from functools import partial

from queen.engine.context import Context
from queen.engine.handlers.push import announce
from queen.engine.mover import BYTES_MAX, MESSAGES_MAX, append, push_of
from queen.engine.ports import OutboxDatabase


class Outbox:
    """The outbox as a source of ``queen.engine.mover``.

    Args:
        context: of the engine.
        database: the procedures.
    """

    due_in_s = math.inf

    def __init__(self, context: Context, database: OutboxDatabase) -> None:
        self._context, self._database = context, database

    async def start(self) -> None:
        """Makes the next read look at all rows."""
        await self._database.restart()

    async def move(self) -> int:
        """Moves the next messages; returns their number."""
        read = await self._database.read(MESSAGES_MAX, BYTES_MAX)
        if read is None:
            return 0
        push = push_of(read.messages)
        if not await append(self._context, push, partial(self._database.move, read)):
            return 0
        announce(self._context, [push])
        return len(read.messages)
