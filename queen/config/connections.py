"""How many connections to PostgreSQL a server opens: of each worker, and in all."""

from msgspec import Struct

from queen.config.areas import Database
from queen.config.presets import split
from queen.core.errors import SettingError
from queen.core.limits import BACKGROUND_CONNECTIONS, REPLAY_LANES


class PoolSizes(Struct, frozen=True):
    """The most connections that each worker opens.

    Attributes:
        workers: number of workers.
        messages: for messages.
        rest: for everything else.
        replay: while it stores what is in the spool.
    """

    workers: int
    messages: int
    rest: int
    replay: int = REPLAY_LANES

    @property
    def of_worker(self) -> int:
        """All of one worker."""
        return self.messages + self.rest + self.replay + BACKGROUND_CONNECTIONS

    @property
    def total(self) -> int:
        """All of the server."""
        return self.workers * self.of_worker

    def __str__(self) -> str:
        background = self.replay + BACKGROUND_CONNECTIONS
        return (
            f"up to {self.total}: per worker {self.messages} for messages, {self.rest} for everything else, "
            f"{background} in the background"
        )

    def excess(self, allowed: int) -> str | None:
        """A warning, if PostgreSQL allows fewer connections than that."""
        if self.total <= allowed:
            return None
        return (
            f"This server may open {self.total} connections to PostgreSQL, which allows {allowed} to its user: "
            f"requests beyond them fail or wait. Set QUEEN_CONNECTIONS={allowed}, or less beside other servers, lower "
            "SIDECAR_POOL_SIZE, DB_POOL_SIZE or NUM_WORKERS, or raise max_connections"
        )


def pool_sizes(database: Database, workers: int) -> PoolSizes:
    """Divides the connections of the settings among the workers; each has at least one of a kind.

    Raises:
        SettingError: QUEEN_CONNECTIONS is too small.
    """
    total = database.connections
    if not total:
        return PoolSizes(
            workers, max(1, database.hot_connections // workers), max(1, database.cold_connections // workers)
        )
    # Those of a small number have more to do than to replay the spool. With a second one, the outbox and timers go on
    # while a try of what is held back takes long.
    left = total // workers - BACKGROUND_CONNECTIONS - 1
    if left < _LEAST:
        least = workers * (BACKGROUND_CONNECTIONS + 1 + _LEAST)
        raise SettingError(
            f"QUEEN_CONNECTIONS={total} is too few for NUM_WORKERS={workers}: set at least {least}, or fewer workers"
        )
    replay = min(left - _LEAST, 1) + 1
    return PoolSizes(workers, *split(left + 1 - replay), replay=replay)


#: One connection for messages, one for everything else.
_LEAST = 2
