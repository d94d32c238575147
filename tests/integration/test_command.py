"""The command ``queen`` beside the client ``queen-mq``, whose package has the same name."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE_S, ROOT, clean_environment, run


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages as pip leaves it, with ours in it."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "queen", tmp_path / "queen", ignore=ignored)
    shutil.copy(ROOT / "queen_command.py", tmp_path)
    install(tmp_path, "queen-for-python", "0.1.0", sorted((tmp_path / "queen").rglob("*.py")))
    return tmp_path


def install(site: Path, name: str, version: str, files: list[Path]) -> None:
    """Writes what pip notes about a distribution."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "RECORD").write_text(
        "".join(f"{file.relative_to(site)},sha256=x,{file.stat().st_size}\n" for file in files)
    )


def install_client(site: Path) -> list[Path]:
    """Overwrites files of ours, as the client does."""
    files = [site / "queen" / "__init__.py", site / "queen" / "client.py", site / "queen" / "http" / "__init__.py"]
    for file in files:
        file.write_text("from .client import Queen\nraise SystemExit('the client was imported')\n")
    install(site, "queen-mq", "2.6.0", files)
    return files


def command(site: Path, *python_options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *python_options, "-m", "queen_command", "--version"],
        cwd=site,
        env=clean_environment(PYTHONPATH=str(site)),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def refusal(site: Path) -> str:
    """The one line with which the command refuses to run; it takes nothing but the standard library."""
    result = command(site, "-S")
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert "pip uninstall -y queen-mq" in line
    assert "pip install --force-reinstall queen-for-python" in line
    return line


def test_command_runs_when_the_package_is_ours(site: Path) -> None:
    result = command(site)
    assert (result.returncode, result.stdout) == (0, "queen-for-python 0.1.0\n")


def test_client_installed_over_ours_is_noticed(site: Path) -> None:
    install_client(site)
    assert "the client queen-mq 2.6.0 is installed in the same environment" in refusal(site)


def test_client_installed_beside_without_metadata_is_noticed(site: Path) -> None:
    install_client(site)
    shutil.rmtree(site / "queen_mq-2.6.0.dist-info")
    assert "the package queen in this environment is not the server's" in refusal(site)


def test_client_uninstalled_again_took_files_of_ours_with_it(site: Path) -> None:
    for file in install_client(site):
        file.unlink()
    shutil.rmtree(site / "queen_mq-2.6.0.dist-info")
    assert "or parts of it are missing" in refusal(site)


def test_ours_installed_over_the_client_is_noticed(site: Path) -> None:
    ours = (site / "queen" / "__init__.py").read_text()
    install_client(site)
    (site / "queen" / "__init__.py").write_text(ours)
    assert "the client queen-mq 2.6.0 is installed" in refusal(site)


@pytest.mark.parametrize("name", ["http/__init__.py", "cli/main.py"])
def test_file_that_is_missing_is_named(site: Path, name: str) -> None:
    (site / "queen" / name).unlink()
    assert f"files of the server were replaced or deleted, such as queen/{name}" in refusal(site)


def test_file_that_was_replaced_is_named(site: Path) -> None:
    (site / "queen" / "http" / "__init__.py").write_text("")
    assert "such as queen/http/__init__.py" in refusal(site)


def test_unknown_command_is_a_usage_error() -> None:
    result = run("fly")
    assert result.returncode == 2
    assert "fly" in result.stderr


def test_help_names_the_commands() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert {"serve", "init"} <= set(result.stdout.split())
