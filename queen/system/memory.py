"""Available memory, and returning freed memory to the system."""

import ctypes
import os
from pathlib import Path

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")

#: glibc's M_MMAP_THRESHOLD: larger blocks return to the system when they are freed. And M_TRIM_THRESHOLD: free memory
#: kept at the end of the heap. Setting the former leaves the latter so small that each push of 1,000 messages would get
#: its memory from the system.
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1
_LARGE_BYTES, _FREE_BYTES = 512 << 10, 16 << 20


def available_bytes() -> int:
    """The memory of the machine, or of the container if that has less."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _CGROUP_LIMIT.read_text().strip() if _CGROUP_LIMIT.exists() else "max"
    return min(physical, int(limit)) if limit.isdecimal() else physical


def return_large_pieces() -> None:
    """Makes glibc return large blocks to the system as soon as they are freed.

    By default glibc raises the threshold, up to 32 MiB, with each large block that is freed; then such blocks lie
    between small ones that stay. A worker that had answered 200 pops of 15 MiB kept 300 MiB. Other C libraries have no
    such call.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _FREE_BYTES)
