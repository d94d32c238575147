"""The folder with what a watch knows: how far it has read, its windows, and what it has told."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from ..archive.folder import locked
from ..errors import AuditError

VERSION = 2
"""Of the windows: a watch of another release cannot continue with them."""


class Origin(Struct, frozen=True):
    """What a checkpoint is of: the installation of the database, and the folder of the journals."""

    installation: str | None
    journal: str | None
    version: int = VERSION


class Checkpoint:
    """A folder that one watch uses.

    Attributes:
        stream: Spark's part of it.
        told: the number of the last batch whose findings were reported; -1 if there is none.
    """

    def __init__(self, folder: Path) -> None:
        self.stream, self._told = folder / "stream", folder / "told"
        self.told = int(self._told.read_text()) if self._told.exists() else -1

    def tell(self, number: int) -> None:
        """Notes that the findings of a batch were reported."""
        half = self._told.with_suffix(".half")
        half.write_text(str(number))
        half.rename(self._told)
        self.told = number


@contextmanager
def opened(folder: Path, origin: Origin) -> Iterator[Checkpoint]:
    """The checkpoint in a folder, for one watch at a time; a new one if the folder has none.

    Raises:
        AuditError: it is of another database, of other journals or another release, in use, or not writable.
    """
    with locked(folder, "watch"):
        path = folder / "origin.json"
        if path.exists():
            _check(folder, path, origin)
        elif any(each.name != "lock" for each in folder.iterdir()):
            raise AuditError(f"{folder} has other files, and no checkpoint. Name a new folder")
        else:
            path.write_bytes(msgspec.json.encode(origin))
        yield Checkpoint(folder)


def _check(folder: Path, path: Path, origin: Origin) -> None:
    try:
        known = msgspec.json.decode(path.read_bytes(), type=Origin)
    except msgspec.DecodeError as problem:
        raise AuditError(f"{path} cannot be read: {problem}. Name a new folder") from problem
    wrong = [name for name in Origin.__struct_fields__ if getattr(known, name) != getattr(origin, name)]
    if wrong:
        name = wrong[0]
        raise AuditError(
            f"{folder} is the checkpoint of another watch: its {name} is {getattr(known, name)}, and now it is "
            f"{getattr(origin, name)}. Name the folder that belongs to it, or a new one"
        )
