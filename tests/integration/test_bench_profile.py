"""Flame graphs: made where py-spy may look at other processes, refused in words where it may not."""

import asyncio
import sys
from pathlib import Path

import psutil
import pytest

from queen_bench import profile


def spent(pid: int) -> float:
    """CPU seconds of a process."""
    return psutil.Process(pid).cpu_times().user


def tool(folder: Path, script: str) -> Path:
    """A program in the place of py-spy."""
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo 'Error: Permission Denied: Try running again with elevated permissions' >&2; exit 1", "SYS_PTRACE"),
        ("echo 'Operation not permitted (os error 1)' >&2; exit 1", "kernel.yama.ptrace_scope"),
        ("echo 'Error: unsupported version of Python' >&2; exit 1", "unsupported version of Python"),
        ("exit 1", "it says nothing"),
    ],
)
def test_where_it_is_not_allowed_that_is_said_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, text: str
) -> None:
    monkeypatch.setattr(profile, "program", lambda: tool(tmp_path, script))
    with pytest.raises(profile.ProfileError, match=text):
        profile.check()


async def test_a_flame_graph_of_a_process_that_works(tmp_path: Path) -> None:
    try:
        profile.check()
    except profile.ProfileError as problem:
        pytest.skip(str(problem))
    work = "import time\ndef busy():\n    while True: sum(range(1000))\nprint(flush=True)\nbusy()"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", work, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        async with profile.flame_graphs([process.pid], tmp_path) as graphs:
            # Many times as much work as one sample needs.
            enough = spent(process.pid) + 1.0
            while spent(process.pid) < enough:
                await asyncio.sleep(0.02)
    finally:
        process.kill()
        await process.wait()
    assert [path.name for path in graphs] == [f"profile-{process.pid}.svg"]
    assert "busy" in graphs[0].read_text()


async def test_a_process_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await process.wait()
    with pytest.raises(profile.ProfileError):
        async with profile.flame_graphs([process.pid], tmp_path):
            raise AssertionError("there is nothing to watch")


async def test_nothing_is_watched_where_there_is_nothing(tmp_path: Path) -> None:
    async with profile.flame_graphs([], tmp_path) as graphs:
        assert graphs == []
