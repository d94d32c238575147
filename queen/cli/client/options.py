"""Arguments and options that several client commands share."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated

import typer

from queen.cli.client.completion import group_names, queue_names
from queen.cli.client.connection import DEFAULT_URL
from queen.cli.errors import UsageError

Url = Annotated[
    str | None,
    typer.Option(help="URL of the server; by default that of QUEEN_URL or of the context.", show_default=DEFAULT_URL),
]
Token = Annotated[
    str | None,
    typer.Option(
        help="Bearer token to send; by default that of the context, or QUEEN_TOKEN. Other users of this machine can "
        "see command lines.",
        show_default=False,
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        help="Server by name, from `queen contexts list`; by default that of QUEEN_CONTEXT, or the one in use.",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
Queue = Annotated[
    str, typer.Argument(help="Name of the queue.", metavar="QUEUE", show_default=False, autocompletion=queue_names)
]
AnyQueue = Annotated[
    str | None,
    typer.Argument(help="A queue.", metavar="QUEUE", show_default="all", autocompletion=queue_names),
]
OfQueue = Annotated[
    str, typer.Option("--queue", "-q", help="The queue.", show_default=False, autocompletion=queue_names)
]
OnQueue = Annotated[
    str | None,
    typer.Option(
        "--queue", "-q", help="Only on this queue.", show_default="all of its queues", autocompletion=queue_names
    ),
]
Group = Annotated[
    str,
    typer.Argument(help="Name of the consumer group.", metavar="GROUP", show_default=False, autocompletion=group_names),
]
ForGroup = Annotated[
    str | None,
    typer.Option("--group", "-g", help="Consumer group.", show_default="queue mode", autocompletion=group_names),
]
OfGroup = Annotated[
    str | None,
    typer.Option("--group", "-g", help="Only of this consumer group.", show_default=False, autocompletion=group_names),
]
Behind = Annotated[bool, typer.Option("--behind", help="Only those with messages that are not acknowledged.")]
OfPartition = Annotated[str | None, typer.Option("--partition", "-p", help="Only this partition.", show_default=False)]


class GroupSort(StrEnum):
    """The order of groups, and of the partitions of a group."""

    name = "name"
    lag = "lag"
    age = "age"


SortGroups = Annotated[
    GroupSort, typer.Option("--sort", help="Order: by name; lag: most messages first; age: longest wait first.")
]
Most = Annotated[
    int | None, typer.Option("--limit", "-n", help="Maximum to show.", min=1, max=1_000_000, show_default="all")
]
Search = Annotated[
    str | None, typer.Option("--search", help="Only those with this text in their name.", show_default=False)
]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}


def moment(text: str) -> str:
    """A time for the server: ISO 8601 unchanged; ``90s``, ``15m``, ``2h`` or ``3d`` mean that long ago.

    Raises:
        UsageError: it is neither.
    """
    if text == "now":
        return text
    number, unit = text[:-1], text[-1:]
    try:
        if unit in _UNITS and number.isdecimal():
            return (datetime.now(UTC) - timedelta(seconds=int(number) * _UNITS[unit])).isoformat()
        return datetime.fromisoformat(text).isoformat()
    except (ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is not a valid time: write 2026-11-21T22:00:00Z (UTC if it has no zone), or 15m for "
            "15 minutes ago"
        ) from None
