"""Output of commands for people: with colours on a terminal, otherwise plain and without wrapping."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from queen.cli.errors import ExitCode, UsageError

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]

PIPE_CHARS = 1_000_000
"""How wide a line may be where output is no terminal: tables would be cut at 80."""


class ReaderLeft(SystemExit):
    """The reader of standard output has closed it: the command ends successfully."""


class _Console(Console):
    """A console whose reader may close it: ``queen tail … | head`` ends without an error."""

    def on_broken_pipe(self) -> NoReturn:
        """The reader has closed the pipe: ends the command."""
        self.quiet = True
        # Python flushes its streams again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())
        raise ReaderLeft(0)


# Emoji codes, such as :heart:, are not replaced.
out = _Console(highlight=False, soft_wrap=True, emoji=False)
err = _Console(highlight=False, soft_wrap=True, emoji=False, stderr=True)
if not out.is_terminal:
    out.width = PIPE_CHARS


def can_be_written(**files: Path | None) -> None:
    """Ends the command if the file of one of these options cannot be written.

    Otherwise a missing folder could fail the command after an hour of work.
    """
    for option, path in files.items():
        if path and not (path.parent.is_dir() and os.access(path if path.exists() else path.parent, os.W_OK)):
            raise UsageError(
                f"--{option} {path} is not writable. Name a file in an existing folder that you may write to"
            )


def even_unread() -> AbstractContextManager[None]:
    """For output during work, or before the exit code is known: the command continues if the reader closes the output.

    Commands that only show end there.
    """
    return suppress(ReaderLeft)


def written(path: Path, text: str) -> bool:
    """Writes a file, or prints the error; returns whether it was written."""
    try:
        # A file name may be undecodable.
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as problem:
        with even_unread():
            err.print(f"[bold red]error:[/] {escape(str(path))} cannot be written: {problem.strerror}")
        return False
    return True


def conclude(exit_code: int, show: Callable[[], object], *files: tuple[Path | None, Callable[[], str]]) -> NoReturn:
    """Ends a command with its result: files, output and exit code.

    Files are written first, because the reader may close standard output; that does not affect the exit code. The
    output is printed even if a file cannot be written; then the exit code is 2, unless it is higher already.

    Args:
        exit_code: of the result.
        show: prints it.
        files: the file to write, if any, and the function that makes its text.
    """
    for path, text in files:
        if path and not written(path, text()):
            exit_code = exit_code or ExitCode.IMPOSSIBLE
    with even_unread():
        show()
    raise typer.Exit(exit_code)
