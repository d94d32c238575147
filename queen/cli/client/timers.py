"""``queen timers``: messages that wait for their time."""

from typing import Annotated

import msgspec
import typer
from msgspec import Raw, Struct

from queen.cli.client import showing
from queen.cli.client.connection import Server, at
from queen.cli.client.names import there
from queen.cli.client.options import Queue
from queen.cli.client.server import on_server
from queen.cli.client.showing import clean
from queen.cli.errors import FailedError
from queen.cli.output import Json, err

_ROUTE = "/api/v1/timers"
_PAGE = 1000

timers = typer.Typer(name="timers", help="Timers: list, cancel, fire.", no_args_is_help=True)

Key = Annotated[str, typer.Argument(help="Key, from `queen timers list`.", metavar="KEY", show_default=False)]


class Timer(Struct, rename="camel"):
    """A timer, with the fields that are shown."""

    timer_key: str
    partition: str
    txn: str
    deliver_at: str


class Page(Struct, rename="camel"):
    """A page of timers."""

    rows: list[Raw]
    next_after: str | None


class Verdict(Struct):
    """What an operation did."""

    ok: bool
    status: str


class Verdicts(Struct):
    """The results of operations."""

    results: list[Verdict]


@timers.callback()
def _timers() -> None:
    """Timers: list, cancel, fire."""


@timers.command("list")
@on_server
def list_(
    server: Server,
    queue: Queue,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum to show.", min=1)] = 100,
    json: Json = False,
) -> None:
    """List the timers of a queue, by key.

    --json prints an array.
    """
    found: list[Raw] = []
    after: str | None = None
    there(server, queue)
    while len(found) < limit:
        wanted = {"limit": min(limit - len(found), _PAGE), "after": after}
        page = server.get(Page, at(f"{_ROUTE}/{{}}", queue), wanted)
        found += page.rows
        after = page.next_after
        if after is None:
            break
    if json:
        showing.document(found)
        return
    made = showing.Listing("key", "due", "partition", "transaction id")
    for each in (msgspec.json.decode(raw, type=Timer) for raw in found):
        made.add(each.timer_key, showing.local(each.deliver_at), each.partition, each.txn)
    if found:
        made.show()
    else:
        err.print("no timers", style="dim")
    if after is not None:
        err.print("there are more: --limit", style="dim")


@timers.command("cancel")
@on_server
def cancel(server: Server, queue: Queue, key: Key, json: Json = False) -> None:
    """Cancel a timer: its message is not delivered.

    --json prints the result.
    """
    verdict = server.delete(Verdict, at(f"{_ROUTE}/{{}}/{{}}", queue, key))
    _tell(verdict, key, "cancelled", json=json)


@timers.command("fire")
@on_server
def fire(server: Server, queue: Queue, key: Key, json: Json = False) -> None:
    """Deliver the message of a timer now.

    --json prints the result.
    """
    body = {"operations": [{"op": "fire", "queue": queue, "timerKey": key}]}
    [verdict] = server.post(Verdicts, _ROUTE, body).results
    _tell(verdict, key, "fired", json=json)


def _tell(verdict: Verdict, key: str, done: str, *, json: bool) -> None:
    if not verdict.ok:
        raise FailedError(
            f"there is no timer {clean(key)}: its message may have been delivered. `queen timers list` lists those "
            "that wait"
        )
    if json:
        showing.document(verdict)
    else:
        showing.say(f"{done} {clean(key)}")
