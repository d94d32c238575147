"""Group commit: a push, an ack and a pop that leave in the same turn of the loop are one call, and one transaction.

A transaction costs a round trip and a wait for the disk, whatever it does, and of a small call that is most. So calls
that are ready together share one, in the order of ``Member``: a pop finds what a push of its group has stored. If one
is refused, or they are too slow together, all are undone, and each is made again by itself. If they meet a lock, each
is told so, and does what follows from that (``queen.engine.failures``).

See DeWitt et al., "Implementation Techniques for Main Memory Database Systems", SIGMOD 1984, section 5.
"""

import asyncio
from collections.abc import Container, Sequence
from enum import Enum
from typing import Any

from queen.core.errors import DatabaseUnavailableError, OutcomeUnknownError, QueenError, TooSlowError
from queen.db.pool import Pool
from queen.db.statement import call
from queen.engine.failures import call_limit_s, shorter_limit_s


class Member(Enum):
    """What may be in a group, in the order of its arguments.

    Attributes:
        kind: what its rows are marked with.
        arguments: how many it has in the group.
        more: those that it has besides when it is a call by itself.
        begin, end: where its columns are in a row of the group.
        statement: the call by itself.
    """

    PUSH = ("push", "push_messages_v1", 12, (), 1, 7)
    ACK = ("ack", "ack_messages_v1", 8, (False,), 7, 17)
    POP = ("pop", "pop_unified_batch_v1", 11, (), 17, 32)

    def __init__(
        self, kind: str, procedure: str, arguments: int, more: tuple[object, ...], begin: int, end: int
    ) -> None:
        self.kind, self.arguments, self.more, self.begin, self.end = kind, arguments, more, begin, end
        self.statement = call(procedure, arguments + len(more))

    def rows(self, rows: Sequence[Any]) -> list[Sequence[Any]]:
        """Its own rows of those of a group."""
        return [row[self.begin : self.end] for row in rows if row[0] == self.kind]


_GROUP = call("commit_group_v1", sum(member.arguments for member in Member))
_ABSENT = {member: (None,) * member.arguments for member in Member}


class _Group:
    """Calls that leave together; the first of them makes the call, the others wait for it."""

    __slots__ = ("arguments", "done", "limit_s")

    def __init__(self) -> None:
        self.arguments: dict[Member, tuple[object, ...]] = {}
        #: Of each of its calls by itself, when they were too slow together.
        self.limit_s: float | None = None
        self.done: asyncio.Future[Sequence[Any] | None] | None = None


class GroupCommit:
    """Calls of the hot path over a pool; those of one turn of the loop, one of each kind, share a transaction."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._open: _Group | None = None

    async def fetch(
        self, member: Member, arguments: tuple[object, ...], *, alone: bool = False
    ) -> tuple[Sequence[Any], Container[Member]]:
        """The rows of a call, as tuples or records, and which calls shared its transaction.

        Args:
            member: what to call.
            arguments: its arguments.
            alone: whether it must have a transaction of its own.

        Raises:
            DatabaseUnavailableError: there is no connection; nothing was sent.
            OutcomeUnknownError: the connection broke, or the call took too long, after sending.
            TooSlowError: PostgreSQL cancelled this call at its time limit, or its transaction had to wait for a lock;
                nothing was changed.
            DataRejectedError: PostgreSQL refused the data of this call; nothing was changed.
        """
        group = self._open
        limited = call_limit_s.get() is not None
        if alone or limited or (group is not None and member in group.arguments):
            return await self._alone(member, arguments), ()
        if group is not None:
            group.arguments[member] = arguments
            rows = await self._follow(group)
        else:
            group = self._open = _Group()
            group.arguments[member] = arguments
            rows = await self._lead(group)
        if rows is None:
            return await self._alone(member, arguments, group.limit_s), ()
        return member.rows(rows), group.arguments

    async def _alone(
        self, member: Member, arguments: tuple[object, ...], limit_s: float | None = None
    ) -> Sequence[Any]:
        return await self._pool.fetch(member.statement, *arguments, *member.more, limit_s=limit_s)

    async def _lead(self, group: _Group) -> Sequence[Any] | None:
        """The rows of a group, for its first call; ``None``: its calls are to be made each by itself."""
        await asyncio.sleep(0)  # those that leave in the same turn come now
        self._open = None
        if group.done is None:
            return None
        try:
            rows = await self._call(group)
        except Exception as problem:
            group.done.set_exception(problem)
            raise
        except asyncio.CancelledError:
            group.done.set_exception(OutcomeUnknownError("The worker is stopping"))
            raise
        group.done.set_result(rows)
        return rows

    async def _follow(self, group: _Group) -> Sequence[Any] | None:
        if group.done is None:
            group.done = asyncio.get_running_loop().create_future()
        return await asyncio.shield(group.done)

    async def _call(self, group: _Group) -> Sequence[Any] | None:
        """The rows of all calls; ``None``: nothing was done, because of one of them."""
        columns = (value for member in Member for value in group.arguments.get(member, _ABSENT[member]))
        try:
            return await self._pool.fetch(_GROUP, *columns)
        except DatabaseUnavailableError:
            raise
        except QueenError as problem:
            if isinstance(problem, TooSlowError):
                if problem.lock:
                    raise
                if problem.limit_s is not None:
                    group.limit_s = shorter_limit_s(problem.limit_s, problem.limit_s)
            return None
