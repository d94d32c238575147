"""Parameters of lists: names, pages and times of a query string; the message or dead letter of a path."""

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TypeVar

import falcon.asgi
from msgspec import Struct

from queen.core.administration import (
    MessageKey,
    Page,
    PartitionFilter,
    PartitionOrder,
    Period,
    QueueFilter,
    WorkerFilter,
)
from queen.core.errors import BadRequestError, NotFoundError
from queen.core.limits import TRANSACTION_ID_CHARS_MAX
from queen.http.parsing import check_name, parse_integer, parse_time
from queen.log import ids

EnumT = TypeVar("EnumT", bound=Enum)

MESSAGE_NOT_FOUND = "Message not found"
DEAD_LETTER_NOT_FOUND = "Dead letter not found"
LIMIT_MAX = 10_000
OFFSET_MAX = 1_000_000
#: Default `limit` of lists: with names of common length, far less than a mebibyte.
LIMIT = 1000
#: Maximum of points of all series together.
POINTS_MAX = 10_000
#: Maximum of a process id.
PID_MAX = 2**31 - 1
#: Maximum of names in a query.
NAMES_MAX = 100


class Pagination(Struct, frozen=True):
    """The requested page of a list."""

    limit: int
    offset: int

    @classmethod
    def of(cls, page: Page[EnumT]) -> "Pagination":
        """The same of a sorted list."""
        return cls(page.limit, page.offset)


def page(req: falcon.asgi.Request, limit: int, offset_max: int = OFFSET_MAX, limit_max: int = LIMIT_MAX) -> Pagination:
    """``limit`` and ``offset`` of the query.

    Args:
        req: the request.
        limit: the default limit.
        offset_max: largest offset.
        limit_max: largest limit.
    """
    return Pagination(
        parse_integer(req.get_param("limit"), "limit", limit, 1, limit_max),
        parse_integer(req.get_param("offset"), "offset", 0, 0, offset_max),
    )


def sorted_page(req: falcon.asgi.Request, default: EnumT, limit: int) -> Page[EnumT]:
    """``order`` (by default the given one), ``reverse``, ``limit`` and ``offset`` of the query."""
    asked = page(req, limit)
    return Page(choice(req, "order", default), asked.limit, asked.offset, flag(req, "reverse", default=False))


def partitions(req: falcon.asgi.Request, queue: str | None, limit: int) -> tuple[PartitionFilter, Page[PartitionOrder]]:
    """A page of partitions of a queue, or of all."""
    wanted = PartitionFilter(queue, name(req, "partition"), name(req, "search"))
    return wanted, sorted_page(req, PartitionOrder.NAME, limit)


def flag(req: falcon.asgi.Request, field: str, *, default: bool) -> bool:
    """A flag of the query."""
    given = req.get_param(field)
    if given not in (None, "true", "1", "false", "0"):
        raise BadRequestError(f"{field} must be true or false, not {given[:40]!r}", field)
    return default if given is None else given in ("true", "1")


def page_of_series(req: falcon.asgi.Request, period: Period, points: int) -> Pagination:
    """The requested page of series: by default as many as give this number of points, at most ``POINTS_MAX``."""
    most = max(POINTS_MAX // period.points, 1)
    return page(req, max(points // period.points, 1), limit_max=min(most, LIMIT_MAX))


def name(req: falcon.asgi.Request, *fields: str) -> str | None:
    """A name of the query, by the first spelling that is given; ``None`` and empty match all."""
    for field in fields:
        if text := req.get_param(field):
            return check_name(text, field)
    return None


def names(req: falcon.asgi.Request, field: str) -> list[str] | None:
    """Names of the query, one parameter per name; ``None`` if there are none, which matches all."""
    found = [text for text in req.get_param_as_list(field) or () if text]
    if len(found) > NAMES_MAX:
        raise BadRequestError(f"{field} is given {len(found)} times, at most {NAMES_MAX} are allowed", field)
    return [check_name(text, field) for text in dict.fromkeys(found)] or None


def queue_filter(req: falcon.asgi.Request) -> QueueFilter:
    """``queue``, ``namespace`` and ``task`` of the query."""
    queue = name(req, "queue")
    return QueueFilter(name(req, "namespace"), name(req, "task"), None if queue is None else [queue])


def worker_filter(req: falcon.asgi.Request) -> WorkerFilter:
    """``hostname`` and ``workerId`` of the query."""
    number = parse_integer(req.get_param("workerId"), "workerId", -1, 0, PID_MAX)
    return WorkerFilter(name(req, "hostname"), number if number >= 0 else None)


def choice(req: falcon.asgi.Request, field: str, default: EnumT) -> EnumT:
    """One of the values of an enumeration."""
    text = req.get_param(field) or default.value
    for value in type(default):
        if value.value == text:
            return value
    known = ", ".join(value.value for value in type(default))
    raise BadRequestError(f"{field} must be one of {known}, not {text[:40]!r}", field)


def moment(req: falcon.asgi.Request, field: str) -> datetime | None:
    """A time of the query, or ``None``."""
    text = req.get_param(field)
    return parse_time(text, field) if text else None


def period(req: falcon.asgi.Request, default: timedelta) -> Period:
    """``from`` and ``to`` of the query; by default a range up to now. The minute of ``to`` is included."""
    end = moment(req, "to")
    if end is None:
        end = datetime.now(UTC)
    elif end < datetime.max.replace(tzinfo=UTC) - timedelta(minutes=1):
        end = end.replace(second=0, microsecond=0) + timedelta(minutes=1, microseconds=-1)
    begin = moment(req, "from")
    if begin is None:
        begin = end - default if end > datetime.min.replace(tzinfo=UTC) + default else end
    if begin > end:
        raise BadRequestError("from must not be later than to", "from")
    return Period(begin, end)


def message_key(partition_id: str, transaction_id: str) -> MessageKey:
    """The message of a path, by its ids.

    Raises:
        NotFoundError: the partition id is not one of this server.
        BadRequestError: the transaction id is empty or too long.
    """
    part_id = ids.parse_partition_id(partition_id)
    check_name(transaction_id, "transactionId", TRANSACTION_ID_CHARS_MAX)
    if part_id is None:
        raise NotFoundError(MESSAGE_NOT_FOUND)
    return MessageKey(part_id, transaction_id)


def dead_letter_number(dead_letter_id: str) -> int:
    """The number of a dead letter, by the id in a path; raises NotFoundError if it is not one of this server."""
    number = ids.parse_dead_letter_id(dead_letter_id)
    if number is None:
        raise NotFoundError(DEAD_LETTER_NOT_FOUND)
    return number
