"""The command line: a table of commands. The module of one is imported when it is called, not for ``--help``."""

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from io import TextIOWrapper
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from queen import __distribution__
from queen.cli.output import err, out

#: What a write fails with where there is no room.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Command(NamedTuple):
    """A command: what it is called, where its function or group of commands is, and what it does in one line."""

    name: str
    place: str
    summary: str


#: By panel, in the order of ``queen --help``.
COMMANDS: dict[str, Sequence[Command]] = {
    "Server": (
        Command("serve", "queen.cli.serve:serve", "Start the server, with a PostgreSQL of its own unless it has one."),
        Command("init", "queen.cli.init:init", "Make or upgrade the schema in the database."),
        Command("settings", "queen.cli.settings:settings", "Print every setting with its default and meaning."),
        Command("spool", "queen.cli.spool:spool", "Look at the spool, and decide what becomes of failed files."),
        Command("encryption", "queen.cli.encryption:encryption", "Keys of encrypted queues."),
    ),
    "Client": (
        Command("push", "queen.cli.client.push:push", "Push a message, or a file of them."),
        Command("pop", "queen.cli.client.pop:pop", "Take messages of a queue."),
        Command("ack", "queen.cli.client.ack:ack", "Say what became of messages."),
        Command("tail", "queen.cli.client.tail:tail", "Show the newest messages of a queue, and those to come."),
        Command("queues", "queen.cli.client.queues:queues", "List queues, or show one."),
        Command("dlq", "queen.cli.client.dlq:dlq", "Dead letters: list, replay, purge."),
        Command("groups", "queen.cli.client.groups:groups", "Consumer groups: list, show, delete."),
        Command("seek", "queen.cli.client.seek:seek", "Put a consumer group somewhere else."),
        Command("top", "queen.cli.client.top:top", "Watch throughput and lag by queue."),
    ),
    "Checks": (
        Command("doctor", "queen.cli.doctor:doctor", "Examine PostgreSQL, schema and spool, and say what to do."),
        Command("verify", "queen.cli.verify:verify", "Check the guarantees of a server, over HTTP."),
        Command("audit", "queen.cli.audit:audit", "Judge a whole log, and journals of a load test."),
        Command("bench", "queen_bench.command:bench", "Measure the server and what it is made of."),
    ),
}


def load(command: Command) -> Any:  # noqa: ANN401 - a command of typer's own copy of click
    """The command itself, with its options; imports its module."""
    module, _, name = command.place.partition(":")
    made = getattr(import_module(module), name)
    parent = typer.Typer()
    if isinstance(made, typer.Typer):
        parent.add_typer(made, name=command.name)
    else:
        parent.command(command.name)(made)
    return typer.main.get_group(parent).commands[command.name]


class _Commands(TyperGroup):
    """Loads the one command that is called, or whose options a shell completes."""

    def main(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as above
        try:
            return super().main(*arguments, **options)
        except OSError as problem:
            if problem.errno not in _FULL:
                raise
            # Python flushes standard output once more at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            err.print("[bold red]error:[/]", end=" ")
            err.print(f"{problem.filename or 'the output'} cannot be written: {problem.strerror}", markup=False)
            sys.exit(1)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as above
        name, found, rest = super().resolve_command(ctx, args)
        by_name = {command.name: command for commands in COMMANDS.values() for command in commands}
        return name, load(by_name[name]) if found and name else found, rest


app = typer.Typer(
    name="queen",
    cls=_Commands,
    help="A message queue on PostgreSQL.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _in_its_place() -> None:
    """Stands in ``--help`` for a command that is not loaded."""


for _panel, _commands in COMMANDS.items():
    for _command in _commands:
        app.command(_command.name, help=_command.summary, rich_help_panel=_panel)(_in_its_place)


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(f"{__distribution__} {_version()}", markup=False)
        raise typer.Exit


def _version() -> str:
    try:
        return version(__distribution__)
    except PackageNotFoundError:
        return "(not installed, run from its source)"


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """A message queue on PostgreSQL."""
    if isinstance(sys.stdout, TextIOWrapper):
        # What a terminal's encoding does not know is shown escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
