"""The wheel as people install it: a clean environment of every Python that is found, pip, uvx and pipx."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.package.release import ROOT, objection, project, sbom, version

MINORS = (11, 12, 13, 14)
PATIENCE_S = 600


def pythons() -> Iterator[str]:
    """The interpreters of this machine, one per version: on the path, and those of pyenv."""
    for minor in MINORS:
        of_pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/python"))
        # Its commands on the path run only the versions that are switched on.
        found = str(of_pyenv[-1]) if of_pyenv else shutil.which(f"python3.{minor}")
        if found:
            yield found


def run(*command: str | Path, **variables: str) -> str:
    """What a command prints that succeeds, in an environment without this checkout."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)), cwd="/", env=kept | variables, capture_output=True, text=True, timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT)
    [built] = folder.glob("*.whl")
    return built


def test_the_metadata_says_who_where_and_what(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [place] = [name for name in names if name.endswith(".dist-info/METADATA")]
        found = Parser().parsestr(archive.read(place).decode())
    assert {"queen/py.typed", "pyspark_queen/py.typed"} <= names
    assert not [name for name in names if name.startswith("tests/")]
    assert found["Author"]
    assert found["License-Expression"] == "Apache-2.0"
    assert (found["Summary"], found["Description-Content-Type"]) == (project()["description"], "text/markdown")
    # There is no public repository yet, and none is made up: `tox -e release` asks for it.
    assert "Project-URL" not in found
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in MINORS} <= set(found.get_all("Classifier", []))
    workflow = (ROOT / ".github" / "workflows" / "checks.yaml").read_text()
    assert all(f'"3.{minor}"' in workflow for minor in MINORS)


@pytest.mark.parametrize("python", list(pythons()))
def test_pip_installs_it_into_a_clean_environment(wheel: Path, python: str, tmp_path: Path) -> None:
    run(python, "-m", "venv", tmp_path)
    run(tmp_path / "bin" / "pip", "install", "-q", wheel)
    queen = tmp_path / "bin" / "queen"
    assert run(queen, "--version") == f"queen-for-python {version()}\n"
    assert "serve" in run(queen, "--help")
    # The SQL and the dashboard are in it, too: the server starts with them.
    assert run(queen, "init", "--data-dir", tmp_path / "data").startswith("PostgreSQL ")
    bill = tmp_path / "sbom.json"
    if find_spec("cyclonedx_py"):
        sbom(tmp_path, bill)
        names = {each["name"] for each in json.loads(bill.read_text())["components"]}
        assert {"asyncpg", "falcon", "gunicorn", "queen-for-python"} <= names


@pytest.mark.parametrize(
    "command",
    [
        ("uvx", "--from", "{wheel}", "queen", "--version"),
        ("uvx", "{wheel}", "--version"),
        ("pipx", "run", "--spec", "{wheel}", "queen", "--version"),
    ],
)
def test_uvx_and_pipx_run_it(wheel: Path, command: tuple[str, ...], tmp_path: Path) -> None:
    program = Path(sys.executable).parent / command[0]
    if not program.exists():
        pytest.skip(f"{command[0]} is not installed here")
    words = [word.format(wheel=wheel) for word in command[1:]]
    indexes = run(sys.executable, "-m", "pip", "config", "list")
    more = re.findall(r"extra-index-url='(.*)'", indexes)
    variables = {
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "PIPX_HOME": str(tmp_path / "pipx"),
        **({"UV_INDEX": more[0]} if more else {}),
    }
    assert run(program, *words, **variables) == f"queen-for-python {version()}\n"


def test_a_release_needs_a_tag_a_heading_and_the_right_address() -> None:
    heading, here = "## 1.2.3 (2026-12-01)\n", "https://h/o/n"
    assert "has no tag v1.2.3" in str(objection("1.2.3", "v1.2.2", "", here, here))
    assert "has no heading" in str(objection("1.2.3", "v1.2.3", "## Unreleased\n", here, here))
    assert "is not its remote" in str(objection("1.2.3", "v1.2.3", heading, here, "https://h/other/n"))
    assert "names no Repository" in str(objection("1.2.3", "v1.2.3", heading, None, here))
    assert objection("1.2.3", "v1.2.3", heading, here, "git@h:o/n.git") is None
    assert objection("1.2.3", "v1.2.3", heading, here, f"{here}\n") is None
