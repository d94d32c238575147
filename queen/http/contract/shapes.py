"""Answers that are rendered as bytes or from plain mappings, as structs: the contract and its tests read them."""

from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queen.http.problems import Problem
from queen.http.rendering import AckAnswer


class PushedItem(Struct):
    """What became of an item of a push.

    Attributes:
        index: its place in the request.
        transaction_id: the one that was sent, or the id of the message.
        status: `queued`; `duplicate`: the transaction id is stored already, `message_id` is that message; `buffered`:
            on the server's disk, and stored when the database is back; `failed`: `error` says why.
        message_id: id of the message; `null` while it is buffered.
        partition_id: where it stands; only if queued.
        trace_id: as it was sent; only if queued.
    """

    index: int
    transaction_id: str | None
    status: Annotated[str, Meta(extra_json_schema={"enum": ["queued", "duplicate", "buffered", "failed"]})]
    queueName: str  # noqa: N815 - the interface's names
    message_id: str | UnsetType | None = UNSET
    partition_id: str | UnsetType = UNSET
    trace_id: str | UnsetType | None = UNSET
    error: str | UnsetType = UNSET
    transactionId: str | UnsetType | None = UNSET  # noqa: N815
    queue: str | UnsetType = UNSET
    partition: str | UnsetType = UNSET


class DeliveredMessage(Struct, rename="camel"):
    """A message of a pop.

    Attributes:
        id: id of the message.
        data: the payload, as it was pushed.
        producer_sub: who pushed it, as the token said.
        offset: its place in the partition.
        delivery_attempt: 1 at the first delivery to the group.
        traceparent: W3C trace context of its push, if there is one and the server keeps those (`QUEEN_OTEL_ENABLED`).
    """

    id: str
    transaction_id: str
    trace_id: str | None
    data: Raw
    producer_sub: str | None
    created_at: str
    partition_id: str
    queue: str
    partition: str
    lease_id: str
    consumer_group: str
    offset: int
    delivery_attempt: int
    traceparent: str | UnsetType = UNSET


class Autopilot(Struct, rename="camel"):
    """What the server chose for a pop with `autopilot=true`."""

    partitions: int
    batch: int
    wait_ms: int


class PopAnswer(Struct, rename="camel"):
    """Messages under one lease; queue and partition are those of the first.

    Attributes:
        lease_id: empty with `autoAck`.
        partitions_claimed: how many partitions they come from.
    """

    success: bool
    queue: str
    partition: str
    partition_id: str
    lease_id: str
    consumer_group: str
    messages: list[DeliveredMessage]
    partitions_claimed: int
    autopilot: Autopilot | UnsetType = UNSET


class AckPopAnswer(Struct):
    """Results of acks, and what the pop that came with them got.

    Attributes:
        acknowledgments: one result an acknowledgment, in their order.
        pop: `null` if there are no messages, or the pop failed.
        problem: why the pop failed; the acks are as their results say.
    """

    acknowledgments: list[AckAnswer]
    pop: PopAnswer | None
    problem: Problem | UnsetType = UNSET


class OptionsInForce(Struct, rename="camel"):
    """All options of a queue, defaults included."""

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


class ConfiguredAnswer(Struct, rename="camel"):
    """A queue as it is configured now; `partitionId` is that of its partition `Default`."""

    configured: bool
    queue_id: str
    partition_id: str
    queue: str
    namespace: str
    task: str
    options: OptionsInForce


class ConfigurationAnswer(Struct, rename="camel"):
    """A queue as it is configured."""

    queue_id: str
    queue: str
    namespace: str
    task: str
    options: OptionsInForce


class QueueDeletedAnswer(Struct):
    """A queue that is gone; `existed` says whether it was there."""

    deleted: bool
    queue: str
    existed: bool


class StatusOnly(Struct):
    """One word."""

    status: str


# ---------------------------------------------------------------- simple-mq


class QueueCreated(Struct):
    """The id of a new queue."""

    queue_id: str


class MessageEnqueued(Struct):
    """The id of a message that came alone."""

    message_id: str


class MessagesEnqueued(Struct):
    """The ids of the messages, in their order."""

    message_ids: list[str]


class MessageAcknowledged(Struct):
    """What became of one acknowledgment."""

    message_id: str
    deleted: bool
    error: str | UnsetType = UNSET


class MessagesAcknowledged(Struct):
    """A result for each id, in their order."""

    results: list[MessageAcknowledged]


class MessageRequeued(Struct):
    """Where a message has gone."""

    message_id: str
    requeued_to: str


class QueueRequeued(Struct):
    """How many messages of a dead-letter queue have gone where."""

    requeued: int
    requeued_to: str


class VisibilityExtended(Struct):
    """Until when a message stays hidden."""

    message_id: str
    invisible_until: str


class ComponentHealth(Struct):
    """`UP` or `DOWN`."""

    status: str


class HealthComponents(Struct):
    """What the health is made of."""

    db: ComponentHealth


class ActuatorHealth(Struct):
    """`UP` or `DOWN`, in all and by component."""

    status: str
    components: HealthComponents


class AppInfo(Struct):
    """What runs."""

    name: str
    version: str


class ActuatorInfo(Struct):
    """What runs here."""

    app: AppInfo


class MeterNames(Struct):
    """Names of metrics."""

    names: list[str]
