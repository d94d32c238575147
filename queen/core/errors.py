"""All errors, each with a stable code. ``queen.http.problems`` turns them into answers."""


class QueenError(Exception):
    """Base of all errors of the server; ``str()`` is a sentence for people."""

    code = "internal"


class SettingError(QueenError):
    """A setting holds a value that cannot be used."""

    code = "bad_setting"


class BadRequestError(QueenError):
    """The request is invalid; ``field`` is the path of the invalid part, such as ``items[3].queue``."""

    code = "bad_request"

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class NotFoundError(QueenError):
    """The object of the request does not exist."""

    code = "not_found"


class ConflictError(QueenError):
    """The request conflicts with the present state; a repetition will not help."""

    code = "conflict"


class BodyTooLargeError(QueenError):
    """The request body is larger than ``MAX_BODY_SIZE``."""

    code = "body_too_large"


class TooManyItemsError(BodyTooLargeError):
    """The request has more elements than ``QUEEN_MAX_ITEMS``."""

    code = "too_many_items"


class CapacityError(QueenError):
    """A limit of size or number is reached; there may be room later."""

    code = "capacity_reached"


class QueueFullError(CapacityError):
    """A queue has no room for the messages of a request until its consumers catch up."""

    code = "queue_full"


class DecryptionError(QueenError):
    """A stored payload cannot be decrypted: its key is missing, or it was modified."""

    code = "decryption_failed"


class NoEncryptionKeyError(QueenError):
    """A queue is encrypted, and this server has no key."""

    code = "no_encryption_key"


class UnauthorizedError(QueenError):
    """The request has no token, or an invalid one."""

    code = "unauthorized"


class ForbiddenError(QueenError):
    """The token is valid, but its roles do not allow the request."""

    code = "forbidden"


class KeysUnavailableError(QueenError):
    """The keys of the token issuer could not be fetched yet, so no token can be checked; try again later."""

    code = "keys_unavailable"


class RateLimitError(QueenError):
    """A client exceeds its request rate; try again later."""

    code = "too_many_requests"


class OverloadedError(QueenError):
    """Too many requests wait; try again later."""

    code = "overloaded"


class DatabaseUnavailableError(QueenError):
    """PostgreSQL is unavailable, and the request could not wait for it.

    Attributes:
        database: the name of the one of several databases, if a request concerns all of them.
    """

    code = "database_unavailable"

    def __init__(self, message: str, *, database: str = "") -> None:
        super().__init__(message)
        self.database = database


class OutcomeUnknownError(DatabaseUnavailableError):
    """The connection broke during a call, which may have been committed or not."""

    code = "outcome_unknown"


class PartlyStoredError(QueenError):
    """A push over several databases was stored in some of them, and not in others, or perhaps not."""

    code = "partly_stored"


class TooSlowError(QueenError):
    """PostgreSQL cancelled a statement at its time limit, or at the limit of a wait for a lock. Nothing was changed.

    PostgreSQL is reachable, because it reported this.

    Attributes:
        lock: it was the limit of a wait for a lock, which another transaction holds: the statement is not at fault.
        limit_s: the time limit of the call, if known.
    """

    code = "too_slow"

    def __init__(self, message: str, *, lock: bool = False, limit_s: float | None = None) -> None:
        super().__init__(message)
        self.lock, self.limit_s = lock, limit_s


class DatabaseSlowError(QueenError):
    """PostgreSQL is too slow for all requests, or had no time left for this one; try again later."""

    code = "database_slow"


class LockedError(QueenError):
    """Another transaction held a lock for longer than the request could wait; try again later."""

    code = "locked"


class DatabaseSetupError(QueenError):
    """The database cannot be used at all: wrong password, too old, or its schema is newer than the code."""

    code = "database_setup"


class ShuttingDownError(QueenError):
    """The worker is stopping and takes no new work."""

    code = "shutting_down"


class DataRejectedError(QueenError):
    """PostgreSQL refused the data of a call. The call was rolled back; one of its items is the cause.

    ``sqlstate`` is PostgreSQL's code for the reason.
    """

    code = "data_rejected"

    def __init__(self, message: str, sqlstate: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate

    @property
    def misplaced(self) -> bool:
        """Whether a new partition belongs to another of several databases (sql/procedures/resolve_partitions.sql)."""
        return self.sqlstate == "QN006"


class SpoolError(QueenError):
    """PostgreSQL is down, and the spool on the local disk cannot take the push either."""

    code = "spool_unavailable"


class SpoolFullError(SpoolError):
    """The spool has no room: its limit is reached, or its disk is full."""

    code = "spool_full"


class SpoolDrainingError(QueenError):
    """Earlier pushes still wait in the spool, and this one must not overtake them; try again."""

    code = "spool_draining"


def forget_frames(problem: BaseException) -> None:
    """Drops the tracebacks of an error that becomes a value, and of its causes.

    Their frames hold the requests of the failed call and, by way of these, the error. Such a cycle would keep all their
    bytes until a full garbage collection, which is rare.
    """
    left: list[BaseException | None] = [problem]
    while left:
        error = left.pop()
        if error is not None and error.__traceback__ is not None:  # causes may go round in a circle
            error.__traceback__ = None
            left += [error.__cause__, error.__context__]
