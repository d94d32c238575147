"""The folder of the spool: where it is, that it can be used, and which database its messages are for."""

import logging
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from queen.core.errors import SettingError
from queen.spool.folder import NO_ROOM

log = logging.getLogger("queen.spool")

_INSTALLATION = "installation"
_DEFAULT = "buffers"
#: Files of the spool are for the user of the server alone.
_MODE = 0o600


def default_parent(data_dir: str) -> Path:
    """The folder that has one spool for each database, where none is named."""
    return Path(data_dir) / _DEFAULT


def check(path: Path) -> None:
    """Makes sure that a folder exists and can be written.

    A full disk is no reason not to start: what waits in the spool is stored at the start, and makes room.

    Raises:
        SettingError: it does not, or cannot.
    """
    if not path.is_dir():
        raise SettingError(
            f"The spool folder {path} does not exist: make it, mount its disk, or set FILE_BUFFER_DIR to another"
        )
    try:
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"\0")
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        if problem.errno in NO_ROOM:
            log.warning("The disk of the spool folder %s is full: pushes cannot be spooled before there is room", path)
            return
        raise SettingError(
            f"The spool folder {path} cannot be written ({problem.strerror}): let this user write there, or set "
            "FILE_BUFFER_DIR to another"
        ) from None


def installation_of(path: Path) -> UUID | None:
    """The database that a spool is for; ``None`` for one that was never used."""
    try:
        return UUID((path / _INSTALLATION).read_text().strip())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def claim(given: str, data_dir: str, installation: UUID) -> Path:
    """The folder of the spool for a database, ready to be used; the default one is made.

    Raises:
        SettingError: the folder is missing, cannot be written, or belongs to another database.
    """
    path = Path(given) if given else default_parent(data_dir) / str(installation)
    if not given:
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as problem:
            raise SettingError(
                f"The spool folder {path} cannot be made ({problem.strerror}): set FILE_BUFFER_DIR to a folder that "
                "this user may write"
            ) from None
    check(path)
    owner = installation_of(path)
    if owner is None:
        _mark(path, installation)
    elif owner == installation:
        with suppress(OSError):  # older versions let everybody read it; it may be another user's
            (path / _INSTALLATION).chmod(_MODE)
    else:
        raise SettingError(
            f"The spool folder {path} belongs to another database: set FILE_BUFFER_DIR to another folder, start with "
            "the database that it belongs to, or empty the folder if that database is gone"
        )
    return path.resolve()


def _mark(path: Path, installation: UUID) -> None:
    new = path / f"{_INSTALLATION}.new"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE), "w") as file:  # noqa: PTH123 - it has a mode
        file.write(f"{installation}\n")
        file.flush()
        os.fchmod(file.fileno(), _MODE)  # a crash may have left it
        os.fsync(file.fileno())
    new.rename(path / _INSTALLATION)
