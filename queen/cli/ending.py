"""Signals that end a long-running command."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT and SIGTERM raise KeyboardInterrupt, even if a shell made its background jobs ignore SIGINT."""
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
