"""Sets, lists and deletes cron schedules: ``/api/v1/schedules``."""

from typing import Annotated

import falcon.asgi
import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queen.core import cron
from queen.core.administration import CronSchedule
from queen.core.errors import BadRequestError, NotFoundError
from queen.core.limits import CATCH_UP_MAX, SCHEDULE_NAME_CHARS_MAX
from queen.engine.handlers import timers
from queen.http import parameters, queries
from queen.http.access import READ_ONLY, READ_WRITE
from queen.http.answers import answer, shown, stamp, text
from queen.http.fields import Name, between, text_of
from queen.http.operation import Answer, operation
from queen.http.parsing import HEADERS_TEXT, check_headers, check_name
from queen.http.reading import read_json
from queen.http.request import QueenRequest
from queen.log.segment import decode_entry, encode_entry
from queen.operations.server import Server

_NAME = text_of(1, SCHEDULE_NAME_CHARS_MAX)


class ScheduleBody(Struct, forbid_unknown_fields=True):
    """A cron schedule of a queue.

    Attributes:
        queue: created if it is missing.
        name: a queue has one schedule per name; another one with it is replaced.
        cron: minute, hour, day of the month, month, day of the week.
        timeZone: in which the fields are meant, such as `Europe/Berlin`.
        catchUp: how many of the times that were missed, because no server ran, are made up for: the last ones. 0: none.
        partition: of the messages.
        payload: of each message.
        headers: of each message: texts by name.
    """

    queue: Name
    name: Annotated[str, Meta(extra_json_schema=_NAME)]
    cron: Name
    timeZone: str = "UTC"  # noqa: N815 - the interface's names
    catchUp: Annotated[int, between(0, CATCH_UP_MAX)] = 1  # noqa: N815
    partition: Name = "Default"
    payload: Raw = Raw(b"null")
    headers: dict[str, str] | None = None


class ScheduleSet(Struct, rename="camel"):
    """A schedule that was set, and its first time."""

    queue: str
    name: str
    next_at: str


class ScheduleElement(Struct, rename="camel"):
    """A schedule in a list; ``payload`` is null if it is encrypted and cannot be decrypted."""

    queue: str
    name: str
    cron: str
    time_zone: str
    catch_up: int
    partition: str
    payload: Raw
    next_at: str | None
    headers: dict[str, str] | UnsetType = UNSET


class ScheduleList(Struct):
    """A page of schedules."""

    schedules: list[ScheduleElement]
    pagination: queries.Pagination


class DeletedSchedule(Struct):
    """A deleted schedule."""

    success: bool
    queue: str
    name: str


_decoder = msgspec.json.Decoder(ScheduleBody)


def _checked(body: ScheduleBody) -> CronSchedule:
    check_name(body.queue, "queue")
    check_name(body.name, "name", SCHEDULE_NAME_CHARS_MAX)
    check_name(body.partition, "partition")
    check_name(body.cron, "cron")
    check_headers(body.headers or {}, "headers")
    if problem := cron.problem_of(body.cron, body.timeZone):
        field = "timeZone" if "time zone" in problem else "cron"
        raise BadRequestError(f"{field}: {problem}", field)
    if not 0 <= body.catchUp <= CATCH_UP_MAX:
        raise BadRequestError(f"catchUp must be a whole number from 0 to {CATCH_UP_MAX}, not {body.catchUp}", "catchUp")
    return CronSchedule(body.queue, body.name, body.cron, body.timeZone, body.catchUp, body.partition)


@operation(
    "POST",
    "/api/v1/schedules",
    "setSchedule",
    "Set a cron schedule",
    access=READ_WRITE,
    answers=[Answer("The schedule counts from now on", ScheduleSet)],
    errors=(400, 413, 503),
    description="At each time of the expression a message enters the log. Its transaction id is the name of the "
    "schedule, `@`, and the time in UTC.",
    body=ScheduleBody,  # not audited: the payload would stand in the log
)
async def set_schedule(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Replaces one with the same name."""
    body = await read_json(req, _decoder, server.body_bytes_max, {"headers": HEADERS_TEXT})
    schedule = _checked(body)
    message = encode_entry(bytes(body.payload), None, None, req.subject, body.headers)
    next_at = await server.run(lambda context: timers.set_schedule(context, schedule, message))
    answer(resp, ScheduleSet(schedule.queue, schedule.name, text(next_at)))


@operation(
    "GET",
    "/api/v1/schedules",
    "listSchedules",
    "List cron schedules",
    access=READ_ONLY,
    answers=[Answer("A page, by queue and name", ScheduleList)],
    errors=(400, 503),
    parameters=[parameters.QUEUE, *parameters.page(queries.LIMIT)],
)
async def list_schedules(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Of a queue, or of all."""
    queue, page = queries.name(req, "queue"), queries.page(req, queries.LIMIT)
    rows = await server.ask(lambda context: context.reads.timers.schedules(queue, page.limit, page.offset))
    found = []
    for row in rows:
        entry = decode_entry(row.message.encode())
        key_id = msgspec.json.decode(entry.keyId, type=str) if entry.keyId else None
        opened = shown(bytes(entry.payload).decode(), key_id, row.queue, row.partition, server.keys)
        found.append(
            ScheduleElement(
                row.queue, row.name, row.cron, row.time_zone, row.catch_up, row.partition, opened.payload,
                stamp(row.next_at), entry.headers_map() or UNSET,
            )
        )  # fmt: skip
    answer(resp, ScheduleList(found, page))


@operation(
    "DELETE",
    "/api/v1/schedules/{queue}/{name}",
    "deleteSchedule",
    "Delete a cron schedule",
    access=READ_WRITE,
    answers=[Answer("It does not fire any more", DeletedSchedule)],
    errors=(400, 404, 503),
    parameters=[
        parameters.path("queue", "Name of the queue; slashes must be encoded", slashes=True),
        parameters.path("name", "Name of the schedule", _NAME, slashes=True),
    ],
    audited=True,
)
async def delete_schedule(
    server: Server, _req: QueenRequest, resp: falcon.asgi.Response, queue: str, name: str
) -> None:
    """Messages of times that are past stay."""
    check_name(queue, "queue")
    check_name(name, "name", SCHEDULE_NAME_CHARS_MAX)
    if not await server.run(lambda context: timers.delete_schedule(context, queue, name)):
        raise NotFoundError("Schedule not found")
    answer(resp, DeletedSchedule(True, queue, name))
