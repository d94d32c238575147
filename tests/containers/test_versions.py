"""The integration suite against each supported PostgreSQL, in the images of Docker's official library.

For pipelines that have Docker (`tox -e containers`). `tox -e integration` runs the suite against the PostgreSQL of the
wheel, and with QUEEN_TEST_DSN against any other.
"""

import os
import shutil
import subprocess
import sys

import pytest

from tests.support.processes import ROOT

postgres = pytest.importorskip("testcontainers.community.postgres", reason="not installed here: tox -e containers")

VERSIONS = (14, 15, 16, 17, 18)


def _missing() -> str:
    """Why no container can be started here; empty where one can."""
    if not shutil.which("docker"):
        return "there is no container engine here: docker is not installed"
    asked = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False, timeout=60)
    return f"there is no container engine here: {asked.stderr.strip()}" if asked.returncode else ""


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    if missing := _missing():
        pytest.skip(missing)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_integration_suite_passes_on(version: int) -> None:
    image = f"postgres:{version}-bookworm"
    settings = "-c max_connections=400 -c fsync=off"
    with postgres.PostgresContainer(image, driver=None).with_command(f"postgres {settings}") as container:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "tests/integration"],
            cwd=ROOT,
            env={**os.environ, "QUEEN_TEST_DSN": container.get_connection_url()},
            check=False,
        )
    assert done.returncode == 0, f"the suite fails on PostgreSQL {version}"
