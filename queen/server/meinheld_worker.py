"""meinheld's worker, experimental: greenlets on an event loop in C (docs/meinheld.md).

It does not notice disconnected clients, so it has no long polls. It has crashed under load, which loses the requests of
the worker; the guarantees hold nevertheless.
"""

import os
import signal
import threading
import time
from typing import Any

from meinheld import server
from meinheld.gmeinheld import MeinheldWorker

from queen.config import from_environment
from queen.server.wsgi import Environ, WsgiApp
from queen.system.parent_death import die_with

_HEARTBEAT_S = 1.0


def wait_in_greenlet(descriptor: int, environ: Environ) -> bool:  # noqa: ARG001 - part of the protocol
    """Waits for the answer while other requests continue; meinheld does not report disconnected clients."""
    server.trampoline(descriptor, read=True)
    return True


class QueenMeinheldWorker(MeinheldWorker):  # type: ignore[misc]
    """A worker of gunicorn that serves ``queen.app:app``."""

    def init_process(self) -> None:
        """Runs in the worker's process: ends with gunicorn, also when that is killed."""
        die_with(self.ppid, signal.SIGTERM)
        super().init_process()

    def load_wsgi(self) -> None:
        """Loads the ASGI application and puts the adapter around it; its engine starts here."""
        self.wsgi = WsgiApp(self.app.wsgi(), wait_in_greenlet, 0, from_environment().requests.body_bytes_max)

    def run(self) -> None:
        """Serves until it is told to stop."""
        # meinheld's own watchdog writes to gunicorn's file in a way that current versions of gunicorn do not read.
        threading.Thread(target=self._beat, name="queen-heartbeat", daemon=True).start()
        server.set_keepalive(self.cfg.keepalive)
        server.set_picoev_max_fd(self.cfg.worker_connections)
        server.set_listen_socket([listener.fileno() for listener in self.sockets])
        server.run(self.wsgi)
        self.wsgi.stop()

    def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ANN401, ARG002 - gunicorn's
        """SIGTERM: answers what is in flight."""
        server.stop(int(self.cfg.graceful_timeout))

    def handle_quit(self, sig: int, frame: Any) -> None:  # noqa: ANN401 - gunicorn's
        """SIGINT and SIGQUIT: the same."""
        self.handle_exit(sig, frame)

    def _beat(self) -> None:
        while self.ppid == os.getppid():
            self.notify()
            time.sleep(_HEARTBEAT_S)
