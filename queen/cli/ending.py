"""Signals that end a long-running command."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from queen.cli.errors import ExitCode


def end_at_once(*_: object) -> NoReturn:
    """The handler of SIGINT until a command begins: an exception in the middle of an import may be lost."""
    os._exit(ExitCode.INTERRUPTED)


def begin() -> None:
    """A command begins: from here on SIGINT raises KeyboardInterrupt, so that it can clean up."""
    if signal.getsignal(signal.SIGINT) is end_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT and SIGTERM raise KeyboardInterrupt, even if a shell made its background jobs ignore SIGINT.

    By Python's own handler: asyncio cancels its task only where it finds that.
    """
    before = [
        (number, signal.signal(number, handler))
        for number, handler in (
            (signal.SIGINT, signal.default_int_handler),
            (signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT)),
        )
    ]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
