"""What few servers need is imported by those only: imports are most of a start."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import clean_environment

ROOT = Path(__file__).parents[2]
CODE = """
import queen.server.config, queen.app, sys
print(*sorted({"httpx", "jwt", "opentelemetry", "rich"} & sys.modules.keys()))
"""


@pytest.mark.parametrize(
    ("variables", "imported"),
    [
        ({}, []),
        ({"JWT_ENABLED": "true", "JWT_SECRET": "s" * 32}, ["httpx", "jwt", "rich"]),
    ],
    ids=["nothing", "tokens"],
)
def test_a_server_imports_what_its_settings_need(variables: dict[str, str], imported: list[str]) -> None:
    environment = clean_environment(DATABASE_URL="postgresql://postgres@127.0.0.1:1/queen", **variables)
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == imported
