"""``queen messages``: shows and deletes single messages."""

from typing import Annotated

import msgspec
import typer
from msgspec import Raw, Struct

from queen.cli.client import showing
from queen.cli.client.asking import confirm
from queen.cli.client.connection import Server, at
from queen.cli.client.options import Yes
from queen.cli.client.server import on_server
from queen.cli.client.showing import clean
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
    consumed: bool
    lease_expires_at: str | None


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


@messages.command("show")
@on_server
def show(server: Server, partition_id: PartitionId, transaction_id: TransactionId, json: Json = False) -> None:
    """Show a message, and its state for each consumer group. Its traces: `queen traces show`.

    --json prints an object.
    """
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
    made = showing.Listing("group", "done", "leased until")
    for each in it.consumer_groups:
        made.add(each.name, "yes" if each.consumed else "", showing.local(each.lease_expires_at))
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
    answer = server.delete(Raw, at(_ROUTE, partition_id, transaction_id))
    if json:
        showing.document(answer)
    else:
        showing.say(f"{transaction_id} deleted")
