"""The machine of a benchmark."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from msgspec import Struct

from queen import __distribution__
from queen.system.memory import available_bytes

_PACKAGES = (__distribution__, "asyncpg", "msgspec")


class Machine(Struct, frozen=True):
    """Facts that affect results.

    Attributes:
        load: load average of the last minute before the benchmark, because other programs disturb it.
    """

    cpus: int
    processor: str
    memory_bytes: int
    system: str
    python: str
    packages: dict[str, str]
    load: float


def describe() -> Machine:
    """The machine, now."""
    return Machine(
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        processor=_processor(),
        memory_bytes=available_bytes(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        packages={name: _version(name) for name in _PACKAGES},
        load=os.getloadavg()[0],
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "from its source"
