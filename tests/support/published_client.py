"""The client `queen-mq` from PyPI, unchanged, in an interpreter of its own: its package is named `queen` like ours.

QUEEN_CLIENT_PYTHON names an interpreter that has it, else one is made under `.tox/client-env` and kept.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.processes import ROOT

VERSION = "2.6.0"
_ENVIRONMENT = ROOT / ".tox" / "client-env"


def environment() -> Mapping[str, str]:
    """Ours without what would lead another interpreter to our packages."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "QUEEN", "VIRTUAL_ENV"))
    }


def has_client(python: Path) -> bool:
    """Whether the interpreter is there and has the client in that version."""
    code = f"import queen.client, importlib.metadata as m; assert m.version('queen-mq') == '{VERSION}'"
    return python.exists() and subprocess.run([python, "-I", "-c", code], check=False).returncode == 0


def find_python() -> Path:
    """An interpreter with the client, made if there is none."""
    if given := os.environ.get("QUEEN_CLIENT_PYTHON"):
        return Path(given)
    python = _ENVIRONMENT / "bin" / "python"
    if not has_client(python):
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(_ENVIRONMENT)],
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"queen-mq=={VERSION}"],
        ):
            done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return python


async def play(python: Path, script: Path, scenario: str, port: int, queue: str, *token: str) -> Any:
    """Runs a scenario of a script against the server on a port, with a token if there is one; its outcome."""
    process = await asyncio.create_subprocess_exec(
        python, "-I", script, scenario, f"http://127.0.0.1:{port}", queue, *token,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd="/",
    )  # fmt: skip
    try:
        async with asyncio.timeout(240):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, f"{output.decode()}\n{errors.decode()}"
    return json.loads(output.splitlines()[-1])
