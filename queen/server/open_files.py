"""Open files: every connection is one, and systems allow few of them unless asked."""

import resource

from queen.config import Settings, share
from queen.core.limits import CONNECTIONS_BESIDE_POOLS, CONNECTIONS_MIN, FILES_BESIDE_WAITERS, FILES_OF_WORKER
from queen.server.errors import StartError


def ensure(settings: Settings) -> None:
    """Raises the limit of this process, which its children inherit, as far as it may.

    Raises:
        StartError: QUEEN_MAX_WAITERS or QUEEN_MAX_CONNECTIONS needs more than the system allows, or it allows hardly
            any connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.waiters_max + FILES_BESIDE_WAITERS
    if settings.waiters_max:
        _require(wanted, hard, f"QUEEN_MAX_WAITERS={settings.waiters_max}", "lower QUEEN_MAX_WAITERS")
    connections = settings.connections_max or CONNECTIONS_MIN
    advice = "lower QUEEN_MAX_CONNECTIONS" if settings.connections_max else "lower SIDECAR_POOL_SIZE and DB_POOL_SIZE"
    _require(connections + _own(settings), hard, f"A server with {connections} connections for clients", advice)
    target = max(wanted, _CEILING) if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


def _require(files: int, allowed: int, what: str, advice: str) -> None:
    if allowed != resource.RLIM_INFINITY and files > allowed:
        raise StartError(
            f"{what} needs {files} open files for each worker, and the system allows {allowed}: raise the limit "
            f"(ulimit -Hn, systemd's LimitNOFILE), or {advice}"
        )


def connections(settings: Settings) -> int:
    """Connections of clients that one worker may hold: what it opens itself must not fail because of them."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = (_CEILING if soft == resource.RLIM_INFINITY else soft) - _own(settings)
    return max(1, min(settings.connections_max or room, room))


def _own(settings: Settings) -> int:
    """Files that a worker opens for itself."""
    pools = share(settings.hot_connections, settings.workers) + share(settings.cold_connections, settings.workers)
    return pools + CONNECTIONS_BESIDE_POOLS + len(settings.http_peers) + FILES_OF_WORKER


#: Where the system sets no bound.
_CEILING = 65_536
