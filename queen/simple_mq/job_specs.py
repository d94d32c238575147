"""How the engine batches the requests of simple-mq, and how they wait."""

from collections.abc import Mapping

from queen.core.job_type import JobType
from queen.engine.job_specs import JobSpec, Waiting
from queen.engine.metadata_cache import MetadataCache
from queen.engine.ports import Lock, LockKind
from queen.simple_mq import handlers
from queen.simple_mq.requests import Dequeued, Enqueue


def _size_of_enqueue(request: Enqueue) -> int:
    return request.size


def _locks_of_enqueue(_cache: MetadataCache, enqueue: Enqueue) -> frozenset[Lock]:
    """Its queue."""
    return frozenset([Lock(LockKind.ENQUEUING, name=str(enqueue.queue))])


SIMPLE_MQ_SPECS: Mapping[JobType, JobSpec] = {
    JobType.ENQUEUE: JobSpec(
        handlers.enqueue,
        size=_size_of_enqueue,
        items=lambda request: len(request.messages),
        locks=_locks_of_enqueue,
    ),
    JobType.DEQUEUE: JobSpec(
        handlers.dequeue,
        items=lambda request: request.limit,
        waiting=Waiting(Dequeued(), handlers.give_back, handlers.count_dequeued),
    ),
    JobType.ACKNOWLEDGE: JobSpec(handlers.acknowledge, items=lambda request: len(request.message_ids)),
    JobType.EXTEND_VISIBILITY: JobSpec(handlers.extend_visibility),
}
