"""Parameters that several operations have."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec.structs import replace

from queen.core import limits
from queen.http import queries
from queen.http.contract.operation import Parameter
from queen.http.fields import number_of, text_of

NAME = text_of(1, limits.NAME_CHARS_MAX)
TIME: Mapping[str, Any] = {"type": "string", "format": "date-time"}
#: Off, unless it is `true` or `1`.
SWITCH: Mapping[str, Any] = {"type": "string"}

LIMIT = Parameter("limit", "Most elements of the answer", number_of(1, queries.LIMIT_MAX))
OFFSET = Parameter("offset", "Elements to pass over; 0 by default", number_of(0, queries.OFFSET_MAX))
QUEUE = Parameter("queue", "Only this queue", NAME)
QUEUES = Parameter(
    "queue",
    "Only these queues, each in a parameter of its own",
    {"type": "array", "items": NAME, "maxItems": queries.NAMES_MAX},
)
SEARCH = Parameter("search", "Only where a name or label holds this text, in upper or lower case", NAME)
PARTITION = Parameter("partition", "Only this partition", NAME)
NAMESPACE = Parameter("namespace", "Only queues of this namespace", NAME)
TASK = Parameter("task", "Only queues of this task", NAME)
GROUP = Parameter("consumerGroup", "Only this consumer group", NAME)
FROM = Parameter("from", "Beginning of the time; by default an hour before `to`", TIME)
TO = Parameter("to", "End of the time, whose minute counts whole; by default now", TIME)
HOSTNAME = Parameter("hostname", "Only workers of this host", NAME)
WORKER = Parameter("workerId", "Only the worker with this process id", number_of(0, 2**31 - 1))


def path(name: str, description: str, schema: Mapping[str, Any] = NAME) -> Parameter:
    """A parameter of the path."""
    return Parameter(name, description, schema, "path", required=True)


def limit(default: int, most: int = queries.LIMIT_MAX) -> Parameter:
    """``limit`` with its default."""
    description = f"{LIMIT.description}; {default} by default"
    return replace(LIMIT, description=description, schema={**number_of(1, most), "default": default})


def offset(most: int) -> Parameter:
    """``offset`` with another maximum."""
    return replace(OFFSET, schema=number_of(0, most))


def series(limit_text: str) -> tuple[Parameter, Parameter]:
    """``limit`` and ``offset`` of a list whose default depends on the time that it is about."""
    return replace(LIMIT, description=limit_text), OFFSET


def order(values: "type[Enum]", default: "Enum") -> Parameter:
    """What a list begins with."""
    names = [value.value for value in values]
    return Parameter("order", f"What comes first; `{default.value}` by default", {"type": "string", "enum": names})


def page(default: int) -> tuple[Parameter, Parameter]:
    """``limit`` and ``offset``."""
    return limit(default), OFFSET


QUEUE_PATH = path("queue", "Name of the queue; slashes may be encoded or not")
PARTITION_PATH = path("partition", "Name of the partition")
GROUP_PATH = path("consumerGroup", "Name of the consumer group; `__QUEUE_MODE__` is that of consumers without one")
PARTITION_ID = path("partitionId", "Id of the partition, as a pop names it", {"type": "string", "minLength": 1})
TRANSACTION_ID = path("transactionId", "Transaction id of the message", text_of(1, limits.TRANSACTION_ID_CHARS_MAX))
