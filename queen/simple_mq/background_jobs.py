"""The background jobs of simple-mq and SQS: clean-up, dead letters of queues without polls, and move tasks."""

import time
from collections.abc import Sequence
from functools import partial

from queen.config import Settings
from queen.engine.context import Context
from queen.jobs.jobs import Chore
from queen.postgres.maintenance import MaintenanceStore
from queen.simple_mq import sqs_administration
from queen.simple_mq.handlers import announce_routed
from queen.simple_mq.interface import SimpleMq, Sqs
from queen.simple_mq.sqs_spool import Calm

#: Interval of clean-up.
_TIDY_S = 15.0
#: Interval of steps of move tasks.
_MOVES_S = 0.5


def background_jobs(context: Context, maintenance: MaintenanceStore, settings: Settings) -> Sequence[Chore]:
    """All that the settings ask for."""
    queues, sqs = SimpleMq.of(context).administration, Sqs.of(context).administration
    calm = Calm(context.failover)

    async def sweep() -> None:
        announce_routed(context, await queues.sweep())
        await sqs_administration.sweep(context)

    async def tidy() -> None:
        await queues.tidy(maintenance.not_after)
        await sqs.tidy(maintenance.not_after, forgets=calm.lasts(time.monotonic()))

    chores = [
        Chore("clean-up of simple-mq", _TIDY_S, tidy),
        Chore("move tasks of SQS", _MOVES_S, partial(sqs_administration.move_on, context)),
    ]
    if settings.simple_mq.sweep_interval_ms:
        chores.append(Chore("dead letters of simple-mq", settings.simple_mq.sweep_interval_ms / 1000, sweep))
    return chores
