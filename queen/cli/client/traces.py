"""``queen traces``: what consumers recorded about messages."""

from typing import Annotated

import msgspec
import typer
from msgspec import Raw, Struct

from queen.cli.client import showing
from queen.cli.client.connection import Server, at
from queen.cli.client.options import Search
from queen.cli.client.server import on_server
from queen.cli.output import Json, err

_ROUTE = "/api/v1/traces"

traces = typer.Typer(name="traces", help="Traces: list names, show those of a name or a message.", no_args_is_help=True)

Limit = Annotated[int, typer.Option("--limit", "-n", help="Maximum to show.", min=1, max=1000)]


class TraceName(Struct):
    """A trace name with its counts."""

    trace_name: str
    trace_count: int
    message_count: int
    last_seen: str


class Names(Struct):
    """A page of trace names."""

    trace_names: list[Raw]


class Trace(Struct):
    """A trace, with the fields that are shown."""

    event_type: str
    data: Raw
    consumer_group: str
    worker_id: str
    created_at: str
    transaction_id: str = ""
    queue_name: str = ""


class Traces(Struct):
    """A page of traces."""

    traces: list[Raw]


@traces.callback()
def _traces() -> None:
    """Traces: list names, show those of a name or a message."""


@traces.command("list")
@on_server
def list_(server: Server, search: Search = None, limit: Limit = 100, json: Json = False) -> None:
    """List trace names, the latest first.

    --json prints an array.
    """
    found = server.get(Names, f"{_ROUTE}/names", {"search": search, "limit": limit}).trace_names
    if json:
        showing.document(found)
        return
    made = showing.Listing("name", "traces", "messages", "last", right=("traces", "messages"))
    for each in (msgspec.json.decode(raw, type=TraceName) for raw in found):
        made.add(each.trace_name, each.trace_count, each.message_count, showing.local(each.last_seen))
    if found:
        made.show()
    else:
        err.print("no trace names", style="dim")


@traces.command("show")
@on_server
def show(
    server: Server,
    name: Annotated[
        str, typer.Argument(help="Trace name, or the partition id of a message.", metavar="NAME", show_default=False)
    ],
    transaction_id: Annotated[
        str | None,
        typer.Argument(
            help="Transaction id of the message, behind its partition id.",
            metavar="[TRANSACTION_ID]",
            show_default=False,
        ),
    ] = None,
    limit: Limit = 100,
    json: Json = False,
) -> None:
    """Show the traces of a name over all messages, or those of one message; the oldest first.

    --json prints an array.
    """
    path = at("/by-name/{}", name) if transaction_id is None else at("/{}/{}", name, transaction_id)
    found = server.get(Traces, _ROUTE + path, {"limit": limit}).traces
    if json:
        showing.document(found)
        return
    made = showing.Listing("time", "event", "group", "worker", "queue", "transaction id", "data")
    for each in (msgspec.json.decode(raw, type=Trace) for raw in found):
        made.add(
            showing.local(each.created_at),
            each.event_type,
            each.consumer_group,
            each.worker_id,
            each.queue_name,
            each.transaction_id or transaction_id,
            showing.payload(each.data),
        )
    if found:
        made.show()
    else:
        err.print("no traces", style="dim")
