"""Running ``queen verify`` as people do."""

import subprocess

from tests.support.processes import PYTHON, ROOT, clean_environment

#: Longer than the longest run and its cleaning up.
LIMIT_S = 240


def command(url: str, *options: str) -> list[str]:
    """Its command line."""
    return [*PYTHON, "verify", url, *options]


def verify(url: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command, when it has ended."""
    return subprocess.run(
        command(url, *options),
        cwd=ROOT,
        env=clean_environment(**variables),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
