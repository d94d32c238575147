"""Options of a queue, as they are given and as they are in force."""

from typing import Annotated

from msgspec import Struct

from queen.core import limits
from queen.core.administration import QueueConfiguration, keeps_dead_letters
from queen.core.errors import BadRequestError
from queen.http.fields import between
from queen.http.parsing import check_name

_YEAR_SECONDS = 366 * 24 * 3600
_INT_MAX = 2**31 - 1

#: Minimum and maximum of each number.
_BOUNDS = {
    "leaseTime": (0, limits.LEASE_SECONDS_MAX),
    "retryLimit": (0, 10_000),
    "retryDelay": (0, 7 * 24 * 3600 * 1000),
    "delayedProcessing": (0, _YEAR_SECONDS),
    "windowBuffer": (0, _YEAR_SECONDS),
    "priority": (-_INT_MAX, _INT_MAX),
    "retentionSeconds": (0, _INT_MAX),
    "completedRetentionSeconds": (0, _INT_MAX),
    "maxWaitTimeSeconds": (0, _INT_MAX),
    "maxSize": (0, _INT_MAX),
    "ttl": (0, _INT_MAX),
}


class Options(Struct):
    """Options of a queue; one that is not given, or is `null`, has its default.

    Attributes:
        leaseTime: lease time in seconds; 60 by default and for 0.
        retryLimit: failures of a message before it becomes a dead letter; 3 by default.
        retryDelay: delay before a failed message is delivered again, in milliseconds.
        delayedProcessing: delay before a message is delivered, in seconds.
        windowBuffer: seconds without a push to a partition before its messages are delivered.
        priority: order among queues of a namespace or task, highest first.
        deadLetterQueue: whether dead letters are stored; by default they are.
        dlqAfterMaxRetries: the same as `deadLetterQueue`. If both are given and differ, dead letters are stored.
        namespace: used if the body has no `namespace`.
        task: used if the body has no `task`.
        retentionSeconds: age at which messages are removed, if `retentionEnabled`; 0: never.
        completedRetentionSeconds: age at which messages are removed that every group has acknowledged; 0: never.
        retentionEnabled: whether `retentionSeconds` applies.
        maxWaitTimeSeconds: age at which unacknowledged messages are evicted; 0: never.
        maxSize: maximum backlog; a push beyond it is answered 429. 0: unlimited.
        ttl: age in seconds at which messages are removed, acknowledged or not; 0: never.
        encryptionEnabled: whether payloads are encrypted in the database; needs `QUEEN_ENCRYPTION_KEY`.
        sqlPush: whether `queen.push`, in SQL, may push to the queue; by default it may.
        colocateWith: a queue: partitions of this queue are in the same database as its partitions of the same names,
            so that a transaction may use both. With one database all are. It cannot change once the queue exists.
    """

    leaseTime: Annotated[int, between(*_BOUNDS["leaseTime"])] | None = None  # noqa: N815 - the interface's names
    retryLimit: Annotated[int, between(*_BOUNDS["retryLimit"])] | None = None  # noqa: N815
    retryDelay: Annotated[int, between(*_BOUNDS["retryDelay"])] | None = None  # noqa: N815
    delayedProcessing: Annotated[int, between(*_BOUNDS["delayedProcessing"])] | None = None  # noqa: N815
    windowBuffer: Annotated[int, between(*_BOUNDS["windowBuffer"])] | None = None  # noqa: N815
    priority: Annotated[int, between(*_BOUNDS["priority"])] | None = None
    deadLetterQueue: bool | None = None  # noqa: N815
    dlqAfterMaxRetries: bool | None = None  # noqa: N815
    namespace: str | None = None
    task: str | None = None
    retentionSeconds: Annotated[int, between(*_BOUNDS["retentionSeconds"])] | None = None  # noqa: N815
    completedRetentionSeconds: Annotated[int, between(*_BOUNDS["completedRetentionSeconds"])] | None = None  # noqa: N815
    retentionEnabled: bool | None = None  # noqa: N815
    maxWaitTimeSeconds: Annotated[int, between(*_BOUNDS["maxWaitTimeSeconds"])] | None = None  # noqa: N815
    maxSize: Annotated[int, between(*_BOUNDS["maxSize"])] | None = None  # noqa: N815
    ttl: Annotated[int, between(*_BOUNDS["ttl"])] | None = None
    encryptionEnabled: bool | None = None  # noqa: N815
    sqlPush: bool | None = None  # noqa: N815
    colocateWith: str | None = None  # noqa: N815


