"""The activity of all queues and workers in each bucket of the status."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from queen.core.administration import QueueMetricsRow, WorkerMetricsRow
from queen.http.answers import text
from queen.operations.buckets import per_second, side_by_side


class ThroughputPoint(Struct, rename="camel"):
    """Activity in one bucket; ``lag`` is the age of messages at delivery."""

    timestamp: str
    ingested: int
    processed: int
    pop_messages: int
    ingested_per_second: float
    processed_per_second: float
    pop_per_second: float
    avg_lag_ms: float
    max_lag_ms: float
    avg_event_loop_lag_ms: float
    max_event_loop_lag_ms: float
    min_free_slots: int
    db_errors: int
    ack_failed: int
    dlq_count: int
    queen_cpu_user_pct: float
    queen_cpu_sys_pct: float
    queen_rss_mb: float
    db_pool_active: int
    db_pool_idle: int
    db_pool_size: int


def _point(at: datetime, work: QueueMetricsRow, workers: WorkerMetricsRow, minutes: int) -> ThroughputPoint:
    return ThroughputPoint(
        timestamp=text(at),
        ingested=work.push_messages,
        processed=work.ack_success,
        pop_messages=work.pop_messages,
        ingested_per_second=per_second(work.push_messages, minutes),
        processed_per_second=per_second(work.ack_success, minutes),
        pop_per_second=per_second(work.pop_messages, minutes),
        avg_lag_ms=round(work.lag_ms, 1),
        max_lag_ms=round(work.lag_ms_max, 1),
        avg_event_loop_lag_ms=round(workers.loop_lag_ms, 1),
        max_event_loop_lag_ms=round(workers.loop_lag_ms_max, 1),
        min_free_slots=workers.pool_idle,
        db_errors=workers.db_errors,
        ack_failed=work.ack_failed,
        dlq_count=work.dead_letters,
        queen_cpu_user_pct=round(workers.cpu_user, 1),
        queen_cpu_sys_pct=round(workers.cpu_system, 1),
        queen_rss_mb=round(workers.rss_bytes / 2**20, 1),
        db_pool_active=workers.pool_size - workers.pool_idle,
        db_pool_idle=workers.pool_idle,
        db_pool_size=workers.pool_size,
    )


def throughput(
    series: Sequence[QueueMetricsRow], machines: Sequence[WorkerMetricsRow], minutes: int
) -> list[ThroughputPoint]:
    """One point per bucket with activity, newest first."""
    return [_point(*each, minutes) for each in side_by_side(series, machines)]
