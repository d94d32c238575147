"""``queen messages``: shows and deletes single messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import httpx
import msgspec
import typer
from msgspec import Raw, Struct

from queen.cli.client import showing
from queen.cli.client.asking import confirm
from queen.cli.client.connection import RefusedError, Server, at
from queen.cli.client.options import Yes
from queen.cli.client.server import on_server
from queen.cli.client.showing import clean
from queen.cli.errors import FailedError
from queen.cli.output import Json

_ROUTE = "/api/v1/messages/{}/{}"

messages = typer.Typer(name="messages", help="Single messages: show, delete.", no_args_is_help=True)

PartitionId = Annotated[
    str,
    typer.Argument(help="Partition id, as pops and lists name it.", metavar="PARTITION_ID", show_default=False),
]
TransactionId = Annotated[
    str, typer.Argument(help="Transaction id of the message.", metavar="TRANSACTION_ID", show_default=False)
]


class Group(Struct, rename="camel"):
    """The state of a message for a group."""

    name: str
    state: str
    lease_expires_at: str | None
    failed_at: str | None
    error_message: str | None


class Message(Struct, rename="camel"):
    """A message, with the fields that are shown."""

    id: str
    transaction_id: str
    queue: str
    partition: str
    status: str
    data: Raw
    created_at: str
    is_encrypted: bool
    trace_id: str | None
    error_message: str | None
    consumer_groups: list[Group]
    headers: dict[str, str] = {}
    error: str = ""


@messages.callback()
def _messages() -> None:
    """Single messages: show, delete."""


@contextmanager
def _looked_for(transaction_id: str) -> Iterator[None]:
    """Says more about a message that does not exist than that."""
    try:
        yield
    except RefusedError as problem:
        if problem.status != httpx.codes.NOT_FOUND:
            raise
        advice = "it is deleted, or `queen tail QUEUE --json` has its ids"
        raise FailedError(f"there is no message {clean(transaction_id)} in the partition: {advice}") from None


@messages.command("show")
@on_server
def show(server: Server, partition_id: PartitionId, transaction_id: TransactionId, json: Json = False) -> None:
    """Show a message, and its state for each consumer group. Its traces: `queen traces show`.

    --json prints an object.
    """
    with _looked_for(transaction_id):
        answer = server.get(Raw, at(_ROUTE, partition_id, transaction_id))
    if json:
        showing.document(answer)
        return
    it = msgspec.json.decode(answer, type=Message)
    showing.record(
        ("message", it.id),
        ("transaction id", it.transaction_id),
        ("queue, partition", f"{it.queue}, {it.partition}"),
        ("pushed", showing.local(it.created_at)),
        ("status", it.status),
        ("error", it.error_message),
        ("trace id", it.trace_id),
        ("encrypted", "yes" if it.is_encrypted else "no"),
        *[(f"header {name}", value) for name, value in it.headers.items()],
        ("payload", it.error or showing.payload(it.data)),
    )
    made = showing.Listing("group", "state", "leased until", "given up", "error")
    for each in it.consumer_groups:
        times = (showing.local(each.lease_expires_at), showing.local(each.failed_at))
        made.add(each.name, each.state, *times, each.error_message or "")
    if it.consumer_groups:
        showing.say("")
        made.show()


@messages.command("delete")
@on_server
def delete(
    server: Server,
    partition_id: PartitionId,
    transaction_id: TransactionId,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete a message for all groups, with its dead letters and traces. This cannot be undone.

    --json prints the server's answer.
    """
    confirm(f"Delete the message {clean(transaction_id)}? This cannot be undone.", yes=yes)
    with _looked_for(transaction_id):
        answer = server.delete(Raw, at(_ROUTE, partition_id, transaction_id))
    if json:
        showing.document(answer)
    else:
        showing.say(f"{transaction_id} deleted")
