"""Messages in answers, and the parameters of operations that answer messages."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType

from queen.core.errors import BadRequestError
from queen.http.operation import Parameter
from queen.simple_mq.requests import Message


class MessageAnswer(Struct):
    """A message; ``traceparent``: W3C trace context of its enqueue, if the server stores it."""

    message_id: UUID
    data: str
    delivery_count: int
    invisible_until: str
    created_at: str
    message_group: str | UnsetType = UNSET
    traceparent: str | UnsetType = UNSET


def message_answer(message: Message) -> MessageAnswer:
    """The answer for a message."""
    return MessageAnswer(
        message.message_id, message.data, message.delivery_count, local_time(message.visible_at),
        local_time(message.created_at), UNSET if message.group is None else message.group,
        UNSET if message.traceparent is None else message.traceparent,
    )  # fmt: skip


def local_time(time: datetime) -> str:
    """ISO 8601 in UTC without a zone and with a minimal fraction, as clients of the original expect."""
    text = time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
    return text.rstrip("0").removesuffix(".")


def query(name: str, description: str, schema: Mapping[str, Any]) -> Parameter:
    """A parameter that must not be empty in this interface."""
    return Parameter(name, description, schema, may_be_empty=False)


def parse_limit(text: str, messages_max: int) -> int:
    """A number of messages."""
    number = int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None
    if number is None:
        raise BadRequestError(f"Limit must be a whole number, not {text[:40]!r}", "limit")
    if number < 1:
        raise BadRequestError("Limit must be greater than 0", "limit")
    if number > messages_max:
        raise BadRequestError(f"Limit must not exceed {messages_max}", "limit")
    return number
