"""The port on which this server listens. gunicorn knows it before it forks a worker; the worker reports it."""

from collections.abc import Iterable
from typing import Protocol


class Listener(Protocol):
    """A listening socket."""

    def getsockname(self) -> object:
        """Its address."""
        ...


class ListeningPort:
    """``number`` is ``None`` for a server that listens on no port, such as one on a Unix socket."""

    def __init__(self) -> None:
        self.number: int | None = None

    def learn(self, listeners: Iterable[Listener]) -> None:
        """Takes the port of the first listener that has one."""
        addresses = [listener.getsockname() for listener in listeners]
        self.number = next((address[1] for address in addresses if isinstance(address, tuple)), None)


LISTENING_PORT = ListeningPort()
