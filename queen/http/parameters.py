"""Parameters that several operations share."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec.structs import replace

from queen.core import limits
from queen.core.administration import PartitionOrder
from queen.http import queries
from queen.http.fields import number_of, text_of
from queen.http.operation import Parameter

NAME = text_of(1, limits.NAME_CHARS_MAX)
TIME: Mapping[str, Any] = {"type": "string", "format": "date-time"}
#: True for `true` or `1`, otherwise false.
SWITCH: Mapping[str, Any] = {"type": "string"}
#: True or false, and 1 or 0.
FLAG: Mapping[str, Any] = {"type": "string", "enum": ["true", "false", "1", "0"]}
#: For the description of a list of payloads.
LARGE = "A page ends early if it would exceed 16 MiB; the next page starts after its last element."

LIMIT = Parameter("limit", "Maximum of elements in the answer", number_of(1, queries.LIMIT_MAX))
OFFSET = Parameter("offset", "Elements to skip; 0 by default", number_of(0, queries.OFFSET_MAX))
QUEUE = Parameter("queue", "Only this queue", NAME)
QUEUES = Parameter(
    "queue",
    "Only these queues, one parameter per queue",
    {"type": "array", "items": NAME, "maxItems": queries.NAMES_MAX},
)
SEARCH = Parameter("search", "Only names or labels that contain this text, case-insensitive", NAME)
PARTITION_SEARCH = Parameter("search", "Only partitions whose name contains this text, case-insensitive", NAME)
REVERSE = Parameter("reverse", "`true`: the order is turned round", FLAG)
BEHIND = Parameter("behind", "`true`: only those with messages to acknowledge", FLAG)
PARTITION = Parameter("partition", "Only this partition", NAME)
NAMESPACE = Parameter("namespace", "Only queues of this namespace", NAME)
TASK = Parameter("task", "Only queues of this task", NAME)
GROUP = Parameter("consumerGroup", "Only this consumer group", NAME)
FROM = Parameter("from", "Start of the time range; by default an hour before `to`", TIME)
TO = Parameter("to", "End of the time range, including its minute; by default now", TIME)
#: The time range of an answer.
PERIOD = (FROM, TO)
HOSTNAME = Parameter("hostname", "Only workers of this host", NAME)
WORKER = Parameter("workerId", "Only the worker with this process id", number_of(0, queries.PID_MAX))


def path(name: str, description: str, schema: Mapping[str, Any] = NAME, *, slashes: bool = False) -> Parameter:
    """A parameter of the path; ``slashes``: it may contain slashes that are not percent-encoded."""
    return Parameter(name, description, schema, "path", required=True, slashes=slashes)


def limit(default: int, most: int = queries.LIMIT_MAX) -> Parameter:
    """``limit`` with its default."""
    description = f"{LIMIT.description}; {default} by default"
    return replace(LIMIT, description=description, schema={**number_of(1, most), "default": default})


def offset(most: int) -> Parameter:
    """``offset`` with another maximum."""
    return replace(OFFSET, schema=number_of(0, most))


def series(limit_text: str) -> tuple[Parameter, Parameter]:
    """``limit`` and ``offset`` of a list whose default limit depends on the time range."""
    return replace(LIMIT, description=limit_text), OFFSET


def order(values: "type[Enum]", default: "Enum") -> Parameter:
    """The sort order of a list."""
    names = [value.value for value in values]
    return Parameter("order", f"Sort order; `{default.value}` by default", {"type": "string", "enum": names})


def sorting(values: "type[Enum]", default: "Enum") -> tuple[Parameter, Parameter]:
    """``order`` and ``reverse`` of a list."""
    return order(values, default), REVERSE


def partitions(default: int) -> tuple[Parameter, ...]:
    """Those of a list of partitions."""
    return (PARTITION, PARTITION_SEARCH, *sorting(PartitionOrder, PartitionOrder.NAME), *page(default))


def page(default: int) -> tuple[Parameter, Parameter]:
    """``limit`` and ``offset``."""
    return limit(default), OFFSET


QUEUE_PATH = path("queue", "Name of the queue; slashes may be encoded or not", slashes=True)
PARTITION_PATH = path("partition", "Name of the partition", slashes=True)
GROUP_PATH = path("consumerGroup", "Name of the consumer group; `__QUEUE_MODE__` for queue mode", slashes=True)
PARTITION_ID = path("partitionId", "Id of the partition, from a pop", {"type": "string", "minLength": 1})
TRANSACTION_ID = path(
    "transactionId", "Transaction id of the message", text_of(1, limits.TRANSACTION_ID_CHARS_MAX), slashes=True
)
DEAD_LETTER_ID = path("deadLetterId", "Id of the dead letter", {"type": "string", "format": "uuid"})
