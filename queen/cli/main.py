"""The command line: a table of commands. The module of a command is imported when it is called, not for ``--help``."""

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

#: Errors of a write if there is no space left.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Command(NamedTuple):
    """A command: name, location of its function or group of commands, and summary."""

    name: str
    place: str
    summary: str


#: By panel, in the order of ``queen --help``.
COMMANDS: dict[str, Sequence[Command]] = {
    "Server": (
        Command(
            "serve", "queen.cli.serve:serve", "Start the server, with an embedded PostgreSQL unless another is given."
        ),
        Command("init", "queen.cli.init:init", "Create or upgrade the database schema."),
        Command(
            "procedures",
            "queen.cli.procedures:procedures",
            "Return to stored procedures that the last upgrade replaced.",
        ),
        Command("settings", "queen.cli.settings:settings", "Print every setting with its default and meaning."),
        Command("spool", "queen.cli.spool:spool", "Inspect the spool, and retry or discard failed files."),
        Command("encryption", "queen.cli.encryption:encryption", "Manage keys of encrypted queues."),
        Command("meinheld", "queen.cli.meinheld:meinheld", "Build the experimental worker class meinheld."),
    ),
    "Client": (
        Command("push", "queen.cli.client.push:push", "Push a message, or the messages of a file."),
        Command("pop", "queen.cli.client.pop:pop", "Pop messages of a queue."),
        Command("ack", "queen.cli.client.ack:ack", "Acknowledge messages."),
        Command(
            "tail", "queen.cli.client.tail:tail", "Show the newest messages of a queue, and new ones as they arrive."
        ),
        Command("queues", "queen.cli.client.queues:queues", "Queues: list, show, pause, resume."),
        Command("dlq", "queen.cli.client.dlq:dlq", "Dead letters: list, replay, purge."),
        Command("groups", "queen.cli.client.groups:groups", "Consumer groups: list, show, pause, resume, delete."),
        Command("seek", "queen.cli.client.seek:seek", "Move the cursors of a consumer group."),
        Command("timers", "queen.cli.client.timers:timers", "Timers: list, cancel, fire."),
        Command("schedules", "queen.cli.client.schedules:schedules", "Cron schedules: list, create, delete."),
        Command("top", "queen.cli.client.top:top", "Show live throughput and lag per queue."),
    ),
    "Checks": (
        Command("doctor", "queen.cli.doctor:doctor", "Check PostgreSQL, schema and spool, and say what to do."),
        Command("verify", "queen.cli.verify:verify", "Check the guarantees of a server, over HTTP."),
        Command("audit", "queen.cli.audit:audit", "Check the whole log, and journals of a load test."),
        Command("bench", "bench.command:bench", "Run benchmarks of the server and its parts."),
    ),
}


def load(command: Command) -> Any:  # noqa: ANN401 - a command of typer's own copy of click
    """Imports the command, with its options."""
    module, _, name = command.place.partition(":")
    made = getattr(import_module(module), name)
    parent = typer.Typer()
    if isinstance(made, typer.Typer):
        parent.add_typer(made, name=command.name)
    else:
        parent.command(command.name)(made)
    return typer.main.get_group(parent).commands[command.name]


class _Commands(TyperGroup):
    """Loads only the command that is called, or whose options a shell completes."""

    def main(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as above
        try:
            return super().main(*arguments, **options)
        except OSError as problem:
            if problem.errno not in _FULL:
                raise
            # Python flushes standard output again at exit.
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
    """Placeholder in ``--help`` for a command that is not loaded."""


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
        return " (not installed, running from source)"


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """A message queue on PostgreSQL."""
    if isinstance(sys.stdout, TextIOWrapper):
        # Characters that the terminal's encoding lacks are shown escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
