"""The limit of open files: each connection is one, and default limits are low."""

import resource

from queen.config import Settings
from queen.core.limits import CONNECTIONS_MIN, FILES_OF_WORKER
from queen.system.errors import StartError


def ensure(settings: Settings) -> None:
    """Raises the limit of this process and its children as far as permitted.

    Raises:
        StartError: QUEEN_MAX_CONNECTIONS needs more than the system allows, or it allows almost no connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = settings.requests.connections_max or CONNECTIONS_MIN
    advice = (
        "lower QUEEN_MAX_CONNECTIONS"
        if settings.requests.connections_max
        else "lower SIDECAR_POOL_SIZE and DB_POOL_SIZE"
    )
    _require(connections + _own(settings), hard, f"A server with {connections} connections for clients", advice)
    target = max(connections + _own(settings), _CEILING) if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


def _require(files: int, allowed: int, what: str, advice: str) -> None:
    if allowed != resource.RLIM_INFINITY and files > allowed:
        raise StartError(
            f"{what} needs {files} open files per worker, but the system allows {allowed}: raise the limit "
            f"(ulimit -Hn, systemd's LimitNOFILE), or {advice}"
        )


def connections(settings: Settings) -> int:
    """Maximum of client connections of a worker; the rest of its limit is for files that it opens itself."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = (_CEILING if soft == resource.RLIM_INFINITY else soft) - _own(settings)
    return max(1, min(settings.requests.connections_max or room, room))


def _own(settings: Settings) -> int:
    """Files that a worker opens for itself."""
    return settings.pool_sizes.of_worker + len(settings.peers.http) + FILES_OF_WORKER


#: Used if the system has no limit.
_CEILING = 65_536