class OptionsInForce(Struct, rename="camel", omit_defaults=True):
    """All options of a queue, with defaults.

    `sqlPush` and `colocateWith` only if they are set, as published clients do not know them.
    """

    lease_time: int
    retry_limit: int
    retry_delay: int
    delayed_processing: int
    window_buffer: int
    priority: int
    dead_letter_queue: bool
    dlq_after_max_retries: bool
    retention_enabled: bool
    retention_seconds: int
    completed_retention_seconds: int
    max_wait_time_seconds: int
    max_size: int
    ttl: int
    encryption_enabled: bool
    sql_push: bool = True
    colocate_with: str | None = None


def check_options(options: Options, *, encrypts: bool) -> None:
    """Checks the bounds of numbers, and whether the server can encrypt if it should; raises BadRequestError."""
    for name, (low, high) in _BOUNDS.items():
        value = getattr(options, name)
        if value is not None and not low <= value <= high:
            raise BadRequestError(f"options.{name} must be from {low} to {high}, not {value}", f"options.{name}")
    if options.colocateWith:
        check_name(options.colocateWith, "options.colocateWith")
    if options.encryptionEnabled and not encrypts:
        raise BadRequestError(
            "options.encryptionEnabled needs a key, which this server does not have: set QUEEN_ENCRYPTION_KEY",
            "options.encryptionEnabled",
        )


def configuration_of(queue: str, namespace: str, task: str, options: Options) -> QueueConfiguration:
    """The configuration of a queue with these labels and options."""

    def chosen(value: int | None, default: int) -> int:
        return default if value is None else value

    return QueueConfiguration(
        queue=queue,
        namespace=namespace,
        task=task,
        priority=chosen(options.priority, 0),
        lease_time=chosen(options.leaseTime, 60),
        retry_limit=chosen(options.retryLimit, 3),
        retry_delay=options.retryDelay,
        delayed_processing=chosen(options.delayedProcessing, 0),
        window_buffer=chosen(options.windowBuffer, 0),
        dead_letter_queue=options.deadLetterQueue,
        dlq_after_max_retries=options.dlqAfterMaxRetries,
        retention_enabled=bool(options.retentionEnabled),
        retention_seconds=chosen(options.retentionSeconds, 0),
        completed_retention_seconds=chosen(options.completedRetentionSeconds, 0),
        ttl=chosen(options.ttl, 0),
        max_wait_time_seconds=chosen(options.maxWaitTimeSeconds, 0),
        max_size=chosen(options.maxSize, 0),
        encryption_enabled=bool(options.encryptionEnabled),
        sql_push=options.sqlPush is not False,
        colocate_with=options.colocateWith or None,
    )


def in_force(configuration: QueueConfiguration) -> OptionsInForce:
    """The options of a configuration, with defaults."""
    c = configuration
    buries = keeps_dead_letters(c.dead_letter_queue, c.dlq_after_max_retries)
    return OptionsInForce(
        lease_time=c.lease_time or 60,
        retry_limit=c.retry_limit,
        retry_delay=c.retry_delay or 0,
        delayed_processing=c.delayed_processing,
        window_buffer=c.window_buffer,
        priority=c.priority,
        dead_letter_queue=buries if c.dead_letter_queue is None else c.dead_letter_queue,
        dlq_after_max_retries=buries if c.dlq_after_max_retries is None else c.dlq_after_max_retries,
        retention_enabled=c.retention_enabled,
        retention_seconds=c.retention_seconds,
        completed_retention_seconds=c.completed_retention_seconds,
        max_wait_time_seconds=c.max_wait_time_seconds,
        max_size=c.max_size,
        ttl=c.ttl,
        encryption_enabled=c.encryption_enabled,
        sql_push=c.sql_push,
        colocate_with=c.colocate_with,
    )
