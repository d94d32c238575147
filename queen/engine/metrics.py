"""The metrics of an engine at one moment. Counters start with the worker."""

from msgspec import Struct

from queen.core.job_type import JobType


class JobQueueMetrics(Struct, frozen=True):
    """Metrics of one kind of job.

    Attributes:
        queued: jobs that wait for a call.
        queued_bytes: their bytes.
        in_flight: calls under way.
        limit: the current limit of calls under way.
        jobs: jobs that went into a call.
        calls: calls.
        refused: jobs that were refused because too many waited.
        failed: jobs that were answered with an error.
    """

    kind: JobType
    queued: int
    queued_bytes: int
    in_flight: int
    limit: int
    jobs: int
    calls: int
    refused: int
    failed: int


class SlotMetrics(Struct, frozen=True):
    """Connections that kinds of jobs share: all of them, and the unused ones."""

    total: int
    free: int


class EngineMetrics(Struct, frozen=True):
    """Metrics of an engine.

    Attributes:
        job_queues: one element per kind of job.
        hot: connections for messages.
        cold: connections for everything else.
        waiting: parked long polls.
        waiting_max: the maximum of long polls.
        waiting_refused: long polls that were refused because of it.
        prefetched, prefetched_in_vain: prefetched batches that pops took, and those that were released.
        wait_lists: different (queue, group, partition) and (namespace, task, group) that long polls wait for.
        stopping: whether the worker ends; then long polls are answered without messages.
    """

    job_queues: tuple[JobQueueMetrics, ...]
    hot: SlotMetrics
    cold: SlotMetrics
    waiting: int
    waiting_max: int
    waiting_refused: int
    prefetched: int
    prefetched_in_vain: int
    wait_lists: int
    stopping: bool
