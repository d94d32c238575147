"""Arguments and options that several client commands share."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from queen.cli.client.connection import DEFAULT_URL, UsageError

Url = Annotated[str, typer.Option(help="URL of the server.", envvar="QUEEN_URL")]
Token = Annotated[
    str | None,
    typer.Option(
        help="Bearer token to send. Other users of this machine can see command lines: use the environment variable.",
        envvar="QUEEN_TOKEN",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
Queue = Annotated[str, typer.Argument(help="Name of the queue.", metavar="QUEUE", show_default=False)]
Group = Annotated[str, typer.Argument(help="Name of the consumer group.", metavar="GROUP", show_default=False)]
ForGroup = Annotated[str | None, typer.Option("--group", "-g", help="Consumer group.", show_default="queue mode")]
OfGroup = Annotated[str | None, typer.Option("--group", "-g", help="Only of this consumer group.", show_default=False)]
OfPartition = Annotated[str | None, typer.Option("--partition", "-p", help="Only this partition.", show_default=False)]

__all__ = [
    "DEFAULT_URL",
    "ForGroup",
    "Group",
    "Json",
    "OfGroup",
    "OfPartition",
    "Queue",
    "Token",
    "Url",
    "Yes",
    "moment",
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
