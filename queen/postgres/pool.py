"""Connections to PostgreSQL: opened when needed, kept, and replaced when they break.

Not ``asyncpg.Pool``: it resets each connection on its return, a round trip that procedure calls do not need, and hides
whether a failure happened before or after the statement was sent, which decides whether a push may be sent again.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from queen.core.errors import DatabaseUnavailableError, OutcomeUnknownError, QueenError, TooSlowError
from queen.engine.failures import call_limit_s, lock_wait_s
from queen.postgres.dsn import UNREACHABLE, Target, connect, lock_timeout_ms
from queen.postgres.sqlstate import is_of_use, reason_of, translate
from queen.postgres.watch import Watch

#: The pause of a call between two waits for a lock.
_TURN_S = 0.05
#: Time after the time limit of a call at which its connection counts as broken.
_ANSWER_S = 1.0
#: The setting comes first: the statement is executed for its one row.
_WAITING = (
    "SELECT r.* FROM (SELECT set_config('lock_timeout', '{1}', true) AS wait) AS s"
    " CROSS JOIN LATERAL (SELECT c.* FROM ({0}) AS c WHERE s.wait IS NOT NULL OFFSET 0) AS r"
)


class Pool:
    """At most ``size`` connections to one database, for one event loop.

    Args:
        target: where to connect, and how.
        size: maximum of connections; further calls wait for one.
        call_timeout_s: time limit of one call, which PostgreSQL enforces; if its error does not arrive soon after, for
            example because its machine is down, the connection is closed and the outcome unknown.
        lock_wait_s: how long a call waits for one lock, if that is less than most of its time limit.
        lock_turns: whether a call that met a lock is repeated until most of its time limit is over; it gives back
            what it has locked before.

    Attributes:
        answered_at: when a call was last answered, in the time of the event loop.
    """

    def __init__(
        self, target: Target, size: int, call_timeout_s: float, lock_wait_s: float | None = None, *,
        lock_turns: bool = False,
    ) -> None:  # fmt: skip
        self._target = target
        self._lock_wait_s, self._lock_turns = lock_wait_s, lock_turns
        self._size = size
        self._call_timeout_s = call_timeout_s
        self._idle: list[asyncpg.Connection[Any]] = []
        self._open: set[asyncpg.Connection[Any]] = set()
        self._used = 0
        self._turns: deque[asyncio.Future[None]] = deque()
        self._watch = Watch(call_timeout_s + _ANSWER_S, self._discard)
        self._closed = False
        self._unavailable = ""
        self._attempts: set[asyncio.Task[asyncpg.Connection[Any]]] = set()
        self.answered_at = float("-inf")

    @property
    def size(self) -> int:
        """Maximum of connections."""
        return self._size

    @property
    def open(self) -> int:
        """Open connections."""
        return len(self._open)

    @property
    def idle(self) -> int:
        """Open connections without a call."""
        return len(self._idle)

    def fetch(self, sql: str, *arguments: object, limit_s: float | None = None) -> Coroutine[Any, Any, list[Any]]:
        """The rows of one statement.

        Args:
            sql: the statement.
            arguments: its arguments.
            limit_s: a time limit of its own, by default that of the context (``call_limit_s``), which PostgreSQL
                enforces. It costs three more round trips.

        Raises:
            DatabaseUnavailableError: there is no connection; nothing was sent.
            OutcomeUnknownError: the connection broke, or PostgreSQL did not answer in time, after sending.
            TooSlowError: PostgreSQL cancelled the statement at its time limit; nothing was changed.
            DataRejectedError: PostgreSQL refused the data; nothing was changed.
        """
        # No coroutine around another where it is not needed: each costs a Python call whenever the innermost goes on.
        if limit_s is None:
            limit_s = call_limit_s.get()
        return (self._fetch_in_turns if self._lock_turns else self._fetch)(sql, arguments, limit_s)

    async def _fetch_in_turns(self, sql: str, arguments: tuple[object, ...], limit_s: float | None) -> list[Any]:
        """The same, repeated while it meets locks."""
        loop = asyncio.get_running_loop()
        until = loop.time() + lock_timeout_ms(limit_s or self._call_timeout_s) / 1000
        while True:
            try:
                return await self._fetch(sql, arguments, limit_s)
            except TooSlowError as problem:
                if not problem.lock or loop.time() > until:
                    raise
            await asyncio.sleep(_TURN_S)

    async def _fetch(self, sql: str, arguments: tuple[object, ...], limit_s: float | None) -> list[Any]:
        if self._used < self._size and (idle := self._pop_idle()) is not None:
            connection = idle
            self._used += 1
        else:
            connection = await self._acquire()
        watch = self._watch if limit_s is None else Watch(limit_s + _ANSWER_S, self._discard)
        watch.begin(connection)
        try:
            if limit_s is None:
                statement = self._waiting(sql) if self._target.pooled else sql
                rows = await connection.fetch(statement, *arguments)
            else:
                locks_ms = lock_timeout_ms(limit_s, lock_wait_s.get() or self._lock_wait_s)
                rows = await _fetch_within(limit_s, locks_ms, connection, sql, arguments)
        except BaseException as problem:
            error = self._settle(problem, connection, watch)
            if error is None:
                raise
            if isinstance(error, TooSlowError):
                error.limit_s = limit_s or self._call_timeout_s
            raise error from problem
        finally:
            watch.end(connection)
            if watch is not self._watch:
                watch.close()
            self._release(connection)
        self.answered_at = asyncio.get_running_loop().time()
        return rows

    def _waiting(self, sql: str) -> str:
        """The statement; behind a pooler, which keeps no settings of a connection, it sets its lock timeout itself."""
        if self._lock_wait_s is None or not self._target.pooled:
            return sql
        return _WAITING.format(sql, lock_timeout_ms(self._call_timeout_s, self._lock_wait_s))

    def _settle(
        self,
        problem: BaseException,
        connection: "asyncpg.Connection[Any]",
        watch: "Watch[asyncpg.Connection[Any]]",
    ) -> QueenError | None:
        """The error of a call, if it is one of ours; discards its connection unless that is of use."""
        error = self._error_of(problem, connection, watch) if isinstance(problem, Exception) else None
        broken = isinstance(error, OutcomeUnknownError) or (error is not None and not is_of_use(problem))
        if broken or connection.is_closed() or connection.is_in_transaction():
            self._discard(connection)
        return error

    def _error_of(
        self, problem: Exception, connection: "asyncpg.Connection[Any]", watch: "Watch[asyncpg.Connection[Any]]"
    ) -> QueenError | None:
        if connection not in watch:
            return OutcomeUnknownError(f"PostgreSQL did not answer within {watch.limit_s:g} s")
        error = translate(problem)
        if error is None and (connection.is_closed() or isinstance(problem, RuntimeError)):
            # uvloop has an error of its own for writing to a closed transport, also before the connection notices the
            # end.
            error = OutcomeUnknownError(f"The connection to PostgreSQL broke: {reason_of(problem)}")
        return error

    def suspend(self, reason: str) -> None:
        """PostgreSQL is unavailable: calls in flight are aborted, and new ones fail at once until ``resume``."""
        self._unavailable = reason
        for attempt in self._attempts:
            attempt.cancel()
        for connection in list(self._open):
            self._discard(connection)

    def resume(self) -> None:
        """PostgreSQL is available again."""
        self._unavailable = ""

    async def close(self) -> None:
        """Closes all connections; calls in flight are aborted."""
        self._closed = True
        self._watch.close()
        for connection in list(self._open):
            self._discard(connection)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator["asyncpg.Connection[Any]"]:
        """A connection for a block of statements; raises as ``fetch`` if there is none."""
        connection = await self._acquire()
        try:
            yield connection
        except BaseException:
            if connection.is_closed() or connection.is_in_transaction():
                self._discard(connection)
            raise
        finally:
            self._release(connection)

    async def _acquire(self) -> "asyncpg.Connection[Any]":
        """A connection for one call; first come, first served."""
        if self._used >= self._size:
            turn = asyncio.get_running_loop().create_future()
            self._turns.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._pass_on()
                raise
        else:
            self._used += 1
        try:
            idle = self._pop_idle()
            return await self._connect() if idle is None else idle
        except BaseException:
            self._pass_on()
            raise

    def _release(self, connection: "asyncpg.Connection[Any]") -> None:
        if connection in self._open:
            self._idle.append(connection)
        self._pass_on()

    def _pass_on(self) -> None:
        """Gives the place of a call that has ended to the next one."""
        while self._turns:
            if not (turn := self._turns.popleft()).done():
                turn.set_result(None)
                return
        self._used -= 1

    def _pop_idle(self) -> "asyncpg.Connection[Any] | None":
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
            self._open.discard(connection)
        return None

    def _check_available(self) -> None:
        if self._closed:
            raise DatabaseUnavailableError("The worker is stopping")
        if self._unavailable:
            raise DatabaseUnavailableError(self._unavailable)

    async def _connect(self) -> "asyncpg.Connection[Any]":
        self._check_available()
        attempt = asyncio.ensure_future(connect(self._target, self._call_timeout_s, self._lock_wait_s))
        self._attempts.add(attempt)
        attempt.add_done_callback(self._attempts.discard)
        try:
            connection = await attempt
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._unavailable or (task is not None and task.cancelling()):
                raise
            raise DatabaseUnavailableError(self._unavailable) from None
        except QueenError:
            raise
        except UNREACHABLE as problem:
            place, reason = self._target.place, reason_of(problem)
            raise DatabaseUnavailableError(f"No connection to PostgreSQL at {place}: {reason}") from problem
        self._open.add(connection)
        return connection

    def _discard(self, connection: "asyncpg.Connection[Any]") -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        connection.terminate()


async def _fetch_within(
    limit_s: float, locks_ms: int, connection: "asyncpg.Connection[Any]", sql: str, arguments: tuple[object, ...]
) -> list[Any]:
    async with connection.transaction():
        # For this transaction only: behind a pooler, other clients get the connection next.
        limit_ms = max(1, round(limit_s * 1000))
        await connection.execute(f"SET LOCAL statement_timeout = {limit_ms}; SET LOCAL lock_timeout = {locks_ms}")
        return await connection.fetch(sql, *arguments)
