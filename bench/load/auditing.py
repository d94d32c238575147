"""The audit of a session's journals, while its server and its log are still there."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from queen.core.errors import QueenError
from queen_bench.load.scenarios import Scenario
from queen_bench.load.target import Target

if TYPE_CHECKING:
    from queen_audit.report import Report

_EVIDENCE = 20
_MEMORY = "2g"


class AuditingError(QueenError):
    """The audit cannot be made."""

    code = "bench_audit"


def interface_of(scenarios: Sequence[Scenario]) -> str:
    """Whose calls these scenarios make.

    Raises:
        ValueError: they are of both interfaces, and an audit is of one.
    """
    found = {each.script.partition("/")[0] for each in scenarios}
    if len(found) > 1:
        raise ValueError("--audit takes scenarios of one interface: those of simple-mq apart from Queen's")
    return found.pop()


def audit(target: Target, journals: Path, interface: str, advance: Callable[[str, float], None]) -> "Report":
    """What `queen audit` says of the journals, and of the log if the database is known.

    Raises:
        AuditingError: it cannot be made; says why.
    """
    from queen_audit import command  # noqa: PLC0415 - Spark is there only with the extra for audits
    from queen_audit.errors import AuditError  # noqa: PLC0415

    def progress(done: int, total: int, name: str) -> None:
        advance(f"audit: {name.replace('_', ' ')}", done / total)

    where = command.Where("local[*]", _MEMORY)
    request = command.Request(target.dsn, journals, None, where, (), _EVIDENCE, 0.0, interface)
    try:
        return command.make(request, progress)
    except AuditError as problem:
        raise AuditingError(str(problem)) from problem
