"""What failures of the driver mean for a call."""

import asyncpg
import pytest

from queen.core.errors import DatabaseUnavailableError, DataRejectedError, OutcomeUnknownError, TooSlowError
from queen.postgres.sqlstate import translate


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (asyncpg.ConnectionDoesNotExistError("lost"), OutcomeUnknownError),
        (asyncpg.InterfaceError("the connection is closed"), OutcomeUnknownError),
        (ConnectionResetError("reset"), OutcomeUnknownError),
        (TimeoutError(), OutcomeUnknownError),
        # Seen when the postmaster was killed: what was left of a connection, and a push was answered 500.
        (
            asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress"),
            OutcomeUnknownError,
        ),
        (asyncpg.CannotConnectNowError("starting up"), DatabaseUnavailableError),
        # What the disk of PostgreSQL does is not the fault of a message.
        (asyncpg.DiskFullError("could not extend file: No space left on device"), DatabaseUnavailableError),
        (asyncpg.PostgresIOError("could not read block 0: Input/output error"), DatabaseUnavailableError),
        (asyncpg.UndefinedFileError("could not open file"), DatabaseUnavailableError),
        (asyncpg.InsufficientResourcesError("too many open files"), DatabaseUnavailableError),
        (asyncpg.QueryCanceledError("canceling statement due to statement timeout"), TooSlowError),
        (asyncpg.LockNotAvailableError("canceling statement due to lock timeout"), TooSlowError),
        (asyncpg.UniqueViolationError("twice"), DataRejectedError),
        (ZeroDivisionError(), type(None)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_failure_of_the_driver_has_a_meaning(problem: Exception, kind: type) -> None:
    assert type(translate(problem)) is kind
