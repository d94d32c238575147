"""Answers of simple-mq."""

from datetime import UTC, datetime
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct, UnsetType

from queen.core.simple_mq import Message, QueueInfo

encode = msgspec.json.encode


def local_time(time: datetime) -> str:
    """ISO 8601 in UTC without a zone, the fraction only as long as needed: what the original's clients parse."""
    text = time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
    return text.rstrip("0").removesuffix(".")


class MessageAnswer(Struct):
    """A message; ``traceparent``: W3C trace context of its enqueue, where the server keeps those."""

    message_id: UUID
    data: str
    delivery_count: int
    invisible_until: str
    created_at: str
    message_group: str | UnsetType = UNSET
    traceparent: str | UnsetType = UNSET


class QueueAnswer(Struct):
    """A queue; ``max_message_bytes`` only if it has a limit of its own."""

    queue_id: UUID
    queue_name: str
    queue_size: int
    visibility_timeout: int
    max_deliveries: int
    current_message_count: int
    dlq_id: UUID | None
    max_message_bytes: int | UnsetType = UNSET


class PolledAnswer(Struct):
    """The message of a poll that named no limit, if there was one."""

    message: MessageAnswer | None


class MessagesAnswer(Struct):
    """The messages of a poll that named a limit."""

    messages: list[MessageAnswer]


class PageAnswer(Struct):
    """A page of messages, and where the next one begins."""

    messages: list[MessageAnswer]
    next_cursor_created_at: str | None
    next_cursor_message_id: UUID | None


def message_answer(message: Message) -> MessageAnswer:
    """A message as clients see it."""
    return MessageAnswer(
        message.message_id, message.data, message.delivery_count, local_time(message.visible_at),
        local_time(message.created_at), UNSET if message.group is None else message.group,
        UNSET if message.traceparent is None else message.traceparent,
    )  # fmt: skip


def queue_answer(queue: UUID, info: QueueInfo) -> QueueAnswer:
    """A queue as clients see it."""
    own_limit = UNSET if info.max_message_bytes is None else info.max_message_bytes
    return QueueAnswer(
        queue, info.name, info.size, info.visibility_timeout, info.max_deliveries, info.messages, info.dlq_id, own_limit
    )
