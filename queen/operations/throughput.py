"""The activity of all queues and workers in each bucket of the status."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from queen.core.administration import QueueMetricsRow, WorkerMetricsRow
from queen.http.answers import text
from queen.operations.buckets import per_second


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


def _point(
    at: datetime, minutes: int, work: QueueMetricsRow | None, machine: WorkerMetricsRow | None
) -> ThroughputPoint:
    pushed, done, popped = (work.push_messages, work.ack_success, work.pop_messages) if work else (0, 0, 0)
    size, idle = (machine.pool_size, machine.pool_idle) if machine else (0, 0)
    return ThroughputPoint(
        timestamp=text(at),
        ingested=pushed,
        processed=done,
        pop_messages=popped,
        ingested_per_second=per_second(pushed, minutes),
        processed_per_second=per_second(done, minutes),
        pop_per_second=per_second(popped, minutes),
        avg_lag_ms=round(work.lag_ms, 1) if work else 0,
        max_lag_ms=round(work.lag_ms_max, 1) if work else 0,
        avg_event_loop_lag_ms=round(machine.loop_lag_ms, 1) if machine else 0,
        max_event_loop_lag_ms=round(machine.loop_lag_ms_max, 1) if machine else 0,
        min_free_slots=idle,
        db_errors=machine.db_errors if machine else 0,
        ack_failed=work.ack_failed if work else 0,
        dlq_count=work.dead_letters if work else 0,
        queen_cpu_user_pct=round(machine.cpu_user, 1) if machine else 0,
        queen_cpu_sys_pct=round(machine.cpu_system, 1) if machine else 0,
        queen_rss_mb=round(machine.rss_bytes / 2**20, 1) if machine else 0,
        db_pool_active=size - idle,
        db_pool_idle=idle,
        db_pool_size=size,
    )


def throughput(
    series: Sequence[QueueMetricsRow], machines: Sequence[WorkerMetricsRow], minutes: int
) -> list[ThroughputPoint]:
    """One point per bucket with activity, newest first."""
    work = {row.bucket: row for row in series if row.bucket is not None}
    machine = {row.bucket: row for row in machines if row.bucket is not None}
    buckets = sorted(work.keys() | machine.keys(), reverse=True)
    return [_point(at, minutes, work.get(at), machine.get(at)) for at in buckets]
