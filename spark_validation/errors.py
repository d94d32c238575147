"""What keeps an audit from being made: each says what to do. Needs nothing, so that `queen` may import it."""


class AuditError(Exception):
    """The audit cannot be made; the text is for people."""


class JavaError(AuditError):
    """There is no Java that runs Spark."""


class JournalError(AuditError):
    """A journal cannot be read."""


class ArchiveError(AuditError):
    """An archive cannot be written or read, or is not what the log was."""


class DatabaseError(AuditError):
    """The log cannot be read."""


class AwayError(DatabaseError):
    """The database does not answer now, and may later."""
