"""The command line: a table of commands. The module of a command is imported when it is called, not for ``--help``."""

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from io import TextIOWrapper
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperGroup

from queen import __distribution__
from queen.cli.ending import begin, end_at_once
from queen.cli.errors import ExitCode, FailedError
from queen.cli.output import err, even_unread, out
from queen.core.errors import QueenError, SettingError

#: Errors of a write if there is no space left.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


#: What typer raises for a command line that it cannot read.
_UsageError: type[Exception] = typer.BadParameter.__mro__[2]


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
        Command("shards", "queen.cli.shards:shards", "Show and change the databases of an installation."),
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
        Command(
            "queues",
            "queen.cli.client.queues:queues",
            "Queues: list, show, create, configure, delete, pause, resume.",
        ),
        Command(
            "sqs",
            "queen.cli.client.sqs.queues:queues",
            "Queues of SQS: list, show, create, configure, delete, purge; send, peek, receive, ack.",
        ),
        Command(
            "redrives", "queen.cli.client.sqs.redrives:redrives", "Moves of dead letters of SQS: list, start, cancel."
        ),
        Command("simple", "queen.cli.client.simple:queues", "Queues of simple-mq: list, show, purge."),
        Command("messages", "queen.cli.client.messages:messages", "Single messages: show, delete."),
        Command("dlq", "queen.cli.client.dlq:dlq", "Dead letters: list, replay, purge."),
        Command("groups", "queen.cli.client.groups:groups", "Consumer groups: list, show, pause, resume, delete."),
        Command("seek", "queen.cli.client.seek:seek", "Move the cursors of a consumer group."),
        Command("timers", "queen.cli.client.timers:timers", "Timers: list, cancel, fire."),
        Command("schedules", "queen.cli.client.schedules:schedules", "Cron schedules: list, create, delete."),
        Command("traces", "queen.cli.client.traces:traces", "Traces: list names, show those of a name or a message."),
        Command("maintenance", "queen.cli.client.maintenance:maintenance", "Maintenance modes: show, start, stop."),
        Command(
            "contexts", "queen.cli.client.contexts:contexts", "Names for servers: list, show, create, use, delete."
        ),
        Command("worker", "queen.cli.worker:worker", "Run functions that work on messages."),
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


def _code_of(problem: Exception) -> int:
    if isinstance(problem, FailedError):
        return problem.exit_code
    return ExitCode.IMPOSSIBLE if isinstance(problem, SettingError) else ExitCode.FAILED


def _told(problem: object, code: int) -> int:
    """Prints the one line of an error."""
    with even_unread():
        err.print("[bold red]error:[/]", end=" ")
        err.print(str(problem), markup=False)
    return code


def _usage(problem: Any) -> int:  # noqa: ANN401 - as above
    """The same for a usage error that typer has found; a group without a command prints its help."""
    if type(problem).__name__ == "NoArgsIsHelpError":
        problem.show()
        return ExitCode.IMPOSSIBLE
    text = " ".join(problem.format_message().split()).rstrip(".")
    command = problem.ctx.command_path if problem.ctx else "queen"
    return _told(f"{text}: see `{command} --help`", ExitCode.IMPOSSIBLE)


class _Commands(TyperGroup):
    """Loads only the command that is called, or whose options a shell completes."""

    def main(self, *arguments: Any, **options: Any) -> NoReturn:  # noqa: ANN401 - as above
        """Runs a command. All errors end here: with one line, and an exit code of the table."""
        try:
            code = super().main(*arguments, **{**options, "standalone_mode": False})
        except (FailedError, QueenError) as problem:
            code = _told(problem, _code_of(problem))
            if code == ExitCode.INTERRUPTED:
                # All is cleaned up. A thread of a library may wait forever for a lock that the interrupted one has.
                end_at_once()
        except _UsageError as problem:
            code = _usage(problem)
        except KeyboardInterrupt:
            code = ExitCode.INTERRUPTED
        except SystemExit as problem:
            # typer prints help with a console of its own, which fails when its reader has left.
            if not isinstance(problem.__context__, BrokenPipeError):
                raise
            code = ExitCode.OK
        except OSError as problem:
            if problem.errno not in _FULL:
                raise
            # Python flushes standard output again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            what = problem.filename or "the output"
            code = _told(f"{what} cannot be written: {problem.strerror}", ExitCode.FAILED)
        sys.exit(int(code or ExitCode.OK))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as above
        if args and f"{args[0]}s" in self.commands:
            # `queen queue create`: one is meant.
            args = [f"{args[0]}s", *args[1:]]
        name, found, rest = super().resolve_command(ctx, args)
        by_name = {command.name: command for commands in COMMANDS.values() for command in commands}
        command = load(by_name[name]) if found and name else found
        begin()
        return name, command, rest


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
