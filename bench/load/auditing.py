"""The audit of a session's journals, while its server is running."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.load.scenarios import Scenario
from bench.load.target import Target
from queen.core.errors import QueenError

if TYPE_CHECKING:
    from spark_validation.report import Report

_EVIDENCE = 20
_MEMORY = "2g"


class AuditingError(QueenError):
    """The audit is not possible."""

    code = "bench_audit"


def interface_of(scenarios: Sequence[Scenario]) -> str:
    """The interface of these scenarios.

    Raises:
        ValueError: they use both interfaces, but an audit has one.
    """
    found = {each.interface for each in scenarios}
    if len(found) > 1:
        raise ValueError("--audit takes scenarios of one interface: run those of simple-mq separately from Queen's")
    return found.pop()


def audit(target: Target | None, journals: Path, interface: str, advance: Callable[[str, float], None]) -> "Report":
    """The report of `queen audit` on the journals, and on the log if the database is known.

    Raises:
        AuditingError: it is not possible; the text has the reason.
    """
    from spark_validation import command  # noqa: PLC0415 - Spark is there only with the extra for audits
    from spark_validation.errors import AuditError  # noqa: PLC0415

    def progress(done: int, total: int, name: str) -> None:
        advance(f"audit: {name.replace('_', ' ')}", done / total if total else 0.0)

    where = command.Where("local[*]", _MEMORY)
    request = command.Request(target.dsn if target else None, journals, None, where, (), _EVIDENCE, 0.0, interface)
    try:
        return command.make(request, progress)
    except AuditError as problem:
        raise AuditingError(str(problem)) from problem
