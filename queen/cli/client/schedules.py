"""``queen schedules``: cron schedules of queues."""

from typing import Annotated

import msgspec
import typer
from msgspec import Raw, Struct

from queen.cli.client import showing
from queen.cli.client.connection import Server, at
from queen.cli.client.names import there
from queen.cli.client.options import AnyQueue, Queue
from queen.cli.client.server import on_server
from queen.cli.client.showing import clean
from queen.cli.errors import UsageError
from queen.cli.output import Json, err

_ROUTE = "/api/v1/schedules"
_PAGE = 1000

schedules = typer.Typer(name="schedules", help="Cron schedules: list, create, delete.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the schedule.", metavar="NAME", show_default=False)]


class Schedule(Struct, rename="camel"):
    """A schedule, with the fields that are shown."""

    queue: str
    name: str
    cron: str
    time_zone: str
    catch_up: int
    next_at: str | None
    payload: Raw


class Page(Struct):
    """A page of schedules."""

    schedules: list[Raw]


class Made(Struct, rename="camel"):
    """A schedule that was set."""

    next_at: str


@schedules.callback()
def _schedules() -> None:
    """Cron schedules: list, create, delete."""


@schedules.command("list")
@on_server
def list_(
    server: Server,
    queue: AnyQueue = None,
    json: Json = False,
) -> None:
    """List cron schedules, by queue and name.

    --json prints an array.
    """
    found: list[Raw] = []
    if queue is not None:
        there(server, queue)
    while True:
        page = server.get(Page, _ROUTE, {"queue": queue, "limit": _PAGE, "offset": len(found)}).schedules
        found += page
        if len(page) < _PAGE:
            break
    if json:
        showing.document(found)
        return
    made = showing.Listing("queue", "name", "cron", "time zone", "next", "catch-up", "payload", right=("catch-up",))
    for each in (msgspec.json.decode(raw, type=Schedule) for raw in found):
        next_at = showing.local(each.next_at) if each.next_at else "never"
        made.add(
            each.queue, each.name, each.cron, each.time_zone, next_at, each.catch_up, showing.payload(each.payload)
        )
    if found:
        made.show()
    else:
        err.print("no schedules", style="dim")


@schedules.command("create")
@on_server
def create(
    server: Server,
    queue: Queue,
    name: Name,
    cron: Annotated[
        str,
        typer.Argument(
            help='Minute, hour, day of the month, month, day of the week: "30 7 * * MON-FRI".',
            metavar="CRON",
            show_default=False,
        ),
    ],
    payload: Annotated[str, typer.Option(help="Payload of each message: JSON.")] = "null",
    time_zone: Annotated[str, typer.Option(help="Time zone in which CRON is meant, such as Europe/Berlin.")] = "UTC",
    catch_up: Annotated[
        int, typer.Option(help="How many of the times that no server was there for are made up for: the last ones.")
    ] = 1,
    partition: Annotated[str, typer.Option("--partition", "-p", help="Partition of the messages.")] = "Default",
    json: Json = False,
) -> None:
    """Set a cron schedule of a queue, or replace the one with its name.

    --json prints the server's answer.
    """
    body = {
        "queue": queue, "name": name, "cron": cron, "timeZone": time_zone, "catchUp": catch_up, "partition": partition,
        "payload": Raw(payload.encode(errors="surrogateescape")),
    }  # fmt: skip
    try:
        msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeEncodeError) as problem:
        raise UsageError(f"--payload is not JSON: {problem}") from None
    answer = server.post(Raw, _ROUTE, body)
    if json:
        showing.document(answer)
    else:
        first = msgspec.json.decode(answer, type=Made).next_at
        showing.say(f"set {clean(name)}; first at {showing.local(first)}")


@schedules.command("delete")
@on_server
def delete(server: Server, queue: Queue, name: Name, json: Json = False) -> None:
    """Delete a cron schedule of a queue.

    --json prints the server's answer.
    """
    answer = server.delete(Raw, at(f"{_ROUTE}/{{}}/{{}}", queue, name))
    if json:
        showing.document(answer)
    else:
        showing.say(f"deleted {clean(name)}")
