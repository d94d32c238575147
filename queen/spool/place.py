"""The folder of the spool: its path, checks, and the database of its messages."""

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
#: Only the user of the server can access files of the spool.
_MODE = 0o600


def default_parent(data_dir: str) -> Path:
    """The default parent folder, with one spool per database."""
    return Path(data_dir) / _DEFAULT


def make(path: Path) -> None:
    """Creates a folder for spools, unless it exists.

    Raises:
        SettingError: it cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as problem:
        raise SettingError(
            f"The spool folder {path} cannot be created ({problem.strerror}): set FILE_BUFFER_DIR to a folder that "
            "this user may write to"
        ) from None


def check(path: Path) -> None:
    """Checks that a folder exists and is writable.

    A full disk does not prevent a start: the start replays the spool, which frees space.

    Raises:
        SettingError: it does not exist, or is not writable.
    """
    if not path.is_dir():
        raise SettingError(
            f"The spool folder {path} does not exist: create it, mount its disk, or set FILE_BUFFER_DIR to "
            "another folder"
        )
    try:
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"\0")
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        if problem.errno in NO_ROOM:
            log.warning(
                "The disk of the spool folder %s is full: pushes cannot be spooled until there is free space", path
            )
            return
        raise SettingError(
            f"The spool folder {path} is not writable ({problem.strerror}): give this user write permission, "
            "or set FILE_BUFFER_DIR to another folder"
        ) from None


def installation_of(path: Path) -> UUID | None:
    """The database of a spool; ``None`` if it was never used."""
    try:
        return UUID((path / _INSTALLATION).read_text().strip())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def claim(given: str, data_dir: str, installation: UUID) -> Path:
    """Prepares the folder of the spool for a database; creates the default one.

    Raises:
        SettingError: the folder is missing, is not writable, or belongs to another database.
    """
    path = Path(given) if given else default_parent(data_dir) / str(installation)
    if not given:
        make(path)
    check(path)
    owner = installation_of(path)
    if owner is None:
        try:
            _mark(path, installation)
        except OSError as problem:
            raise SettingError(
                f"The spool folder {path} cannot be prepared ({problem.strerror}): free some space on its disk"
            ) from None
    elif owner == installation:
        with suppress(OSError):  # older versions made it readable for everybody; it may belong to another user
            (path / _INSTALLATION).chmod(_MODE)
    else:
        raise SettingError(
            f"The spool folder {path} belongs to another database: set FILE_BUFFER_DIR to another folder, "
            "start with the database that it belongs to, or empty the folder if that database no longer "
            "exists"
        )
    return path.resolve()


def _mark(path: Path, installation: UUID) -> None:
    new = path / f"{_INSTALLATION}.{os.getpid()}"  # workers may do so at the same time
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE), "w") as file:  # noqa: PTH123 - it has a mode
        file.write(f"{installation}\n")
        file.flush()
        os.fchmod(file.fileno(), _MODE)  # left by a crash
        os.fsync(file.fileno())
    new.rename(path / _INSTALLATION)
