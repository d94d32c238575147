"""Metrics that are computed at each scrape: the spool of the instance, and statistics of queues from the database."""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from queen.core.statistics import ClockState, GroupStatistics, LogStatistics, OutboxState, QueueStatistics, TimersState
from queen.spool.state import SpoolState


def database(up: Sequence[tuple[str, bool]]) -> Iterator[Metric]:
    """Whether PostgreSQL is available; each of several databases by its name."""
    yield _of_each("queen_database_up", "1 while PostgreSQL is available, else 0.", up)


def _of_each(name: str, meaning: str, values: Sequence[tuple[str, float]]) -> GaugeMetricFamily:
    """A gauge of each database; a single one has no name, and no label."""
    if len(values) == 1:
        return GaugeMetricFamily(name, meaning, value=values[0][1])
    family = GaugeMetricFamily(name, meaning, labels=("database",))
    for database_name, value in values:
        family.add_metric((database_name,), value)
    return family


def clock(state: ClockState) -> Iterator[Metric]:
    """PostgreSQL's clock, as seen by the leader of the background jobs."""
    for name, meaning, value in (
        ("queen_clock_steps", "Steps of PostgreSQL's clock in the last day that were not accepted.", state.steps),
        (
            "queen_clock_last_step_seconds",
            "Size of the last step; 0 if there was none, negative for a step back.",
            state.last_step_s or 0,
        ),
        (
            "queen_clock_distrusted_seconds",
            "Additional time for which data stored before the step is kept.",
            state.distrusted_s,
        ),
    ):
        yield GaugeMetricFamily(name, meaning, value=value)


def outbox(state: OutboxState) -> Iterator[Metric]:
    """What was pushed with SQL and is not in the log yet."""
    for name, meaning, value in (
        (
            "queen_outbox_messages",
            "Messages that wait in the outbox, counted up to 100,000.",
            state.messages,
        ),
        ("queen_outbox_oldest_age_seconds", "Age of the oldest message in the outbox.", state.oldest_s),
        ("queen_outbox_held_partitions", "Partitions that are held back in the outbox.", state.held_partitions),
        ("queen_outbox_held_age_seconds", "Time for which the longest of them has been held back.", state.held_s),
    ):
        yield GaugeMetricFamily(name, meaning, value=value)


def timers(state: TimersState) -> Iterator[Metric]:
    """Timers that are due and not in the log yet."""
    for name, meaning, value in (
        ("queen_timers_overdue", "Timers that are due and not in the log yet, counted up to 100,000.", state.overdue),
        ("queen_timers_oldest_overdue_seconds", "Time for which the first of them has been due.", state.oldest_s),
    ):
        yield GaugeMetricFamily(name, meaning, value=value)


def spool(states: Sequence[tuple[str, SpoolState]]) -> Iterator[Metric]:
    """The spool of the instance, which its workers share; of several databases each has one."""
    for name, meaning, field in (
        ("queen_spool_active", "1 while pushes go to the spool, else 0.", "spooling"),
        ("queen_spool_messages", "Messages in the spool.", "messages"),
        ("queen_spool_bytes", "Bytes of the spool.", "bytes"),
        ("queen_spool_bytes_max", "Limit of the spool in bytes (FILE_BUFFER_MAX_BYTES).", "bytes_max"),
        ("queen_spool_oldest_age_seconds", "Age of the oldest message in the spool.", "oldest_age_s"),
        (
            "queen_spool_failed_files",
            "Files that could not be replayed and were set aside: `queen spool list`.",
            "failed",
        ),
        (
            "queen_spool_held_partitions",
            "Partitions that are held back in the spool: `queen spool list`.",
            "held_partitions",
        ),
        ("queen_spool_held_age_seconds", "Time for which the longest of them has been held back.", "held_age_s"),
    ):
        yield _of_each(name, meaning, [(place, getattr(state, field)) for place, state in states])


def log(statistics: LogStatistics) -> Iterator[Metric]:
    """Queues and consumer groups, as of the last refresh of the statistics."""
    for name, meaning, value in (
        ("queen_queues", "Queues.", statistics.queues),
        ("queen_queues_without_series", "Queues beyond QUEEN_METRICS_MAX_QUEUES, which have no series of their own.",
         statistics.queues - len(statistics.of_queues)),
        ("queen_groups", "Consumer groups, counted once per queue.", statistics.groups),
        ("queen_groups_without_series", "Groups beyond QUEEN_METRICS_MAX_QUEUES, which have no series of their own.",
         statistics.groups - len(statistics.of_groups)),
        ("queen_oldest_undone_age_seconds", "Age of the oldest message that some group has not acknowledged.",
         statistics.oldest_s),
        ("queen_statistics_age_seconds", "Age of these statistics, and of those of queues and groups.",
         statistics.statistics_age_s or 0),
    ):  # fmt: skip
        yield GaugeMetricFamily(name, meaning, value=value)
    yield from _queues(statistics.of_queues)
    yield from _groups(statistics.of_groups)


def _queues(statistics: Iterable[QueueStatistics]) -> Iterator[Metric]:
    labels = ("queue",)
    families = {
        "partitions": GaugeMetricFamily("queen_queue_partitions", "Partitions of the queue.", labels=labels),
        "messages": GaugeMetricFamily("queen_queue_messages", "Stored messages, acknowledged or not.", labels=labels),
        "pending": GaugeMetricFamily(
            "queen_queue_pending_messages",
            "Messages that some group has neither leased nor acknowledged.",
            labels=labels,
        ),
        "leased": GaugeMetricFamily("queen_queue_leased_messages", "Messages in flight.", labels=labels),
        "dead_letters": GaugeMetricFamily("queen_queue_dead_letters", "Dead letters of the queue.", labels=labels),
        "paused": GaugeMetricFamily("queen_queue_paused", "1 while the queue is paused, else 0.", labels=labels),
    }
    for each in statistics:
        for field, family in families.items():
            family.add_metric((each.queue,), getattr(each, field))
    yield from families.values()


def _groups(statistics: Iterable[GroupStatistics]) -> Iterator[Metric]:
    labels = ("queue", "group")
    families = {
        "lag": GaugeMetricFamily(
            "queen_group_lag_messages", "Consumer lag: messages that the group has not acknowledged.", labels=labels
        ),
        "lag_s": GaugeMetricFamily(
            "queen_group_lag_seconds", "Age of the oldest of them, 0 if there is none.", labels=labels
        ),
        "leases": GaugeMetricFamily("queen_group_leases", "Partitions that the group has leased.", labels=labels),
        "leased": GaugeMetricFamily(
            "queen_group_leased_messages", "Messages in flight in these partitions.", labels=labels
        ),
        "paused": GaugeMetricFamily("queen_group_paused", "1 while the group is paused, else 0.", labels=labels),
    }
    for each in statistics:
        for field, family in families.items():
            family.add_metric((each.queue, each.group), getattr(each, field))
    yield from families.values()
