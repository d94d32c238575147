"""Group commit: a push, an ack and a pop that leave in the same iteration of the loop share a transaction.

They are one call. Each transaction costs a round trip and a wait for the disk, which is most of the cost of a small
call. So calls that are ready together share a transaction, in the order of ``Member``: a pop finds what a push of its
group has stored. A call waits for others only where the engine has sent some with it. If one is refused, or they are
too slow together, all are rolled back, and each is repeated alone. If they have to wait for a lock, each of them fails
with that error, and ``queen.engine.failures`` handles it.

See DeWitt et al., "Implementation Techniques for Main Memory Database Systems", SIGMOD 1984, section 5.
"""

import asyncio
from collections.abc import Coroutine, Generator, Sequence
from enum import Enum
from operator import itemgetter
from types import coroutine
from typing import Any

from queen.core.errors import DatabaseUnavailableError, OutcomeUnknownError, QueenError, TooSlowError
from queen.engine.failures import call_limit_s, leaves_alone, shorter_limit_s
from queen.postgres.pool import Pool
from queen.postgres.statement import call


@coroutine
def _next_iteration() -> Generator[None]:
    """Returns in the next iteration of the loop, as ``asyncio.sleep(0)`` does through two more calls."""
    yield


class Member(Enum):
    """The calls that may be in a group, in the order of its arguments.

    Attributes:
        kind: the mark of its rows.
        arguments: number of its arguments.
        columns: range of its columns in a row of the group.
        statement: the call alone.
        shorter: that of a call without its last arguments, where the first of these is ``None``; and how many it has.
    """

    PUSH = (
        "push", 17, (*range(1, 7), 17, 18, 21, 23, 24), call("push_to_waiters_v1", 17),
        call("push_messages_v1", 12), 12,
    )  # fmt: skip
    COMPLETE = ("complete", 8, (7, 10, 14, 16, 21, 23, 24, *range(26, 31)), call("complete_messages_v1", 8))
    ACK = ("ack", 8, (*range(7, 17),), call("ack_messages_v1", 8))
    POP = ("pop", 11, (*range(17, 32),), call("pop_unified_batch_v1", 11))

    def __init__(
        self, kind: str, arguments: int, columns: tuple[int, ...], statement: str, shorter: str = "", short: int = 0
    ) -> None:
        self.kind, self.arguments = kind, arguments
        self._statement, self._shorter, self._short = statement, shorter, short
        self._of_row = itemgetter(*columns)

    def by_itself(self, arguments: tuple[object, ...]) -> tuple[str, tuple[object, ...]]:
        """The statement of the call alone, and its arguments."""
        if self._shorter and arguments[self._short] is None:
            return self._shorter, arguments[: self._short]
        return self._statement, arguments

    def rows(self, rows: Sequence[Any]) -> list[Sequence[Any]]:
        """Its rows among those of a group."""
        return [self._of_row(row) for row in rows if row[0] == self.kind]


_GROUP = call("commit_group_v1", sum(member.arguments for member in Member))
_ABSENT = {member: (None,) * member.arguments for member in Member}


class _Group:
    """Calls that leave together; the first one makes the call, the others wait for its result."""

    __slots__ = ("arguments", "done", "items", "limit_s")

    def __init__(self) -> None:
        self.arguments: dict[Member, tuple[object, ...]] = {}
        self.items = 0
        #: Time limit of each of its calls alone, if they were too slow together.
        self.limit_s: float | None = None
        self.done: asyncio.Future[Sequence[Any] | None] | None = None

    def add(self, member: Member, arguments: tuple[object, ...], items: int) -> None:
        """Adds a call."""
        self.arguments[member] = arguments
        self.items += items


class GroupCommit:
    """Calls of the hot path over a pool; those of one iteration of the loop, one of each type, share a transaction.

    Args:
        pool: the connections.
        items_max: maximum of items of a transaction that calls share.
    """

    def __init__(self, pool: Pool, items_max: int) -> None:
        self._pool, self._items_max = pool, items_max
        self._open: _Group | None = None

    async def fetch(
        self, member: Member, arguments: tuple[object, ...], items: int = 0, *, alone: bool = False
    ) -> Sequence[Any]:
        """The rows of a call, as tuples or records.

        Args:
            member: what to call.
            arguments: its arguments.
            items: how many messages it stores or acknowledges.
            alone: whether it needs a transaction of its own.

        Raises:
            DatabaseUnavailableError: there is no connection; nothing was sent.
            OutcomeUnknownError: the connection broke, or the call took too long, after sending.
            TooSlowError: PostgreSQL cancelled this call at its time limit, or its transaction had to wait for a lock;
                nothing was changed.
            DataRejectedError: PostgreSQL refused the data of this call; nothing was changed.
        """
        group = self._open
        if alone or call_limit_s.get() is not None or (group is not None and not self._may_join(group, member, items)):
            return await self._alone(member, arguments)
        if group is not None:
            group.add(member, arguments, items)
            rows = await self._follow(group)
        elif leaves_alone.get():
            return await self._alone(member, arguments)
        else:
            group = self._open = _Group()
            group.add(member, arguments, items)
            await _next_iteration()  # calls that leave in the same iteration are added now
            self._open = None
            rows = await self._lead(group, group.done) if group.done is not None else None
        if rows is None:
            return await self._alone(member, arguments, group.limit_s)
        return member.rows(rows)

    def _may_join(self, group: _Group, member: Member, items: int) -> bool:
        return member not in group.arguments and (not items or group.items + items <= self._items_max)

    def _alone(
        self, member: Member, arguments: tuple[object, ...], limit_s: float | None = None
    ) -> Coroutine[Any, Any, Sequence[Any]]:
        statement, arguments = member.by_itself(arguments)
        return self._pool.fetch(statement, *arguments, limit_s=limit_s)

    async def _lead(self, group: _Group, done: "asyncio.Future[Sequence[Any] | None]") -> Sequence[Any] | None:
        """The rows of a group, for its first call; ``None``: each of its calls is to be made alone."""
        try:
            rows = await self._call(group)
        except Exception as problem:
            done.set_exception(problem)
            raise
        except asyncio.CancelledError:
            done.set_exception(OutcomeUnknownError("The worker is stopping"))
            raise
        done.set_result(rows)
        return rows

    async def _follow(self, group: _Group) -> Sequence[Any] | None:
        if group.done is None:
            group.done = asyncio.get_running_loop().create_future()
        return await asyncio.shield(group.done)

    async def _call(self, group: _Group) -> Sequence[Any] | None:
        """The rows of all calls; ``None``: all were rolled back, because of one of them."""
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
