"""Reading why PostgreSQL ended from its log."""

import re
from pathlib import Path

from queen.server.data_folder import DataFolder

_TAIL_BYTES = 1 << 16

_REMARK = re.compile(r"(LOG|HINT|DETAIL|WARNING): ")
_PREFIX = re.compile(r"^.*(FATAL|PANIC): +")


def failure_since(folder: DataFolder, time: str) -> str:
    """The last line since a time, written as in the log, that tells why PostgreSQL ended."""
    early = [line for line in _tail(folder.start_log) if line and not _REMARK.search(line)]
    late = [line for line in _tail(_newest(folder.logs)) if line >= time and _is_failure(line)]
    lines = early + late
    return _PREFIX.sub("", lines[-1]) if lines else f"it gave no reason; see {folder.logs}"


def _is_failure(line: str) -> bool:
    """Whether a line tells of the server's end, not of a client that was turned away meanwhile."""
    return ("FATAL:" in line or "PANIC:" in line) and "the database system is" not in line


def _newest(logs: Path) -> Path | None:
    return max(logs.glob("postgresql-*.log"), key=lambda path: path.stat().st_mtime, default=None)


def _tail(path: Path | None) -> list[str]:
    if path is None or not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace").splitlines()
