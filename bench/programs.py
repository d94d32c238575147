"""Programs that come as wheels, or are on the machine, and processes of them."""

import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from queen_bench import usage

#: A server answers what it has begun, and its PostgreSQL writes down all that it has in memory.
_PATIENCE_S = 120.0
_DYING_S = 5.0


def find(name: str) -> Path | None:
    """That of a wheel beside this interpreter, else that of the machine."""
    beside = Path(sys.executable).with_name(name)
    found = beside if beside.exists() else shutil.which(name)
    return Path(found) if found else None


@contextmanager
def ending(process: "subprocess.Popen[bytes]", patience_s: float = _PATIENCE_S) -> Iterator[None]:
    """Ends a server with the block: it is asked to, and if it does not, it is killed with all its processes."""
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            everything = [each for root in usage.found(process.pid) for each in usage.family(root)]
            for each in everything:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            process.wait()
            psutil.wait_procs(everything, _DYING_S)
            warnings.warn(f"The server did not end within {patience_s:g} s: it was killed", stacklevel=1)
