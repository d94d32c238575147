"""Errors that prevent an audit; each text says what to do. Imports nothing, so that `queen` may import it."""

import re


class AuditError(Exception):
    """The audit is not possible; the text is for people."""


class JavaError(AuditError):
    """There is no Java for Spark."""


class JournalError(AuditError):
    """A journal cannot be read."""


class ArchiveError(AuditError):
    """An archive cannot be written or read, or differs from the log."""


class DatabaseError(AuditError):
    """The log cannot be read."""


class AwayError(DatabaseError):
    """The database is unavailable at the moment."""


class ReplicaError(DatabaseError):
    """The database may lack what the journals say to be stored: it is no primary."""

    def __init__(self) -> None:
        super().__init__(
            "PostgreSQL is a replica here, which may lack what journals say to be stored: give --dsn of the primary "
            "(target_session_attrs=primary finds it), or judge the log without --journal"
        )


_OURS = re.compile(
    r"^(?:(?:spark_validation|pyspark_queen)\.errors\.|Python error: \[[^\]]*\] )?"
    r"(?:Archive|Away|Database|DataLoss|Java|Journal|Option|Replica|Source|Unreachable)Error: (.+)",
    re.MULTILINE,
)


def told_by_us(text: str) -> str | None:
    """What an error of ours says, in the text of an error of Spark or Sail, whose tasks raised it; None without one."""
    found = _OURS.search(text)
    return found[1] if found else None
