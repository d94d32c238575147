"""How the engine batches the requests of simple-mq, and how they wait."""

from collections.abc import Mapping

from queen.core.job_type import JobType
from queen.engine.job_specs import JobSpec, Waiting
from queen.engine.metadata_cache import MetadataCache
from queen.engine.ports import Lock, LockKind
from queen.simple_mq import handlers, sqs_handlers, sqs_spool
from queen.simple_mq.requests import Dequeued, Enqueue
from queen.simple_mq.sqs_requests import SqsReceived


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
    JobType.SQS_SEND: JobSpec(
        sqs_spool.send_or_spool, size=lambda request: request.size, items=lambda request: len(request.messages)
    ),
    JobType.SQS_RECEIVE: JobSpec(
        sqs_handlers.receive,
        items=lambda request: request.limit,
        waiting=Waiting(SqsReceived(), sqs_handlers.give_back, sqs_handlers.count_received),
    ),
    JobType.SQS_DELETE: JobSpec(sqs_handlers.delete, items=lambda request: len(request.messages)),
    JobType.SQS_CHANGE_VISIBILITY: JobSpec(sqs_handlers.change_visibility, items=lambda request: len(request.messages)),
}
