"""The workers that reported in the last minutes, for the status."""

from datetime import UTC, datetime, timedelta

from msgspec import Struct

from queen.core.administration import GroupBy, Period, QueueFilter, WorkerFilter
from queen.engine.context import Context

_RECENT = timedelta(minutes=2)
#: Maximum of workers, the last seen.
_WORKERS_MAX = 1000


class WorkerElement(Struct, rename="camel"):
    """A worker that reported in the last two minutes."""

    hostname: str
    worker_id: int
    avg_event_loop_lag_ms: float
    max_event_loop_lag_ms: float
    free_slots: int
    db_connections: int
    job_queue_size: int
    messages_processed: int


async def live_workers(context: Context, wanted: QueueFilter) -> list[WorkerElement]:
    """The live workers; ``messagesProcessed`` counts messages of these queues."""
    now, metrics = datetime.now(UTC), context.reads.statistics
    recent = Period(now - _RECENT, now)
    alive = WorkerFilter(names=(await metrics.find_workers(recent, WorkerFilter(), _WORKERS_MAX, 0)).names)
    rows = await metrics.workers(recent, 2, alive, GroupBy(bucket=False, worker=True))
    work = await metrics.queues(recent, 2, wanted, GroupBy(bucket=False, worker=True))
    done = {row.worker: row.push_messages + row.pop_messages + row.ack_success for row in work}
    return [
        WorkerElement(
            row.hostname or "", row.worker_id or 0, round(row.loop_lag_ms, 1), round(row.loop_lag_ms_max, 1),
            row.pool_idle, row.pool_size, row.queued, done.get(f"{row.hostname}:{row.worker_id}", 0),
        )
        for row in rows
    ]  # fmt: skip
