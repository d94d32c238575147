"""Finds the reason in PostgreSQL's log why it ended."""

import re
from pathlib import Path

from queen.embedded.data_folder import DataFolder

_TAIL_BYTES = 1 << 16

_REMARK = re.compile(r"(LOG|HINT|DETAIL|WARNING): ")
_PREFIX = re.compile(r"^.*(FATAL|PANIC): +")


def failure_since(folder: DataFolder, time: str) -> str:
    """The last log line since a time that says why PostgreSQL ended; the time is in the format of the log."""
    early = [line for line in _tail(folder.start_log) if line and not _REMARK.search(line)]
    late = [line for line in _tail(_newest(folder.logs)) if line >= time and _is_failure(line)]
    lines = early + late
    return _PREFIX.sub("", lines[-1]) if lines else f"no error message was found; see {folder.logs}"


def _is_failure(line: str) -> bool:
    """Whether a line is about the end of the server, not about a client that was refused meanwhile."""
    return ("FATAL:" in line or "PANIC:" in line) and "the database system is" not in line


def _newest(logs: Path) -> Path | None:
    return max(logs.glob("postgresql-*.log"), key=lambda path: path.stat().st_mtime, default=None)


def _tail(path: Path | None) -> list[str]:
    if path is None or not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace").splitlines()
