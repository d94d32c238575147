"""What a failure of asyncpg means: the one table from exceptions and SQLSTATEs to the errors of the server."""

import asyncpg

from queen.core.errors import (
    DatabaseUnavailableError,
    DataRejectedError,
    OutcomeUnknownError,
    QueenError,
    TooSlowError,
)

#: The server said that it did nothing, and that nothing is wrong with the data: deadlock, serialization.
RETRYABLE = frozenset({"40P01", "40001"})
#: The statement was cancelled: at its time limit or by an administrator, or at the limit of a wait for a lock.
_CANCELLED, _LOCK_TIMEOUT = "57014", "55P03"
#: The connection is at an end; the statement may have been committed just before.
_BROKEN = frozenset({"57P01", "57P02", "57P05", "08000", "08003", "08006"})
#: Nothing was sent, or the server takes nothing: it starts, stops, is full or read-only.
_UNAVAILABLE = frozenset({"57P03", "53300", "53100", "53200", "25006", "08001", "08004", "57P04"})


def is_of_use(problem: BaseException) -> bool:
    """Whether the connection that an exception came over can be used again.

    It cannot when the server behind it takes nothing: a primary that became a standby stays one, and the new primary
    is found by connecting anew.
    """
    return not (isinstance(problem, asyncpg.PostgresError) and problem.sqlstate in _UNAVAILABLE)


def reason_of(problem: BaseException) -> str:
    """What an exception says, or its name if it says nothing, as time limits do."""
    return str(problem) or type(problem).__name__


def translate(problem: BaseException) -> QueenError | None:
    """The server's error for an exception of a call, or ``None`` for one that has nothing to do with PostgreSQL."""
    if isinstance(problem, asyncpg.PostgresError):
        return _of_state(problem.sqlstate or "", problem)
    if isinstance(problem, asyncpg.InterfaceError) and isinstance(problem, ValueError):
        return DataRejectedError(f"The driver refused the data: {problem}", "22000")
    # An internal error: a server that died said so while nothing was asked of it, and asyncpg stumbles over that later.
    if isinstance(problem, asyncpg.InterfaceError | asyncpg.InternalClientError | OSError | TimeoutError):
        return OutcomeUnknownError(f"The connection to PostgreSQL broke: {reason_of(problem)}")
    return None


def _of_state(state: str, problem: asyncpg.PostgresError) -> QueenError:
    if state in _BROKEN:
        return OutcomeUnknownError(f"PostgreSQL ended the connection: {problem}")
    if state in _UNAVAILABLE or state in RETRYABLE:
        return DatabaseUnavailableError(f"PostgreSQL cannot serve at the moment: {problem}")
    if state in (_CANCELLED, _LOCK_TIMEOUT):
        return TooSlowError(f"PostgreSQL cancelled the statement: {problem}", lock=state == _LOCK_TIMEOUT)
    return DataRejectedError(f"PostgreSQL refused the data ({state}): {problem}", state)
