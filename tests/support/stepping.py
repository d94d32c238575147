"""An embedded PostgreSQL whose clock a test steps while it runs; other clocks stay."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import libfaketime

from queen.embedded import binaries
from queen.embedded.server import EmbeddedPostgres


class SteppingClock:
    """By how much PostgreSQL's clock is ahead of all others."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.ahead(0)

    def ahead(self, seconds: float) -> None:
        """Steps it, at once and for all sessions."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+.3f}")
        new.chmod(0o644)
        new.replace(self._file)


@contextmanager
def stepping_postgres(folder: Path) -> Iterator[tuple[EmbeddedPostgres, SteppingClock]]:
    """PostgreSQL in a new folder, under libfaketime; only its wall clock is touched."""
    clock = SteppingClock(folder / "ahead")
    faked = {**libfaketime.get_reload_information()[1], "FAKETIME_TIMESTAMP_FILE": str(folder / "ahead")}
    with mock.patch.dict(binaries._ENVIRONMENT, faked), EmbeddedPostgres(folder / "data") as server:
        yield server, clock
