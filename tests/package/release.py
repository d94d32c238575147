"""What a release publishes: ``tox -e release``."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def project() -> dict[str, Any]:
    """What pyproject.toml says of the project."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def version() -> str:
    """The version of this tree."""
    return str(project()["version"])


def objection(wanted: str, tags: str, changelog: str, address: str | None, remote: str) -> str | None:
    """Why this version cannot be released from a commit with these tags, of a repository with this address."""
    if f"v{wanted}" not in tags.split():
        return f"this commit has no tag v{wanted}: git tag --sign v{wanted}"
    if not any(line.startswith(f"## {wanted} ") for line in changelog.splitlines()):
        return f"CHANGELOG.md has no heading `## {wanted} (<date>)`"
    if address is None:
        return f"pyproject.toml names no Repository in [project.urls]: write down what is public, {remote.strip()}"
    if remote.strip().removesuffix(".git").replace(":", "/").split("/")[-2:] != address.split("/")[-2:]:
        return f"the repository in pyproject.toml, {address}, is not its remote: correct [project.urls]"
    return None


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def sbom(python: str | Path, file: Path) -> None:
    """Writes the bill of materials of an environment in which the wheel is installed."""
    command = ["environment", "--output-reproducible", "--of", "JSON", "-o", str(file), str(python)]
    subprocess.run([sys.executable, "-m", "cyclonedx_py", *command], check=True)


def main(folder: Path) -> str | None:
    """Builds everything into a folder; the reason if it cannot."""
    tags, remote = _git("tag", "--points-at", "HEAD"), _git("remote", "get-url", "origin")
    changelog = (ROOT / "CHANGELOG.md").read_text()
    if problem := objection(version(), tags, changelog, project().get("urls", {}).get("Repository"), remote):
        return problem
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], check=True)
    [wheel] = folder.glob(f"*-{version()}-*.whl")
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    subprocess.run([str(environment / "bin" / "pip"), "install", "-q", str(wheel)], check=True)
    sbom(environment, folder / f"queen-for-python-{version()}.cdx.json")
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
