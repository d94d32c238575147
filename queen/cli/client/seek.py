"""``queen seek``: moves the cursors of a consumer group."""

from typing import Annotated

import msgspec
import typer
from msgspec import UNSET, Raw, Struct, UnsetType

from queen.cli.client import showing
from queen.cli.client.asking import confirm
from queen.cli.client.connection import Server, at
from queen.cli.client.groups import on_queues
from queen.cli.client.names import unknown_group
from queen.cli.client.options import Group, OfPartition, Queue, Yes, moment
from queen.cli.client.server import on_server
from queen.cli.client.showing import clean, counted
from queen.cli.errors import UsageError
from queen.cli.output import Json
from queen.cli.progress import spinner

#: A queue may have a million partitions.
_PATIENCE_S = 3600.0


class Target(Struct, rename="camel", omit_defaults=True):
    """The target: one of the three."""

    to_beginning: bool = False
    to_end: bool = False
    timestamp: str | UnsetType = UNSET


class SeekResult(Struct, rename="camel"):
    """The number of moved cursors, or whether the one was moved."""

    partitions_updated: int | UnsetType = UNSET
    updated: bool = False


@on_server
def seek(
    server: Server,
    queue: Queue,
    group: Group,
    to_beginning: Annotated[bool, typer.Option("--to-beginning", help="Move to the oldest stored message.")] = False,
    to_end: Annotated[bool, typer.Option("--to-end", help="Move to the log end.")] = False,
    to: Annotated[
        str | None,
        typer.Option(
            help="Move to the first message pushed after a time: 2026-11-21T22:00:00Z, or 15m for 15 minutes ago.",
            metavar="TIME",
            show_default=False,
        ),
    ] = None,
    partition: OfPartition = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Move the cursors of a consumer group. It gets the messages after the new position, and none before it.

    --json prints the server's answer.
    """  # fmt: skip
    if to_beginning + to_end + (to is not None) != 1:
        raise UsageError("give one of --to-beginning, --to-end and --to")
    target = Target(to_beginning, to_end, UNSET if to is None else moment(to))
    if not any(each.name == group for _, each in on_queues(server, [queue])):
        raise unknown_group(server, group, queue)
    part = at("/partitions/{}", partition) if partition is not None else ""
    path = at("/api/v1/consumer-groups/{}/queues/{}", group, queue) + part + "/seek"
    place = f"{clean(queue)}, {clean(partition)}" if partition is not None else clean(queue)
    where = "to the beginning" if to_beginning else "to the end" if to_end else f"to {to}"
    confirm(f"Move the consumer group {clean(group)} on {place} {where}? Its leases there are released.", yes=yes)
    with spinner() as progress:
        progress.add_task("seeking")
        answer = server.post(Raw, path, target, _PATIENCE_S)
    sought = msgspec.json.decode(answer, type=SeekResult)
    number = int(sought.updated) if sought.partitions_updated is UNSET else sought.partitions_updated
    if json:
        showing.document(answer)
    else:
        showing.say(f"{counted(number, 'cursor')} moved {where}")
