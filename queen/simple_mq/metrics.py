"""The golden signals of simple-mq: latency is measured here, the others are read from the database.

Names are those of the original, with underscores in place of dots.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from queen.engine.context import Context
from queen.metrics.http import BUCKETS
from queen.metrics.registry import REGISTRY
from queen.simple_mq.interface import SimpleMq
from queen.simple_mq.requests import NO_QUEUE, QueueStatistics, Statistics

OPERATION_SECONDS = Histogram(
    "simplemq_operation_duration_seconds",
    "Duration from the arrival of a request to its commit: enqueue to durable, poll to delivered, ack to deleted.",
    ("operation",),
    buckets=BUCKETS,
    registry=REGISTRY,
)

#: Counters by operation: name without _total, and meaning.
_COUNTERS: Mapping[str, tuple[str, str]] = {
    "enqueue": ("simplemq_enqueue", "Messages stored, and enqueues refused."),
    "dequeue": ("simplemq_dequeue", "Messages delivered, and polls that returned none."),
    "ack": ("simplemq_ack", "Messages acknowledged, and acks refused."),
    "requeue": ("simplemq_requeue", "Messages requeued, by destination, and requeues refused."),
    "delete_queue": ("simplemq_delete_queue", "Deleted queues; without queue_id, because the queue no longer exists."),
    "dlq_moved": ("simplemq_dlq_moved", "Messages moved to the dead-letter queue, by source queue."),
    "dlq_failed": ("simplemq_dlq_failed", "Messages for which the dead-letter queue had no room, each counted once."),
}
#: All metrics by the original's names.
METER_NAMES = (
    "simplemq.enqueue.total", "simplemq.dequeue.total", "simplemq.ack.total", "simplemq.requeue.total",
    "simplemq.delete_queue.total", "simplemq.dlq.moved_total", "simplemq.dlq.failed_total", "simplemq.queue.depth",
    "simplemq.queue.inflight_count", "simplemq.queue.oldest_waiting_message_age_seconds", "simplemq.queues",
    "simplemq.queues_without_series", "simplemq.operation.duration", "http.server.requests",
)  # fmt: skip


async def statistics_of_queues(context: Context, queues_max: int) -> Iterable[Metric]:
    """The metrics of at most so many queues, from the database."""

    async def of_database(each: Context) -> Statistics:
        simple_mq = SimpleMq.of(each)
        await simple_mq.outcomes.flush()
        return await simple_mq.administration.statistics(queues_max)

    return families(_together(await context.everywhere(of_database), queues_max))


def _together(all_: Sequence[Statistics], queues_max: int) -> Statistics:
    """The statistics of all databases; a queue is in one of them."""
    if len(all_) == 1:
        return all_[0]
    of_queues = [each for found in all_ for each in found.of_queues][:queues_max]
    own = {NO_QUEUE, *(each.queue for each in of_queues)}
    outcomes: Counter[tuple[UUID, str, str]] = Counter()
    for found in all_:
        for queue, operation, outcome, total in found.outcomes:
            if queue in own:
                outcomes[queue, operation, outcome] += total
    counted = [(*key, total) for key, total in outcomes.items()]
    return Statistics(sum(found.queues for found in all_), of_queues, counted)


def families(statistics: Statistics) -> Iterator[Metric]:
    """The metrics of queues, from the statistics of those that have their own series."""
    yield from _queues(statistics.of_queues)
    yield GaugeMetricFamily("simplemq_queues", "Queues, dead-letter queues included.", value=statistics.queues)
    yield GaugeMetricFamily(
        "simplemq_queues_without_series",
        "Queues beyond QUEEN_METRICS_MAX_QUEUES, which have no series of their own.",
        value=statistics.queues - len(statistics.of_queues),
    )
    counters = {
        operation: CounterMetricFamily(name, meaning, labels=("queue_id", "outcome"))
        for operation, (name, meaning) in _COUNTERS.items()
    }
    for queue, operation, outcome, total in statistics.outcomes:
        counters[operation].add_metric(("" if queue == NO_QUEUE else str(queue), outcome), total)
    yield from counters.values()


def _queues(statistics: Sequence[QueueStatistics]) -> Iterator[Metric]:
    labels = ("queue_id", "type")
    depth = GaugeMetricFamily("simplemq_queue_depth", "Messages in the queue, in any state.", labels=labels)
    in_flight = GaugeMetricFamily(
        "simplemq_queue_inflight_count", "Messages in flight: delivered, hidden and not acknowledged.", labels=labels
    )
    oldest = GaugeMetricFamily(
        "simplemq_queue_oldest_waiting_message_age_seconds",
        "Age of the oldest message that is ready for delivery, 0 if there is none.",
        labels=labels,
    )
    for each in statistics:
        values = (str(each.queue), "dlq" if each.dead_letters else "queue")
        depth.add_metric(values, each.depth)
        in_flight.add_metric(values, each.in_flight)
        oldest.add_metric(values, each.oldest_age_s)
    yield from (depth, in_flight, oldest)
