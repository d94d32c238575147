"""A command of a server: it gets the server that its options choose."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import Parameter, signature
from typing import Any, Concatenate, ParamSpec

from queen.cli.client.connection import RefusedError, Server
from queen.cli.client.names import unknown_group, unknown_queue
from queen.cli.client.options import Context, Token, Url
from queen.cli.client.reach import connected

P = ParamSpec("P")
Command = Callable[..., None]

_NOT_FOUND = 404
_OPTIONS = {"url": Url, "token": Token, "context": Context}


def on_server(work: Callable[Concatenate[Server, P], None]) -> Command:
    """A command that gets a server, chosen by the options --url, --token and --context, which are added to its own."""
    own = list(signature(work).parameters.values())[1:]
    added = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in _OPTIONS.items()]

    def command(url: str | None = None, token: str | None = None, context: str | None = None, **given: Any) -> None:  # noqa: ANN401 - options of any type
        with connected(url, token, context) as server, _explaining(server, given.get("group"), given.get("queue")):
            work(server, **given)  # type: ignore[call-arg]

    command.__name__, command.__doc__ = work.__name__, work.__doc__
    command.__signature__ = signature(work).replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in [*own, *added]}
    return command


@contextmanager
def _explaining(server: Server, group: str | None, queue: str | None) -> Iterator[None]:
    """Says of a queue or group that the server does not know which one may be meant."""
    try:
        yield
    except RefusedError as problem:
        if problem.status == _NOT_FOUND and problem.detail.startswith("Queue not found") and queue is not None:
            raise unknown_queue(server, queue) from None
        if problem.status == _NOT_FOUND and problem.detail.startswith("Consumer group not found") and group is not None:
            raise unknown_group(server, group, queue) from None
        raise
