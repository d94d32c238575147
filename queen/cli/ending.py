"""How a command that lasts is ended."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT and SIGTERM raise KeyboardInterrupt, also where a shell lets its background jobs ignore the first."""
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
