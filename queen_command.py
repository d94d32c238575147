"""The command ``queen``. Before it imports the package ``queen``, it checks that the package is the server's.

The published client, ``queen-mq``, installs a package of the same name. The one installed last overwrites
files of the other, and uninstalling one deletes files of both. This module is outside the package and survives that.
"""

import csv
import signal
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

_MARK = '__distribution__ = "queen-for-python"'
_EXIT_CODE, _INTERRUPTED = 2, 130


def problem() -> str | None:
    """The problem of the installed package, or ``None``; does not import it."""
    client = _find("queen-mq")
    if client:
        return f"the client queen-mq {client.version} is installed in the same environment"
    if not _is_ours():
        return "the package queen in this environment is not the server's, or parts of it are missing"
    server = _find("queen-for-python")
    if server and (damaged := _damaged(server)):
        return f"files of the server were replaced or deleted, such as {damaged}"
    return None


def _find(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _is_ours() -> bool:
    spec = find_spec("queen")
    return bool(spec and spec.origin and _MARK in Path(spec.origin).read_text(encoding="utf-8"))


def _damaged(server: Distribution) -> str | None:
    """The first file of the package that is missing or differs in size from the installed one."""
    # Distribution.files would omit missing files.
    for name, _, size in csv.reader((server.read_text("RECORD") or "").splitlines()):
        file = Path(str(server.locate_file(name)))
        if name.startswith("queen/") and size and not (file.is_file() and file.stat().st_size == int(size)):
            return name
    return None


def main() -> None:
    """Runs the command line. Ctrl-C ends it with the same code at any moment, also while it is being imported."""
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _run() -> None:
    """Runs it, or prints one line with the reason why it cannot."""
    if found := problem():
        sys.stderr.write(
            f"error: {found}. Server and client share the import name queen and need an environment each. Here: "
            f"{sys.executable} -m pip uninstall -y queen-mq; "
            f"{sys.executable} -m pip install --force-reinstall queen-for-python. The client goes into another.\n"
        )
        sys.exit(_EXIT_CODE)
    from queen.cli.ending import end_at_once  # noqa: PLC0415 - only now is it known to be ours

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
    from queen.cli.main import app  # noqa: PLC0415 - as above

    app(prog_name="queen")


if __name__ == "__main__":
    main()
