"""gunicorn's ``gthread`` worker: WSGI, one thread per request. For environments that allow WSGI only."""

import signal
from typing import Any

from gunicorn.workers.gthread import ThreadWorker

from queen.config import from_environment
from queen.server import worker_classes
from queen.server.wsgi import WsgiApp, wait_in_thread
from queen.system.parent_death import die_with


class QueenThreadWorker(ThreadWorker):  # type: ignore[misc]
    """A worker of gunicorn that serves ``queen.app:app``, with one thread per concurrent request."""

    def init_process(self) -> None:
        """Runs in the worker's process: ends with gunicorn, also when that is killed."""
        die_with(self.ppid, signal.SIGTERM)
        super().init_process()

    def load_wsgi(self) -> None:
        """Loads the ASGI application and puts the adapter around it; its engine starts here."""
        settings = from_environment()
        self.wsgi = WsgiApp(
            self.app.wsgi(), wait_in_thread, worker_classes.waits_max(settings), settings.requests.body_bytes_max
        )

    def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ANN401 - a frame
        """SIGTERM: answers what is in flight."""
        if self.alive and isinstance(self.wsgi, WsgiApp):
            self.wsgi.begin_stop()
        super().handle_exit(sig, frame)

    def run(self) -> None:
        """Serves until it is told to stop, then stops the engine."""
        super().run()
        self.wsgi.stop()
