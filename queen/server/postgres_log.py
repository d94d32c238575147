"""Reading why PostgreSQL ended from its log."""

from pathlib import Path

from queen.server.data_folder import DataFolder

_TAIL_BYTES = 1 << 16


def failure_since(folder: DataFolder, time: str) -> str:
    """The last fatal line since a time, written as in the log; such lines are rare, and the last one says it."""
    lines = _tail(folder.start_log) + [line for line in _tail(_newest(folder.logs)) if line >= time]
    fatal = [line for line in lines if _is_failure(line)]
    return fatal[-1].split(": ", 1)[-1].strip() if fatal else f"it gave no reason; see {folder.logs}"


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
