"""gunicorn's worker: uvicorn, with a shutdown that answers long polls."""

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from types import FrameType
from typing import Any

from gunicorn.arbiter import Arbiter
from uvicorn.config import Config
from uvicorn.server import Server
from uvicorn_worker import UvicornWorker

from queen.config import Settings, from_environment
from queen.core import limits
from queen.server.connections import CHECK_S, Bounds, Connections
from queen.server.protocol import OneWriteProtocol
from queen.server.websocket import QueenWebSocket
from queen.system import open_files
from queen.system.memory import return_large_pieces
from queen.system.parent_death import die_with

_COLLECT_AFTER_OBJECTS = 50_000
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


CloseSockets = Callable[[], Awaitable[None]]


class StoppingServer(Server):
    """A uvicorn server that tells the application when the shutdown begins.

    uvicorn waits for the connections before it tells the application (``lifespan.shutdown``), and a waiting long poll
    would keep its connection until the graceful timeout.
    """

    def __init__(self, config: Config, begin_stop: Callable[[], None], close_sockets: CloseSockets) -> None:
        super().__init__(config)
        self._begin_stop, self._close_sockets = begin_stop, close_sockets

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begins the shutdown, in a signal handler; only once."""
        if not self.should_exit:
            self._begin_stop()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes WebSockets gracefully first: uvicorn would close them at once, with 1012."""
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await self._close_sockets()
        except TimeoutError:
            logging.getLogger("queen.server").warning("Some WebSockets could not be closed in time")
        await super().shutdown(sockets)


class QueenWorker(UvicornWorker):  # type: ignore[misc]
    """A worker of gunicorn that serves ``queen.app:app``."""

    CONFIG_KWARGS = {  # noqa: RUF012 - uvicorn_worker's way to configure
        "loop": "uvloop",
        # Costs memory and CPU per socket, and JSON of a few hundred bytes gains little.
        "ws_per_message_deflate": False,
        "lifespan": "on",
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
    }

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - gunicorn's
        super().__init__(*arguments, **options)
        self.config.timeout_graceful_shutdown = _seconds_to_finish(self.cfg.graceful_timeout)
        settings = from_environment()
        self._connections = Connections(_bounds(settings))
        self.config.http = partial(OneWriteProtocol, self._connections)
        self.config.ws = partial(QueenWebSocket, self._connections)
        self.config.ws_max_size = limits.SOCKET_FRAME_BYTES_MAX
        self.config.ws_ping_interval = self.config.ws_ping_timeout = settings.delivery.socket_ping_s
        # Its lines about start and stop repeat gunicorn's.
        if self.log.error_log.level > logging.DEBUG:
            logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, self.log.error_log.level))

    def init_process(self) -> None:
        """Runs in the worker's process: ends with gunicorn, also when that is killed."""
        die_with(self.ppid, signal.SIGTERM)
        return_large_pieces()
        super().init_process()

    async def _serve(self) -> None:
        self.config.app = self.wsgi
        server = StoppingServer(self.config, self.wsgi.begin_stop, self.wsgi.close_sockets)
        # gunicorn sends SIGQUIT when it is interrupted, which uvicorn_worker ignores. The others belong to uvicorn, but
        # it restores and raises them again at the end: by default that kills the process.
        for number in _STOP_SIGNALS:
            signal.signal(number, server.handle_exit)
        heartbeat = asyncio.create_task(self._beat(server))
        _spare_collections()
        # The raw sockets: gunicorn's wrappers fail if uvloop has closed them already.
        await server.serve(sockets=[wrapper.sock for wrapper in self.sockets])
        heartbeat.cancel()
        if not server.started:
            sys.exit(Arbiter.WORKER_BOOT_ERROR)

    async def _beat(self, server: Server) -> None:
        """Heartbeat for gunicorn, also during the shutdown: uvicorn's own ends when a shutdown begins."""
        loop = asyncio.get_running_loop()
        while True:
            self.notify()
            self._connections.check(server.server_state.connections, loop.time())  # type: ignore[arg-type]
            await asyncio.sleep(CHECK_S)


def _bounds(settings: Settings) -> Bounds:
    return Bounds(
        head_bytes_max=limits.HEAD_BYTES_MAX,
        headers_max=limits.HEADERS_MAX,
        url_bytes_max=limits.URL_BYTES_MAX,
        request_timeout_s=settings.requests.timeout_s,
        connections_max=open_files.connections(settings),
        held_bytes_max=settings.requests.held_bytes_max,
        body_bytes_max=settings.requests.body_bytes_max,
    )


def _spare_collections() -> None:
    """Exempts permanent objects from garbage collection, and runs it less often.

    Requests are freed by reference counting and leave few cycles. Measured: 7 % of the CPU of a push went into
    collections with the default threshold of 700 objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER_OBJECTS, *gc.get_threshold()[1:])


def _seconds_to_finish(graceful_timeout_s: float) -> float:
    """Time for requests in flight after the start of a shutdown; the rest is for the application to close."""
    return graceful_timeout_s - min(2.0, graceful_timeout_s / 2)
