"""``queen maintenance``: the maintenance modes of all servers on a PostgreSQL."""

from enum import StrEnum
from typing import Annotated

import msgspec
import typer
from msgspec import Raw, Struct

from queen.cli.client import showing
from queen.cli.client.connection import Server
from queen.cli.client.server import on_server
from queen.cli.output import Json

_ROUTE = "/api/v1/system/maintenance"

maintenance = typer.Typer(name="maintenance", help="Maintenance modes: show, start, stop.", no_args_is_help=True)


class Mode(StrEnum):
    """A maintenance mode."""

    push = "push"
    pop = "pop"


_PATHS = {Mode.push: _ROUTE, Mode.pop: f"{_ROUTE}/pop"}

WhichMode = Annotated[
    Mode, typer.Argument(help="push: pushes go to the spool. pop: pops get no messages.", show_default=False)
]


class State(Struct, rename="camel"):
    """Both modes, and the messages in the spool of the server that was asked."""

    maintenance_mode: bool
    pop_maintenance_mode: bool
    buffered_messages: int


class Switched(Struct):
    """What a switch has done, in words."""

    message: str


@maintenance.callback()
def _maintenance() -> None:
    """Maintenance modes: show, start, stop."""


@maintenance.command("show")
@on_server
def show(server: Server, json: Json = False) -> None:
    """Show both modes, and how many messages wait in the spool of this server.

    --json prints the server's answer.
    """
    answer = server.get(Raw, _ROUTE)
    if json:
        showing.document(answer)
        return
    state = msgspec.json.decode(answer, type=State)
    showing.record(
        ("push maintenance", "on: pushes go to the spool" if state.maintenance_mode else "off"),
        ("pop maintenance", "on: pops get no messages" if state.pop_maintenance_mode else "off"),
        ("messages in the spool", state.buffered_messages),
    )


@maintenance.command("start")
@on_server
def start(server: Server, mode: WhichMode, json: Json = False) -> None:
    """Start a maintenance mode, for all servers on this PostgreSQL.

    --json prints the server's answer.
    """
    _switch(server, mode, on=True, json=json)


@maintenance.command("stop")
@on_server
def stop(server: Server, mode: WhichMode, json: Json = False) -> None:
    """Stop a maintenance mode.

    --json prints the server's answer.
    """
    _switch(server, mode, on=False, json=json)


def _switch(server: Server, mode: Mode, *, on: bool, json: bool) -> None:
    answer = server.post(Raw, _PATHS[mode], {"enabled": on})
    if json:
        showing.document(answer)
    else:
        showing.say(msgspec.json.decode(answer, type=Switched).message)
