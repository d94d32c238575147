"""Names of queues and consumer groups, for the completion of a shell."""

from collections.abc import Callable
from typing import Any

from queen.cli.client import names
from queen.cli.client.connection import Server
from queen.cli.client.reach import connected
from queen.cli.errors import FailedError

#: A shell shows them below the line: more would not help.
_MOST = 100


def queue_names(ctx: Any, incomplete: str) -> list[str]:  # noqa: ANN401 - a context of typer's own copy of click
    """The queues whose names begin so."""
    return beginning(ctx, incomplete, lambda server: names.queue_names(server, incomplete))


def group_names(ctx: Any, incomplete: str) -> list[str]:  # noqa: ANN401 - as above
    """The consumer groups whose names begin so, of the queue that is given, if one is."""
    return beginning(ctx, incomplete, lambda server: names.group_names(server, ctx.params.get("queue")))


def beginning(ctx: Any, incomplete: str, look: Callable[[Server], list[str]]) -> list[str]:  # noqa: ANN401 - as above
    """What begins so among the names that a function finds on the server of the command."""
    try:
        with connected(*(ctx.params.get(name) for name in ("url", "token", "context"))) as server:
            return [name for name in look(server) if name.startswith(incomplete)][:_MOST]
    except FailedError:
        # The line that is being typed is no place for errors.
        return []
