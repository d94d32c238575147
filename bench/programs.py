"""Programs of wheels or of the machine, and their processes."""

import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from bench import meter

#: A server finishes its requests, and its PostgreSQL writes a checkpoint.
_PATIENCE_S = 120.0
_DYING_S = 5.0


def find(name: str) -> Path | None:
    """The program of a wheel beside this interpreter, else that of the machine."""
    beside = Path(sys.executable).with_name(name)
    found = beside if beside.exists() else shutil.which(name)
    return Path(found) if found else None


@contextmanager
def ending(process: "subprocess.Popen[bytes]", retry_timeout_s: float = _PATIENCE_S) -> Iterator[None]:
    """Stops a server at the end of the block; if it does not stop in time, kills it with all its processes."""
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(retry_timeout_s)
        except subprocess.TimeoutExpired:
            everything = [each for root in meter.found(process.pid) for each in meter.family(root)]
            for each in everything:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            process.wait()
            psutil.wait_procs(everything, _DYING_S)
            warnings.warn(f"The server did not end within {retry_timeout_s:g} s: it was killed", stacklevel=1)
