"""Open files: every connection is one, and systems allow few of them unless asked."""

import resource

from queen.config import Settings
from queen.core.limits import FILES_BESIDE_WAITERS
from queen.server.errors import StartError


def ensure(settings: Settings) -> None:
    """Raises the limit of this process, which its children inherit, as far as it may.

    Raises:
        StartError: QUEEN_MAX_WAITERS needs more than the system allows.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.waiters_max + FILES_BESIDE_WAITERS
    if settings.waiters_max and hard != resource.RLIM_INFINITY and wanted > hard:
        raise StartError(
            f"QUEEN_MAX_WAITERS={settings.waiters_max} needs {wanted} open files for each worker, and the system "
            f"allows {hard}: raise the limit (ulimit -Hn, systemd's LimitNOFILE), or lower QUEEN_MAX_WAITERS"
        )
    target = max(wanted, _CEILING) if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


def connections(settings: Settings) -> int:
    """Connections that one worker may hold, for worker classes that ask in advance."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return settings.waiters_max + FILES_BESIDE_WAITERS if settings.waiters_max else min(soft, _CEILING)


#: Where the system sets no bound.
_CEILING = 65_536
