"""Signals as a stream: handlers only record them, so that no code is interrupted."""

import select
import signal
import socket
from collections import deque
from types import FrameType, TracebackType
from typing import Self


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Replaces the default action; the number goes through the wake-up socket."""


class SignalStream:
    """Collects signals while it is open, in the main thread; ``wait`` returns one at a time."""

    def __init__(self, *signals: signal.Signals) -> None:
        self._signals = signals
        self._pending: deque[signal.Signals] = deque()

    def __enter__(self) -> Self:
        self._receiver, self._sender = socket.socketpair()
        self._sender.setblocking(False)
        self._handlers = [signal.signal(number, _ignore) for number in self._signals]
        self._wakeup = signal.set_wakeup_fd(self._sender.fileno())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in zip(self._signals, self._handlers, strict=True):
            signal.signal(number, handler)
        self._receiver.close()
        self._sender.close()

    def wait(self, seconds: float) -> signal.Signals | None:
        """The next signal, or None if there is none within ``seconds``."""
        if not self._pending and select.select([self._receiver], [], [], seconds)[0]:
            self._pending.extend(map(signal.Signals, self._receiver.recv(4096)))
        return self._pending.popleft() if self._pending else None
