"""The background jobs of simple-mq: clean-up, and dead letters of queues without polls."""

from collections.abc import Sequence

from queen.engine.context import Context
from queen.jobs.jobs import Chore
from queen.postgres.maintenance import MaintenanceStore
from queen.simple_mq.handlers import announce_routed
from queen.simple_mq.interface import SimpleMq

#: Interval of clean-up.
_TIDY_S = 15.0


def background_jobs(context: Context, maintenance: MaintenanceStore, sweep_interval_ms: int) -> Sequence[Chore]:
    """All of them; ``sweep_interval_ms``: 0 to move no dead letters."""
    queues = SimpleMq.of(context).administration

    async def sweep() -> None:
        announce_routed(context, await queues.sweep())

    async def tidy() -> None:
        await queues.tidy(maintenance.not_after)

    chores = [Chore("clean-up of simple-mq", _TIDY_S, tidy)]
    if sweep_interval_ms:
        chores.append(Chore("dead letters of simple-mq", sweep_interval_ms / 1000, sweep))
    return chores
