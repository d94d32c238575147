"""Parameters of listings: names, pages and times of a query string, and a message named in a path."""

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TypeVar

import falcon.asgi
from msgspec import Struct

from queen.core import ids
from queen.core.administration import MessageKey, Period
from queen.core.errors import BadRequestError, NotFoundError
from queen.core.limits import TRANSACTION_ID_CHARS_MAX
from queen.http.parsing import check_name, parse_integer, parse_time

EnumT = TypeVar("EnumT", bound=Enum)

LIMIT_MAX = 10_000
OFFSET_MAX = 1_000_000
#: Elements of a list without a `limit`: with names of a common length far less than a mebibyte.
LIMIT = 1000
#: Points of series together.
POINTS_MAX = 10_000
#: Names that a query may choose.
NAMES_MAX = 100


class Pagination(Struct, frozen=True):
    """Which part of a list is wanted, and is answered."""

    limit: int
    offset: int


def page(req: falcon.asgi.Request, limit: int, offset_max: int = OFFSET_MAX, limit_max: int = LIMIT_MAX) -> Pagination:
    """``limit`` and ``offset`` of the query.

    Args:
        req: has the query.
        limit: what holds when none is named.
        offset_max: largest offset.
        limit_max: largest limit.
    """
    return Pagination(
        parse_integer(req.get_param("limit"), "limit", limit, 1, limit_max),
        parse_integer(req.get_param("offset"), "offset", 0, 0, offset_max),
    )


def page_of_series(req: falcon.asgi.Request, period: Period, points: int) -> Pagination:
    """Which series are wanted: by default as many as make so many points over the time, and at most ``POINTS_MAX``."""
    most = max(POINTS_MAX // period.points, 1)
    return page(req, max(points // period.points, 1), limit_max=min(most, LIMIT_MAX))


def name(req: falcon.asgi.Request, *fields: str) -> str | None:
    """A name of the query, under the first of its spellings that is there; ``None`` and empty match any."""
    for field in fields:
        if text := req.get_param(field):
            return check_name(text, field)
    return None


def names(req: falcon.asgi.Request, field: str) -> list[str] | None:
    """Names of the query, each in a parameter of its own; ``None``: there is none, which matches any."""
    found = [text for text in req.get_param_as_list(field) or () if text]
    if len(found) > NAMES_MAX:
        raise BadRequestError(f"{field} is there {len(found)} times, more than {NAMES_MAX}", field)
    return [check_name(text, field) for text in dict.fromkeys(found)] or None


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
    """``from`` and ``to`` of the query; by default the time up to now. The minute of ``to`` counts whole."""
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
    """A message named by the ids of a path.

    Raises:
        NotFoundError: the partition id is none of this server.
        BadRequestError: the transaction id is empty or too long.
    """
    part_id = ids.parse_partition_id(partition_id)
    check_name(transaction_id, "transactionId", TRANSACTION_ID_CHARS_MAX)
    if part_id is None:
        raise NotFoundError("Message not found")
    return MessageKey(part_id, transaction_id)
