"""The state of an engine at one moment, for metrics. Counters start with the worker."""

from msgspec import Struct

from queen.core.job_type import JobType


class JobQueueStatus(Struct, frozen=True):
    """One kind of job.

    Attributes:
        queued: jobs that wait for a call.
        queued_bytes: their bytes.
        in_flight: calls under way.
        limit: the current limit of calls under way.
        cap: the highest limit of calls under way.
        rtt_ms: the time of a recent call, in milliseconds; ``None`` before the first.
        jobs: jobs that went into a call.
        calls: calls.
        batch_sizes: calls by number of jobs: the n-th counts calls with at least 2^(n-1) and fewer than 2^n jobs.
        refused: jobs that were refused because too many waited.
        failed: jobs that were answered with an error.
    """

    kind: JobType
    queued: int
    queued_bytes: int
    in_flight: int
    limit: int
    cap: int
    rtt_ms: float | None
    jobs: int
    calls: int
    batch_sizes: tuple[int, ...]
    refused: int
    failed: int


class SlotStatus(Struct, frozen=True):
    """Connections that kinds of jobs share: all of them, and the unused ones."""

    total: int
    free: int


class EngineStatus(Struct, frozen=True):
    """The state of an engine.

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

    job_queues: tuple[JobQueueStatus, ...]
    hot: SlotStatus
    cold: SlotStatus
    waiting: int
    waiting_max: int
    waiting_refused: int
    prefetched: int
    prefetched_in_vain: int
    wait_lists: int
    stopping: bool
