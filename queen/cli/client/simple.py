"""``queen simple``: queues of simple-mq."""

import re
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer
from msgspec import Raw, Struct

from queen.cli.client import showing
from queen.cli.client.asking import confirm
from queen.cli.client.completion import beginning
from queen.cli.client.connection import RefusedError, Server, at
from queen.cli.client.names import unknown
from queen.cli.client.options import Most, Search, Yes
from queen.cli.client.server import on_server
from queen.cli.client.showing import clean, counted
from queen.cli.errors import FailedError
from queen.cli.output import Json, err

_LISTED = "/api/v1/simple-mq/queues"
_QUEUE = "/api/queues/{}"
_PAGE, _MESSAGES = 1000, 100
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NOT_FOUND = 404


class Shown(Struct):
    """A queue, with what is shown."""

    queue_id: str
    queue_name: str
    queue_size: int
    visibility_timeout: int
    max_deliveries: int
    current_message_count: int
    dlq_id: str | None
    max_message_bytes: int | None = None
    parent_id: str | None = None


class Queues(Struct):
    """A page of queues."""

    queues: list[Raw]
    next_cursor: str | None


class Message(Struct):
    """A message, of which only the id matters."""

    message_id: str


class Messages(Struct):
    """A page of messages."""

    messages: list[Message]


class Acked(Struct):
    """The result for one message."""

    deleted: bool


class AckedAll(Struct):
    """The results for a page."""

    results: list[Acked]


queues = typer.Typer(name="simple", help="Queues of simple-mq: list, show, purge.", no_args_is_help=True)


@queues.callback()
def _queues() -> None:
    """Queues of simple-mq: list, show, purge."""


def _names(ctx: Any, incomplete: str) -> list[str]:  # noqa: ANN401 - a context of typer's own copy of click
    return beginning(ctx, incomplete, lambda server: [_decoded(raw).queue_name for raw in _every(server, incomplete)])


Queue = Annotated[
    str,
    typer.Argument(
        help="Id of the queue, or its name if no other queue has it.", metavar="QUEUE", show_default=False,
        autocompletion=_names,
    ),
]  # fmt: skip


def _decoded(raw: Raw) -> Shown:
    return msgspec.json.decode(raw, type=Shown)


def _every(server: Server, search: str | None, limit: int | None = None) -> Iterator[Raw]:
    cursor, left = None, limit
    while left is None or left > 0:
        asked = {"search": search or None, "cursor": cursor, "limit": min(_PAGE, left or _PAGE)}
        page = server.get(Queues, _LISTED, asked)
        yield from page.queues
        left = None if left is None else left - len(page.queues)
        cursor = page.next_cursor
        if cursor is None:
            return


def _found(server: Server, queue: str) -> Raw:
    """The queue of an id or a name.

    Raises:
        FailedError: there is none, or there are several.
    """
    if _UUID.fullmatch(queue):
        try:
            return server.get(Raw, at(_QUEUE, queue))
        except RefusedError as problem:
            if problem.status != _NOT_FOUND:
                raise
            raise FailedError(unknown("queue of simple-mq", queue, (), "queen simple list")) from None
    named = [raw for raw in _every(server, queue) if _decoded(raw).queue_name == queue]
    if len(named) == 1:
        return named[0]
    if named:
        ids = ", ".join(_decoded(raw).queue_id for raw in named)
        raise FailedError(f"{len(named)} queues have the name {clean(queue)}: give the id of one, {ids}")
    names = [_decoded(raw).queue_name for raw in _every(server, None, _PAGE)]
    raise FailedError(unknown("queue of simple-mq", queue, names, "queen simple list"))


@queues.command("list")
@on_server
def list_(server: Server, search: Search = None, limit: Most = None, json: Json = False) -> None:
    """List queues of simple-mq with their messages, dead-letter queues too, in the order of their creation.

    --json prints an array.
    """
    found = list(_every(server, search, limit))
    if json:
        showing.document(found)
        return
    made = showing.Listing("queue", "id", "messages", "size", "dead letters of", right=("messages", "size"))
    for each in map(_decoded, found):
        made.add(each.queue_name, each.queue_id, each.current_message_count, each.queue_size, each.parent_id)
    if found:
        made.show()
    else:
        err.print("no queues", style="dim")


@queues.command("show")
@on_server
def show(server: Server, queue: Queue, json: Json = False) -> None:
    """Show a queue with its settings and messages.

    --json prints an object.
    """
    raw = _found(server, queue)
    if json:
        showing.document(raw)
        return
    found = _decoded(raw)
    showing.record(
        ("queue", found.queue_name),
        ("id", found.queue_id),
        ("messages", f"{found.current_message_count} of {found.queue_size}"),
        ("visibility timeout", showing.duration(found.visibility_timeout)),
        ("deliveries", found.max_deliveries),
        ("largest message", "the server's" if found.max_message_bytes is None else f"{found.max_message_bytes} bytes"),
        ("dead letters to", found.dlq_id or "no queue yet"),
    )


@queues.command("purge")
@on_server
def purge(server: Server, queue: Queue, yes: Yes = False, json: Json = False) -> None:
    """Delete the messages that a queue has now, hidden ones too. This cannot be undone.

    --json prints the number of deleted messages.
    """
    found = _decoded(_found(server, queue))
    left = found.current_message_count
    name = clean(found.queue_name)
    confirm(f"Purge the queue {name} with {counted(left, 'message')}? This cannot be undone.", yes=yes)
    place = f"{at(_QUEUE, found.queue_id)}/messages"
    deleted = 0
    # No more than there were: what comes meanwhile stays, unless others have deleted as many.
    while left > 0:
        page = server.get(Messages, f"{place}/peek", {"limit": min(_MESSAGES, left)})
        if not page.messages:
            break
        ids = [each.message_id for each in page.messages]
        done = server.post(AckedAll, f"{place}/ack", {"message_ids": ids})
        deleted += sum(each.deleted for each in done.results)
        left -= len(ids)
    if json:
        showing.document({"deleted": deleted})
    else:
        showing.say(f"{counted(deleted, 'message')} of {name} deleted")
