"""The background jobs of simple-mq: clean-up, and dead letters of queues without polls."""

from collections.abc import Sequence

from queen.config import Settings
from queen.engine.context import Context
from queen.jobs.jobs import Chore
from queen.postgres.maintenance import MaintenanceStore
from queen.simple_mq.handlers import announce_routed
from queen.simple_mq.interface import SimpleMq

#: Interval of clean-up.
_TIDY_S = 15.0


def background_jobs(context: Context, maintenance: MaintenanceStore, settings: Settings) -> Sequence[Chore]:
    """All that the settings ask for."""
    queues = SimpleMq.of(context).administration

    async def sweep() -> None:
        announce_routed(context, await queues.sweep())

    async def tidy() -> None:
        await queues.tidy(maintenance.not_after)

    chores = [Chore("clean-up of simple-mq", _TIDY_S, tidy)]
    if settings.simple_mq.sweep_interval_ms:
        chores.append(Chore("dead letters of simple-mq", settings.simple_mq.sweep_interval_ms / 1000, sweep))
    return chores
