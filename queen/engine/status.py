"""The figures of an engine at one moment, for metrics. Counters begin with the worker."""

from msgspec import Struct

from queen.core.operations import JobType


class LaneStatus(Struct, frozen=True):
    """One kind of job.

    Attributes:
        queued: jobs that wait for a call.
        queued_bytes: their bytes.
        in_flight: calls under way.
        limit: calls that may be under way now.
        cap: calls that may ever be under way at the same time.
        rtt_ms: the time of a recent call, in milliseconds; ``None`` before the first.
        jobs: jobs that went into a call.
        calls: calls.
        batch_sizes: calls by the jobs in them: the n-th counts those with fewer than 2 to the n, and no fewer than half
            of that.
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
    """Connections that kinds of jobs share: all of them, and those that nobody uses."""

    total: int
    free: int


class EngineStatus(Struct, frozen=True):
    """All of it.

    Attributes:
        lanes: one element a kind of job.
        hot: connections for messages.
        cold: connections for everything else.
        waiting: parked long polls.
        waiting_max: the most that there may be.
        waiting_refused: long polls that were refused because of that.
        places: different (queue, group, partition) and (namespace, task, group) that they wait at.
        stopping: the worker ends: long polls are answered empty.
    """

    lanes: tuple[LaneStatus, ...]
    hot: SlotStatus
    cold: SlotStatus
    waiting: int
    waiting_max: int
    waiting_refused: int
    places: int
    stopping: bool
