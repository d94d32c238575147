"""Flame graphs by py-spy, which looks at a running Python from outside: https://github.com/benfred/py-spy."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from queen.core.errors import QueenError
from queen_bench import programs

#: Samples a second.
_RATE = 100
_STOP_S = 60.0


class ProfileError(QueenError):
    """py-spy is not there, or may not look at other processes."""

    code = "profile"


def program() -> Path:
    """py-spy; raises ProfileError if there is none."""
    if found := programs.find("py-spy"):
        return found
    raise ProfileError("py-spy was not found: pip install 'queen-for-python[bench]', or leave out --profile")


def check() -> None:
    """Tries py-spy on a process that does nothing, before anything is started that takes its time.

    Raises:
        ProfileError: it cannot be used here; says why, and what to do.
    """
    tool = program()
    with subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1) as idle:
        assert idle.stdout is not None
        idle.stdout.readline()  # Now it is Python, and not a process on its way to become one.
        tried = subprocess.run(
            [tool, "dump", "--pid", str(idle.pid)], capture_output=True, text=True, errors="replace", check=False
        )
        idle.kill()
    if tried.returncode:
        raise ProfileError(_explained(tried.stderr))


def _explained(text: str) -> str:
    lines = text.strip().splitlines()
    if any(word in text.lower() for word in ("permission", "not permitted", "ptrace")):
        return (
            "py-spy may not look at other processes here (ptrace): run as root, start the container with "
            "--cap-add SYS_PTRACE, or set the sysctl kernel.yama.ptrace_scope to 0; or leave out --profile"
        )
    return f"py-spy does not work here: {lines[-1] if lines else 'it says nothing'}"


@asynccontextmanager
async def flame_graphs(pids: Sequence[int], folder: Path) -> AsyncIterator[list[Path]]:
    """Watches Python processes for the length of the block; the files, one a process, are there afterwards.

    Raises:
        ProfileError: a process cannot be watched.
    """
    files = [folder / f"profile-{pid}.svg" for pid in pids]
    processes = [
        await asyncio.create_subprocess_exec(
            program(), "record", "--pid", str(pid), "--rate", str(_RATE), "--output", str(file), "--format",
            "flamegraph", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        for pid, file in zip(pids, files, strict=True)
    ]  # fmt: skip
    found: list[Path] = []
    try:
        for process in processes:
            await _sampling(process)
        yield found
    finally:
        for process in processes:
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
        for process, file in zip(processes, files, strict=True):
            told, _ = await asyncio.wait_for(process.communicate(), _STOP_S)
            if file.exists():
                found.append(file)
            elif sys.exception() is None:
                raise ProfileError(_explained(told.decode(errors="replace")))


async def _sampling(process: asyncio.subprocess.Process) -> None:
    """Returns when py-spy says that it looks at its process."""
    told = b""
    assert process.stdout is not None
    while b"Sampling process" not in told:
        line = await process.stdout.readline()
        if not line:
            raise ProfileError(_explained(told.decode(errors="replace")))
        told += line
