"""``queen tail``: shows the newest messages of a queue, and new ones as they arrive.

It reads the log with the list of messages, like the dashboard, and is not a consumer (ADR 30).
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
import typer
from msgspec import Raw, Struct
from rich.text import Text

from queen.cli.client import showing
from queen.cli.client.connection import RefusedError, Server, UnreachableError
from queen.cli.client.names import exists, unknown_queue
from queen.cli.client.options import OfPartition, Queue
from queen.cli.client.server import on_server
from queen.cli.ending import interruptible
from queen.cli.output import Json, err, out

_ROUTE = "/api/v1/messages"
_PAGE = 10_000
#: Maximum offset of the list.
_PAGES = 2
_ALL_TIME = "1970-01-01T00:00:00Z"
#: A push gets its time before it commits: messages this much older than the newest one may still appear.
OVERLAP = timedelta(seconds=5)
#: Temporary errors: the server is unreachable, has no database, or is overloaded.
_PASSING = (429, 502, 503, 504)


class Message(Struct, rename="camel", frozen=True):
    """A message of a list, with the fields that are shown."""

    id: str
    transaction_id: str
    partition: str
    created_at: str
    data: Raw
    error: str = ""
    headers: dict[str, str] = {}


class Page(Struct):
    """A page of messages, newest first."""

    messages: list[Raw]


class Seen(Struct, frozen=True):
    """A message: the raw answer, and the fields that are shown."""

    raw: Raw
    message: Message

    @property
    def place(self) -> tuple[str, str]:
        """The sort key: by time, then in the order of the log."""
        return self.message.created_at, self.message.id


class Follower:
    """Finds new messages in overlapping lists."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._newest = ""

    @property
    def since(self) -> str:
        """The start time of the next list."""
        if not self._newest:
            return _ALL_TIME
        return (datetime.fromisoformat(self._newest) - OVERLAP).isoformat()

    def new(self, listed: Iterable[Seen]) -> list[Seen]:
        """Messages that no earlier list had, in the order of the log."""
        fresh = {each.message.id: each for each in listed if each.message.id not in self._known}
        self._known |= {number: each.message.created_at for number, each in fresh.items()}
        self._newest = max([self._newest, *[each.message.created_at for each in fresh.values()]])
        if self._newest:
            oldest = datetime.fromisoformat(self._newest) - 2 * OVERLAP
            self._known = {
                number: created for number, created in self._known.items() if datetime.fromisoformat(created) >= oldest
            }
        return sorted(fresh.values(), key=lambda each: each.place)


@on_server
def tail(
    server: Server,
    queue: Queue,
    partition: OfPartition = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", help="Number of existing messages to show first.", min=0, max=_PAGE)
    ] = 10,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for new messages.")] = True,
    interval: Annotated[float, typer.Option(help="Seconds between two requests.", min=0.05, max=60)] = 1.0,
    json: Json = False,
) -> None:
    """Show the newest messages of a queue, and new ones as they arrive, until Ctrl-C. Consumers are not affected.

    --json prints one line per message.
    """
    with interruptible():
        _look_for(server, queue, follow=follow)
        _follow(server, queue, partition, lines, interval if follow else None, json=json)


def _look_for(server: Server, queue: str, *, follow: bool) -> None:
    """Checks that the queue exists, or says that it will wait for it."""
    if exists(server, queue):
        return
    if not follow:
        raise unknown_queue(server, queue)
    err.print(f"waiting: {unknown_queue(server, queue)}", style="yellow", markup=False)


def _follow(
    server: Server, queue: str, partition: str | None, lines: int, interval: float | None, *, json: bool
) -> None:
    follower = Follower()
    first = _page(server, queue, partition, _ALL_TIME, max(lines, 1))
    follower.new(first)
    # From here on, older messages that are listed later count as seen.
    both = {each.message.id: each for each in (*first, *_listed(server, queue, partition, follower.since))}
    follower.new(both.values())
    _print(sorted(both.values(), key=lambda each: each.place)[-lines:] if lines else (), json=json)
    while interval is not None:
        time.sleep(interval)
        listed = _patiently(server, queue, partition, follower.since, interval)
        if len(listed) == _PAGE * _PAGES:
            err.print("messages arrive faster than they can be shown: some are skipped", style="yellow")
        _print(follower.new(listed), json=json)


def _patiently(server: Server, queue: str, partition: str | None, since: str, interval: float) -> list[Seen]:
    """A list; a temporary error is reported once, and the request is repeated."""
    told = False
    while True:
        try:
            return _listed(server, queue, partition, since)
        except (UnreachableError, RefusedError) as problem:
            if isinstance(problem, RefusedError) and problem.status not in _PASSING:
                raise
            if not told:
                err.print(f"waiting: {showing.clean(str(problem))}", style="yellow", markup=False)
            told = True
        time.sleep(max(interval, 1.0))


def _listed(server: Server, queue: str, partition: str | None, since: str) -> list[Seen]:
    """All messages since a time, as far back as lists go."""
    listed: list[Seen] = []
    for number in range(_PAGES):
        page = _page(server, queue, partition, since, _PAGE, number * _PAGE)
        listed += page
        if len(page) < _PAGE:
            break
    return listed


def _page(server: Server, queue: str, partition: str | None, since: str, limit: int, offset: int = 0) -> list[Seen]:
    parameters = {"queue": queue, "partition": partition, "from": since, "limit": limit, "offset": offset}
    raws = server.get(Page, _ROUTE, parameters).messages
    return [Seen(raw, msgspec.json.decode(raw, type=Message)) for raw in raws]


def _print(messages: Sequence[Seen], *, json: bool) -> None:
    if json:
        showing.lines(each.raw for each in messages)
        return
    for each in messages:
        message = each.message
        out.print(
            Text.assemble(
                (showing.local(message.created_at), "dim"), " ", (showing.clean(message.partition), "cyan"), " ",
                (showing.clean(message.transaction_id), "dim"), " ", *_headers(message.headers),
                message.error or showing.payload(message.data),
            )
        )  # fmt: skip


def _headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(f"{showing.clean(name)}={showing.clean(value)} ", "magenta") for name, value in headers.items()]
