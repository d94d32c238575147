"""The integration suite against each supported PostgreSQL, in the images of Docker's official library.

For pipelines that have Docker (`tox -e containers`). `tox -e integration` runs the suite against the PostgreSQL of the
wheel, and with QUEEN_TEST_DSN against any other.
"""

import os
import subprocess
import sys

import pytest

from tests.support.processes import ROOT

docker = pytest.importorskip("docker", reason="testcontainers is not installed: tox -e containers")
from testcontainers.postgres import PostgresContainer  # noqa: E402 - only where it is installed

VERSIONS = (14, 15, 16, 17, 18)


def _missing() -> str:
    """Why no container can be started here; empty where one can."""
    try:
        docker.from_env().ping()
    except docker.errors.DockerException as problem:
        return f"there is no container engine here: {str(problem)[:200]}"
    return ""


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    if missing := _missing():
        pytest.skip(missing)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_integration_suite_passes_on(version: int) -> None:
    image = f"postgres:{version}-bookworm"
    settings = "-c max_connections=400 -c fsync=off"
    with PostgresContainer(image, driver=None).with_command(f"postgres {settings}") as postgres:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "tests/integration"],
            cwd=ROOT,
            env={**os.environ, "QUEEN_TEST_DSN": postgres.get_connection_url()},
            check=False,
        )
    assert done.returncode == 0, f"the suite fails on PostgreSQL {version}"
