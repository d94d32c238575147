"""``queen meinheld build``: builds and installs meinheld 1.0.2 against the installed greenlet (docs/meinheld.md)."""

import subprocess
import sys
import tarfile
import tempfile
from importlib.util import find_spec
from pathlib import Path

import typer

from queen.cli.output import out
from queen.system.errors import StartError

RELEASE = "meinheld==1.0.2"

#: What it is built with.
_NEEDED = ("greenlet", "pip", "setuptools", "wheel")

meinheld = typer.Typer(help="The experimental worker class meinheld.", no_args_is_help=True)


@meinheld.callback()
def _group() -> None:
    """The experimental worker class meinheld."""


@meinheld.command()
def build() -> None:
    """Build meinheld for this Python, and install it beside the server."""
    _build()
    out.print("meinheld is installed: queen serve --worker-class meinheld")


def _build() -> None:
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise StartError(f"To build meinheld, first install {', '.join(missing)}: pip install {' '.join(missing)}")
    with tempfile.TemporaryDirectory() as folder:
        _pip("download", "--no-binary", ":all:", "--no-deps", "--no-build-isolation", "-d", folder, RELEASE)
        [archive] = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as source:
            source.extractall(folder, filter="data")
        source_folder = archive.with_name(archive.name.removesuffix(".tar.gz"))
        (source_folder / "meinheld" / "server" / "greenlet.h").write_text(_greenlet_header().read_text())
        _pip("install", "--no-deps", "--no-build-isolation", str(source_folder))


def _greenlet_header() -> Path:
    """The header that describes the installed greenlet."""
    spec = find_spec("greenlet")
    assert spec is not None and spec.origin is not None  # noqa: S101, PT018 - looked for above
    return Path(spec.origin).with_name("greenlet.h")


def _pip(*arguments: str) -> None:
    """Runs pip of this environment.

    Raises:
        StartError: it fails; it has said why.
    """
    done = subprocess.run([sys.executable, "-m", "pip", *arguments], check=False)  # noqa: S603 - fixed arguments
    if done.returncode:
        raise StartError(f"pip {arguments[0]} failed, see above. meinheld needs a C compiler and Python 3.11's headers")
