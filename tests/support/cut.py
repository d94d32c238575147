"""PostgreSQL behind a line that can be cut at the worst moment: after the log-in, with the first statement."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

_CHUNK = 1 << 16


class Line(socketserver.ThreadingTCPServer):
    """Passes on what both sides say; while ``cutting``, a client that has logged in says nothing more.

    Args:
        dsn: a PostgreSQL on a Unix socket.
    """

    daemon_threads = True

    def __init__(self, dsn: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.cutting = False
        self.path = parse_qs(urlsplit(dsn).query)["host"][0] + "/.s.PGSQL.5432"

    @property
    def dsn(self) -> str:
        """PostgreSQL at the other end."""
        return f"postgresql://postgres@127.0.0.1:{self.server_address[1]}/postgres?sslmode=disable"


class _Passing(socketserver.BaseRequestHandler):
    server: Line

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as database:
            database.connect(self.server.path)
            threading.Thread(target=_pass, args=(database, self.request), daemon=True).start()
            database.sendall(self.request.recv(_CHUNK))  # the log-in
            while (said := self.request.recv(_CHUNK)) and not self.server.cutting:
                database.sendall(said)
            database.shutdown(socket.SHUT_RDWR)


def _pass(database: socket.socket, client: socket.socket) -> None:
    try:
        while said := database.recv(_CHUNK):
            client.sendall(said)
        client.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


@contextmanager
def line_to(dsn: str) -> Iterator[Line]:
    """One for the length of the block."""
    with Line(dsn) as line:
        threading.Thread(target=line.serve_forever, daemon=True).start()
        try:
            yield line
        finally:
            line.shutdown()
