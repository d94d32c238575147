"""Builds and installs meinheld 1.0.2 against the greenlet that is installed here (docs/meinheld.md)."""

import subprocess
import sys
import tarfile
import tempfile
from importlib.util import find_spec
from pathlib import Path

RELEASE = "meinheld==1.0.2"


def pip(*arguments: str) -> None:
    """Runs pip of this environment."""
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True)


def greenlet_header() -> Path:
    """The header that describes the installed greenlet."""
    spec = find_spec("greenlet")
    if spec is None or spec.origin is None:
        raise SystemExit("Install greenlet first: pip install greenlet")
    return Path(spec.origin).with_name("greenlet.h")


def main() -> None:
    """Downloads the source, gives it the header, installs it."""
    with tempfile.TemporaryDirectory() as folder:
        pip("download", "--no-binary", ":all:", "--no-deps", "--no-build-isolation", "-d", folder, RELEASE)
        [archive] = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as source:
            source.extractall(folder, filter="data")
        source_folder = archive.with_name(archive.name.removesuffix(".tar.gz"))
        (source_folder / "meinheld" / "server" / "greenlet.h").write_text(greenlet_header().read_text())
        pip("install", "--no-deps", "--no-build-isolation", str(source_folder))


if __name__ == "__main__":
    main()
