"""Programs that come as wheels, or are on the machine."""

import shutil
import sys
from pathlib import Path


def find(name: str) -> Path | None:
    """That of a wheel beside this interpreter, else that of the machine."""
    beside = Path(sys.executable).with_name(name)
    found = beside if beside.exists() else shutil.which(name)
    return Path(found) if found else None
