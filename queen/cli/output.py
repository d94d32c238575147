"""What the commands print for people: on a terminal with colours, else plain and never wrapped."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console
from rich.markup import escape

_USAGE = 2
PIPE_CHARS = 1_000_000
"""How wide a line may be where nobody looks at a terminal: tables would be cut at 80."""


class ReaderLeft(SystemExit):
    """Whoever read standard output has enough: the command is done, and well."""


class _Console(Console):
    """A console whose reader may leave: ``queen tail … | head`` ends well."""

    def on_broken_pipe(self) -> NoReturn:
        """Whoever reads has enough, so the command is done."""
        self.quiet = True
        # Python flushes its streams once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())
        raise ReaderLeft(0)


# An emoji code, such as :heart:, is text like any other.
out = _Console(highlight=False, soft_wrap=True, emoji=False)
err = _Console(highlight=False, soft_wrap=True, emoji=False, stderr=True)
if not out.is_terminal:
    out.width = PIPE_CHARS


def fail(message: object, exit_code: int = 1) -> NoReturn:
    """Prints one line on standard error and ends the command."""
    with even_unread():
        err.print("[bold red]error:[/]", end=" ")
        err.print(str(message), markup=False)
    raise typer.Exit(exit_code)


def can_be_written(**files: Path | None) -> None:
    """Ends the command where the file of one of these options cannot be written.

    An hour of work must not end at a folder that is not there.
    """
    for option, path in files.items():
        if path and not (path.parent.is_dir() and os.access(path if path.exists() else path.parent, os.W_OK)):
            fail(f"--{option} {path} cannot be written. Name a file in a folder that is there, and is yours", _USAGE)


def even_unread() -> AbstractContextManager[None]:
    """Around what is printed amid work, or before the exit code is known: it goes on when whoever reads has left.

    Commands that only show end there.
    """
    return suppress(ReaderLeft)


def written(path: Path, text: str) -> bool:
    """Writes a file, or says on standard error why it cannot be; whether it was."""
    try:
        # A name of a file may be no text.
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as problem:
        with even_unread():
            err.print(f"[bold red]error:[/] {escape(str(path))} cannot be written: {problem.strerror}")
        return False
    return True


def conclude(exit_code: int, show: Callable[[], object], *files: tuple[Path | None, Callable[[], str]]) -> NoReturn:
    """Ends a command with what it came to: its files, what it prints, and an exit code that says it, too.

    The files come first, because who reads standard output may leave; that changes nothing of the exit code. What is
    printed is there even if a file cannot be written, which is then an error: 2, unless the verdict is worse.

    Args:
        exit_code: what it came to.
        show: prints it.
        files: where to write, if anywhere, and what makes the text.
    """
    for path, text in files:
        if path and not written(path, text()):
            exit_code = exit_code or _USAGE
    with even_unread():
        show()
    raise typer.Exit(exit_code)
