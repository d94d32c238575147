"""``queen spool`` with what people may give it: one line that says what is wrong, never a traceback."""

import time
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from queen.spool.folder import DiskFolder
from queen.spool.format import Record, spool_request
from queen.spool.spool import Limits, Spool, entry_of
from tests.support.processes import run
from tests.support.spool_world import push_of

INSTALLATION = UUID(int=7)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A spool with a file that waits, and one set aside that is unreadable."""
    (tmp_path / "installation").write_text(f"{INSTALLATION}\n")
    spool = Spool(DiskFolder(tmp_path), INSTALLATION, Limits())
    record = Record(uuid4(), None, time.time(), [spool_request(push_of("p", [1]))])
    spool.append([entry_of(record)], insist=True)
    [name] = spool.files()
    spool.set_aside(spool.read(name), name, 1, b"nothing that was ever written by a spool")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("list", "--folder", "/etc/passwd"), "There is no spool in /etc/passwd"),
        (("list", "--folder", "/nowhere"), "There is no spool in /nowhere"),
        (("show", "../../etc/passwd"), "There is no file"),
        (("show", "ledger"), "There is no file"),
        (("discard", "../x.failed", "--yes"), "There is no file"),
        (("discard", "000000000001.buf.tmp", "--yes"), "is not a failed file"),
    ],
)
def test_bad_arguments_are_explained_in_a_line(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    result = run("spool", *arguments, FILE_BUFFER_DIR=str(folder))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert words in line
    assert len(list(folder.glob("*.buf.tmp"))) == len(list(folder.glob("*.failed"))) == 1


@pytest.mark.nightly
def test_unreadable_files_are_shown_and_can_be_discarded(folder: Path) -> None:
    assert "cannot be read" in run("spool", "list", FILE_BUFFER_DIR=str(folder)).stdout
    assert (
        "bytes that cannot be read" in run("spool", "show", "000000000001-1.failed", FILE_BUFFER_DIR=str(folder)).stdout
    )
    assert run("spool", "discard", "000000000001-1.failed", "--yes", FILE_BUFFER_DIR=str(folder)).returncode == 0
    assert list(folder.glob("*.failed")) == []
