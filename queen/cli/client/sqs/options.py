"""Arguments and options of commands for queues of SQS."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from queen.cli.client.completion import beginning
from queen.cli.client.sqs.connection import Sqs
from queen.cli.errors import UsageError


def queue_names(ctx: Any, incomplete: str) -> list[str]:  # noqa: ANN401 - a context of typer's own copy of click
    """The queues whose names begin so, for the completion of a shell."""
    return beginning(ctx, incomplete, lambda server: Sqs(server).names(incomplete))


Queue = Annotated[
    str,
    typer.Argument(help="Name of the queue.", metavar="QUEUE", show_default=False, autocompletion=queue_names),
]
Attributes = Annotated[
    list[str] | None,
    typer.Option(
        "--attribute",
        "-a",
        help="An attribute as SQS names it, such as VisibilityTimeout=60; may be repeated.",
        metavar="NAME=VALUE",
        show_default=False,
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", help="A tag; may be repeated.", metavar="NAME=VALUE", show_default=False),
]
DeadLetters = Annotated[
    str | None,
    typer.Option(
        "--dead-letters",
        help="Queue for messages that were received too often.",
        metavar="QUEUE",
        show_default=False,
        autocompletion=queue_names,
    ),
]
MaxReceives = Annotated[
    int | None,
    typer.Option(help="Receives before a message becomes a dead letter.", min=1, max=1000, show_default="10"),
]
_RECEIVES = 10


def pairs(given: Sequence[str] | None, option: str) -> dict[str, str]:
    """Names and values of an option that may be repeated."""
    found: dict[str, str] = {}
    for each in given or ():
        name, separator, value = each.partition("=")
        if not separator or not name:
            raise UsageError(f"{option} {each!r} must be NAME=VALUE")
        found[name] = value
    return found


def attributes(
    sqs: Sqs, given: Sequence[str] | None, dead_letters: str | None, max_receives: int | None
) -> dict[str, str]:
    """The attributes of options."""
    found = pairs(given, "--attribute")
    if dead_letters is None:
        if max_receives is not None:
            raise UsageError("--max-receives needs --dead-letters")
        return found
    policy = {"deadLetterTargetArn": sqs.arn(dead_letters), "maxReceiveCount": max_receives or _RECEIVES}
    return {**found, "RedrivePolicy": msgspec.json.encode(policy).decode()}
