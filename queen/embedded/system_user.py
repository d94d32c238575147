"""The user that runs the embedded PostgreSQL, which refuses to run as root."""

import logging
import os
import pwd
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from queen.system.errors import StartError

log = logging.getLogger(__name__)

_NAME = "queen-postgres"
#: The exit code of useradd if the user exists, because another process was faster.
_EXISTS_ALREADY = 9

_READ = stat.S_IRGRP | stat.S_IROTH
_EXECUTE = stat.S_IXGRP | stat.S_IXOTH


@dataclass(frozen=True, slots=True)
class Account:
    """A user of the system, other than root."""

    uid: int
    gid: int

    def own(self, path: Path) -> None:
        """Makes the account the owner of a file or folder."""
        os.chown(path, self.uid, self.gid)

    def may_traverse(self, status: os.stat_result) -> bool:
        """Whether the account has search permission on a folder."""
        if status.st_uid == self.uid:
            return bool(status.st_mode & stat.S_IXUSR)
        if status.st_gid == self.gid:
            return bool(status.st_mode & stat.S_IXGRP)
        return bool(status.st_mode & stat.S_IXOTH)


def account_for(cluster: Path) -> Account | None:
    """The account to run PostgreSQL as: the owner of the cluster, or a dedicated user; None if we are not root.

    Raises:
        StartError: there is no such user, and it cannot be created.
    """
    if os.geteuid() != 0:
        return None
    owner = cluster.stat() if cluster.exists() else None
    if owner and owner.st_uid != 0:
        return Account(owner.st_uid, owner.st_gid)
    entry = _entry()
    return Account(entry.pw_uid, entry.pw_gid)


def _entry() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(_NAME)
    except KeyError:
        _make_user()
        return pwd.getpwnam(_NAME)


def _make_user() -> None:
    log.info("creating the system user %s, because PostgreSQL refuses to run as root", _NAME)
    command = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", _NAME]
    try:
        result = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - constant
        problem = "" if result.returncode in {0, _EXISTS_ALREADY} else result.stderr.strip()
    except OSError as error:
        problem = str(error)
    if problem:
        raise StartError(
            f"PostgreSQL refuses to run as root, and the user {_NAME!r} cannot be created ({problem}): run "
            "queen as an ordinary user, or use another PostgreSQL with --dsn"
        )


def let_reach(account: Account, path: Path) -> None:
    """Adds search permission (not read permission) for the account to the folders above a path, where it is missing."""
    for folder in path.parents:
        status = folder.stat()
        if not account.may_traverse(status):
            log.info("giving other users search permission on %s, because PostgreSQL runs as an ordinary user", folder)
            folder.chmod(status.st_mode | _EXECUTE)


def let_use(account: Account, programs: Path) -> None:
    """Lets the account run the programs in a folder, even if they were unpacked with a strict umask."""
    let_reach(account, programs / "postgres")
    if (programs / "postgres").stat().st_mode & stat.S_IXOTH:
        return
    for path in programs.parent.rglob("*"):
        mode = path.stat().st_mode
        path.chmod(mode | _READ | (_EXECUTE if mode & stat.S_IXUSR else 0))
