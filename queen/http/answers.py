"""Answers of administration: encoding, times, and how a resource gets at the stores."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import falcon
import falcon.asgi
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from queen.core.errors import DecryptionError
from queen.core.operations import JobType
from queen.engine.context import Context
from queen.engine.reporter import write_down
from queen.engine.thread import EngineThread
from queen.http.rendering import timestamp
from queen.security.keyring import Keyring
from queen.security.messages import open_payload

T = TypeVar("T")

#: Statistics of queues with so few partitions and cursors are computed for the answer itself; others are as old as
#: ``statsAge`` says.
FRESH_ROWS_MAX = 5_000


def answer(resp: falcon.asgi.Response, body: Any, status: int = 200) -> None:  # noqa: ANN401 - any struct
    """Makes a struct, or a list or mapping of some, the answer."""
    resp.status = status
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(body)


def stamp(time: datetime | None) -> str | None:
    """ISO 8601 in UTC with milliseconds and ``Z``; the first or last moment there is for PostgreSQL's infinities."""
    if time is None:
        return None
    # asyncpg gives infinities without a time zone; converting those would leave the calendar.
    return timestamp(time.astimezone(UTC) if time.tzinfo is not None else time, 3)


def text(time: datetime) -> str:
    """ISO 8601 in UTC with milliseconds and ``Z``."""
    return timestamp(time.astimezone(UTC), 3)


class Shown(Struct, frozen=True):
    """A stored payload for people: in clear, or null and why."""

    payload: Raw
    error: str | UnsetType = UNSET
    code: str | UnsetType = UNSET


def shown(payload: str, key_id: str | None, queue: str, partition: str, keys: Keyring | None) -> Shown:
    """A payload that may be stored encrypted, as pops deliver it."""
    if key_id is None:
        return Shown(Raw(payload))
    try:
        return Shown(Raw(open_payload(key_id, payload.encode(), queue, partition, keys)))
    except DecryptionError as problem:
        return Shown(Raw(b"null"), str(problem), problem.code)


def age_s(time: datetime | None) -> int:
    """Whole seconds since a time of the database; -1 for never."""
    return max(int((datetime.now(UTC) - time).total_seconds()), 0) if time is not None else -1


class Administrative:
    """A resource over the stores of administration."""

    def __init__(self, engine: EngineThread) -> None:
        self._engine = engine

    async def ask(self, question: Callable[[Context], Awaitable[T]]) -> T:
        """The result of a question that may be asked again when PostgreSQL was away."""

        async def work(context: Context) -> T:
            return await context.patiently(lambda _again: question(context))

        return await self.run(work)

    async def run(self, work: Callable[[Context], Awaitable[T]]) -> T:
        """The result of some work in the engine, on the connections of administration."""
        result: T = await self._engine.submit(JobType.CUSTOM, work).future
        return result


async def refresh(context: Context) -> None:
    """Brings the statistics of small queues up to this moment."""
    await context.administration.metrics.refresh_smallest(FRESH_ROWS_MAX)


async def record(context: Context) -> None:
    """Stores what this worker has counted, so that an answer shows it."""
    await write_down(context.meter, context.administration.metrics)
