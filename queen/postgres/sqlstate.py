"""Translates asyncpg's exceptions and SQLSTATEs to the errors of the server; the only such table."""

import asyncpg

from queen.core.errors import (
    DatabaseUnavailableError,
    DataRejectedError,
    OutcomeUnknownError,
    QueenError,
    TooSlowError,
)

#: PostgreSQL did nothing, and the data is not at fault: deadlock, serialization.
RETRYABLE = frozenset({"40P01", "40001"})
#: The statement was cancelled: at its time limit, by an administrator, or at the limit of a wait for a lock.
_CANCELLED, _LOCK_TIMEOUT = "57014", "55P03"
#: The connection has ended; the statement may have been committed before.
_BROKEN = frozenset({"57P01", "57P02", "57P05", "08000", "08003", "08006"})
#: Nothing was sent, or PostgreSQL accepts nothing: it starts, stops, is full or read-only, or its disk fails.
_UNAVAILABLE = frozenset(
    {"57P03", "53000", "53300", "53100", "53200", "25006", "08001", "08004", "57P04", "58000", "58030", "58P01"}
)


def is_of_use(problem: BaseException) -> bool:
    """Whether the connection of an exception can be used again.

    It cannot if its PostgreSQL accepts nothing: a primary that became a standby stays one, and a new connection finds
    the new primary.
    """
    return not (isinstance(problem, asyncpg.PostgresError) and problem.sqlstate in _UNAVAILABLE)


def reason_of(problem: BaseException) -> str:
    """The text of an exception, or its name if it has none, as timeouts."""
    return str(problem) or type(problem).__name__


def translate(problem: BaseException) -> QueenError | None:
    """The server's error for an exception of a call; ``None`` if the exception is unrelated to PostgreSQL."""
    if isinstance(problem, asyncpg.PostgresError):
        return _of_state(problem.sqlstate or "", problem)
    if isinstance(problem, asyncpg.InterfaceError) and isinstance(problem, ValueError):
        return DataRejectedError(f"The driver refused the data: {problem}", "22000")
    # An internal error: PostgreSQL reported its end between two calls, and asyncpg fails on that message later.
    if isinstance(problem, asyncpg.InterfaceError | asyncpg.InternalClientError | OSError | TimeoutError):
        return OutcomeUnknownError(f"The connection to PostgreSQL broke: {reason_of(problem)}")
    return None


def _of_state(state: str, problem: asyncpg.PostgresError) -> QueenError:
    if state in _BROKEN:
        return OutcomeUnknownError(f"PostgreSQL ended the connection: {problem}")
    if state in _UNAVAILABLE or state in RETRYABLE:
        return DatabaseUnavailableError(f"PostgreSQL is not available at the moment: {problem}")
    if state in (_CANCELLED, _LOCK_TIMEOUT):
        return TooSlowError(f"PostgreSQL cancelled the statement: {problem}", lock=state == _LOCK_TIMEOUT)
    return DataRejectedError(f"PostgreSQL refused the data ({state}): {problem}", state)
