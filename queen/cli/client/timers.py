"""``queen timers``: messages that wait for their time."""

from typing import Annotated

import msgspec
import typer
from msgspec import Raw, Struct

from queen.cli.client import showing
from queen.cli.client.connection import DEFAULT_URL, FailedError, at, connected
from queen.cli.client.options import Json, Queue, Token, Url
from queen.cli.client.showing import clean
from queen.cli.output import err

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
def list_(
    queue: Queue,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum to show.", min=1)] = 100,
    json: Json = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """List the timers of a queue, by key.

    --json prints an array.
    """
    found: list[Raw] = []
    after: str | None = None
    with connected(url, token) as server:
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
def cancel(queue: Queue, key: Key, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Cancel a timer: its message is not delivered."""
    with connected(url, token) as server:
        verdict = server.delete(Verdict, at(f"{_ROUTE}/{{}}/{{}}", queue, key))
        _tell(verdict, key, "cancelled")


@timers.command("fire")
def fire(queue: Queue, key: Key, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Deliver the message of a timer now."""
    body = {"operations": [{"op": "fire", "queue": queue, "timerKey": key}]}
    with connected(url, token) as server:
        [verdict] = server.post(Verdicts, _ROUTE, body).results
        _tell(verdict, key, "fired")


def _tell(verdict: Verdict, key: str, done: str) -> None:
    if not verdict.ok:
        raise FailedError(f"There is no timer {clean(key)}: its message may have been delivered")
    showing.say(f"{done} {clean(key)}")
