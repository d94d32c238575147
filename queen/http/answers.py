"""Answers of administration: encoding, times, and statistics that are computed for an answer."""

from datetime import UTC, datetime
from typing import Any

import falcon
import falcon.asgi
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from queen.core.errors import DecryptionError
from queen.engine.context import Context
from queen.engine.statistics_writer import write_counts
from queen.http.rendering import timestamp
from queen.security.keyring import Keyring
from queen.security.messages import open_payload

#: Statistics of queues with at most this many partitions and cursors are computed for the answer; those of others are
#: as old as ``statsAge`` says.
FRESH_ROWS_MAX = 5_000


class StatusOnly(Struct):
    """One word."""

    status: str


def answer(resp: falcon.asgi.Response, body: Any, status: int = 200) -> None:  # noqa: ANN401 - any struct
    """Answers a struct, or a list or mapping of structs."""
    resp.status = status
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(body)


def stamp(time: datetime | None) -> str | None:
    """ISO 8601 in UTC with milliseconds and ``Z``; the earliest or latest time for PostgreSQL's infinities."""
    if time is None:
        return None
    # asyncpg returns infinities without a time zone; converting them would overflow.
    return timestamp(time.astimezone(UTC) if time.tzinfo is not None else time, 3)


def text(time: datetime) -> str:
    """ISO 8601 in UTC with milliseconds and ``Z``."""
    return timestamp(time.astimezone(UTC), 3)


class Shown(Struct, frozen=True):
    """A stored payload for people: decrypted, or null and the reason."""

    payload: Raw
    error: str | UnsetType = UNSET
    code: str | UnsetType = UNSET


def shown(payload: str, key_id: str | None, queue: str, partition: str, keys: Keyring | None) -> Shown:
    """A payload, decrypted if it is stored encrypted."""
    if key_id is None:
        return Shown(Raw(payload))
    try:
        return Shown(Raw(open_payload(key_id, payload.encode(), queue, partition, keys)))
    except DecryptionError as problem:
        return Shown(Raw(b"null"), str(problem), problem.code)


def shown_headers(headers: str | None) -> dict[str, str] | UnsetType:
    """The headers of a message, as PostgreSQL has them; unset if it has none."""
    return UNSET if headers is None else msgspec.json.decode(headers, type=dict[str, str])


def age_s(time: datetime | None) -> int:
    """Whole seconds since a time of the database; -1 for ``None``."""
    return max(int((datetime.now(UTC) - time).total_seconds()), 0) if time is not None else -1


async def refresh(context: Context) -> None:
    """Refreshes the statistics of small queues."""
    await context.everywhere(lambda each: each.administration.statistics.refresh_smallest(FRESH_ROWS_MAX))


async def record(context: Context) -> None:
    """Stores the counts of this worker, so that an answer includes them."""
    await context.everywhere(lambda each: write_counts(each.counters, each.administration.statistics))
