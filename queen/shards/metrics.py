"""The metrics of the engines of all shards, as one."""

from collections.abc import Sequence
from itertools import chain, groupby

from msgspec import structs

from queen.core.metrics import WorkerState
from queen.engine.metrics import EngineMetrics, JobQueueMetrics, SlotMetrics

_SUMS = ("waiting", "waiting_refused", "prefetched", "prefetched_in_vain", "wait_lists")


def combined(engines: Sequence[EngineMetrics]) -> EngineMetrics:
    """The sums; a worker stops if one of its engines does."""
    job_queues = sorted([each for engine in engines for each in engine.job_queues], key=lambda each: each.kind.value)
    return structs.replace(
        engines[0],
        job_queues=tuple([_sum(list(same)) for _, same in groupby(job_queues, lambda each: each.kind)]),
        hot=_slots([engine.hot for engine in engines]),
        cold=_slots([engine.cold for engine in engines]),
        waiting_max=max([engine.waiting_max for engine in engines]),
        stopping=any([engine.stopping for engine in engines]),
        **{name: sum([getattr(engine, name) for engine in engines]) for name in _SUMS},
    )


def _slots(slots: Sequence[SlotMetrics]) -> SlotMetrics:
    return SlotMetrics(sum(each.total for each in slots), sum(each.free for each in slots))


def _sum(same: Sequence[JobQueueMetrics]) -> JobQueueMetrics:
    first, *others = same
    names = [name for name in JobQueueMetrics.__struct_fields__ if name != "kind"]
    return structs.replace(first, **{name: sum(getattr(each, name) for each in (first, *others)) for name in names})


def state_of_all(states: Sequence[WorkerState]) -> WorkerState:
    """The state of a worker, from those of its engines. A long poll may wait in all of them, and counts once."""

    def by_queue() -> dict[str, int]:
        waiting: dict[str, int] = {}
        for queue, number in chain.from_iterable([state.by_queue().items() for state in states]):
            waiting[queue] = max(waiting.get(queue, 0), number)
        return waiting

    return WorkerState(
        sum(state.pool_size for state in states), sum(state.pool_idle for state in states),
        sum(state.queued for state in states), max(state.waiting for state in states), by_queue,
        states[0].connected,
    )  # fmt: skip
