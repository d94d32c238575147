"""The folder of the spool at a start: a full disk is no reason to refuse it, everything else is."""

import errno
import os
import tempfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from queen.core.errors import SettingError
from queen.spool import place
from spec.guarantees import Level, checks


def disk_with(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(*_arguments: Any, **_named: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "TemporaryFile", fail)


@checks("G-SPOOL-6", level=Level.MODEL)
def test_full_disk_does_not_keep_a_server_from_storing_what_fills_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk_with(monkeypatch, errno.ENOSPC)
    place.check(tmp_path)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EIO, errno.EACCES])
def test_disk_that_cannot_be_written_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int) -> None:
    disk_with(monkeypatch, number)
    with pytest.raises(SettingError, match="FILE_BUFFER_DIR"):
        place.check(tmp_path)


def test_only_the_user_of_the_server_reads_whose_spool_it_is(tmp_path: Path) -> None:
    installation, file = uuid4(), tmp_path / "installation"
    place.claim(str(tmp_path), "", installation)
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)  # as an older version has made it
    place.claim(str(tmp_path), "", installation)
    assert file.stat().st_mode & 0o777 == 0o600
    assert place.installation_of(tmp_path) == installation
