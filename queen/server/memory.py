"""How much memory there is, and that it is given back."""

import ctypes
import os
from pathlib import Path

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")

#: glibc's numbers for the size from which a piece of memory is the system's, and goes back to it when it is freed; and
#: for what may be free at the end of the heap. The former, once set, leaves the latter so small that each push of 1,000
#: messages would have its memory from the system.
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1
_LARGE_BYTES, _FREE_BYTES = 512 << 10, 16 << 20


def available_bytes() -> int:
    """The memory of the machine, or of the container if that has less."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _CGROUP_LIMIT.read_text().strip() if _CGROUP_LIMIT.exists() else "max"
    return min(physical, int(limit)) if limit.isdecimal() else physical


def return_large_pieces() -> None:
    """Has glibc give large pieces back to the system as soon as they are free.

    By itself it raises that size, up to 32 MiB, with each large piece that is freed; from then on such pieces lie among
    small ones that stay. A worker that had answered 200 pops of 15 MiB kept 300 MiB. Other libraries have no such call.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _FREE_BYTES)
