"""Flame graphs by py-spy, which samples a running Python process from outside: https://github.com/benfred/py-spy."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench import programs
from queen.core.errors import QueenError

#: Samples per second.
_RATE = 100
_STOP_S = 60.0


class ProfileError(QueenError):
    """py-spy is missing, or may not access other processes."""

    code = "profile"


def program() -> Path:
    """The path of py-spy; raises ProfileError if it is not installed."""
    if found := programs.find("py-spy"):
        return found
    raise ProfileError("py-spy was not found: pip install 'queen-for-python[bench]', or omit --profile")


def check() -> None:
    """Tries py-spy on an idle process, before anything slow is started.

    Raises:
        ProfileError: it cannot be used here; the text has the reason and what to do.
    """
    tool = program()
    with subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1) as idle:
        assert idle.stdout is not None
        idle.stdout.readline()  # Now it is Python, and not a process before its exec.
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
            "py-spy may not access other processes here (ptrace): run as root, start the container with "
            "--cap-add SYS_PTRACE, or set the sysctl kernel.yama.ptrace_scope to 0; or omit --profile"
        )
    return f"py-spy does not work here: {lines[-1] if lines else 'it has no output'}"


@asynccontextmanager
async def flame_graphs(pids: Sequence[int], folder: Path) -> AsyncIterator[list[Path]]:
    """Profiles Python processes during the block; afterwards there is one file per process.

    Raises:
        ProfileError: a process cannot be profiled.
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
    """Returns when py-spy reports that it samples its process."""
    told = b""
    assert process.stdout is not None
    while b"Sampling process" not in told:
        line = await process.stdout.readline()
        if not line:
            raise ProfileError(_explained(told.decode(errors="replace")))
        told += line
