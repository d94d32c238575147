"""The metrics of queues of SQS, by name; those of CloudWatch have the same meaning."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from queen.engine.context import Context
from queen.simple_mq.interface import SimpleMq, Sqs
from queen.simple_mq.sqs_requests import SqsStatistics

SENT, RECEIVED, EMPTY, DELETED, DEAD = "sqs_sent", "sqs_received", "sqs_empty", "sqs_deleted", "sqs_dead"

#: Counters by operation, as ``SimpleMq.outcomes`` counts them: name without _total, and meaning.
_COUNTERS: Mapping[str, tuple[str, str]] = {
    SENT: ("queen_sqs_sent", "Messages sent, duplicates included."),
    RECEIVED: ("queen_sqs_received", "Messages received."),
    EMPTY: ("queen_sqs_empty_receives", "Receives that returned no message."),
    DELETED: ("queen_sqs_deleted", "Messages deleted by consumers."),
    DEAD: ("queen_sqs_dead_lettered", "Messages that went to the dead-letter queue, by source queue."),
}


async def statistics_of_sqs(context: Context, queues_max: int) -> Iterable[Metric]:
    """The metrics of at most so many queues, from the database."""

    async def of_database(each: Context) -> tuple[int, Sequence[SqsStatistics]]:
        await SimpleMq.of(each).outcomes.flush()
        return await Sqs.of(each).administration.statistics(queues_max)

    found = await context.everywhere(of_database)
    statistics = [each for _, some in found for each in some]
    return families(sum(number for number, _ in found), statistics[:queues_max])


def families(number: int, statistics: Sequence[SqsStatistics]) -> Iterator[Metric]:
    """The metrics of queues, from the statistics of those that have their own series, and the number of all."""
    messages = GaugeMetricFamily("queen_sqs_messages", "Messages of a queue by state.", labels=("queue", "state"))
    oldest = GaugeMetricFamily(
        "queen_sqs_oldest_message_age_seconds", "Age of the oldest message of a queue, 0 if it has none.",
        labels=("queue",),
    )  # fmt: skip
    counters = {
        operation: CounterMetricFamily(name, meaning, labels=("queue",))
        for operation, (name, meaning) in _COUNTERS.items()
    }
    for each in statistics:
        states = {"visible": each.visible, "in_flight": each.in_flight, "delayed": each.delayed}
        for state, count in states.items():
            messages.add_metric((each.name, state), count)
        oldest.add_metric((each.name,), each.oldest_age_s)
        for operation, total in each.counts.items():
            counters[operation].add_metric((each.name,), total)
    yield GaugeMetricFamily("queen_sqs_queues", "Queues of SQS.", value=number)
    yield GaugeMetricFamily(
        "queen_sqs_queues_without_series",
        "Queues beyond QUEEN_METRICS_MAX_QUEUES, which have no series of their own.",
        value=number - len(statistics),
    )
    yield from (messages, oldest, *counters.values())
