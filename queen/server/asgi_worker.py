"""gunicorn's own ``asgi`` worker, with two fixes.

- The original ignores the setting of the backlog and uses 100: a burst of returning long polls is refused.
- The original waits for open requests before it stops the application, and waiting long polls are open requests.

``queen.server.config`` switches its C parser off, because it never frees connections.
"""

import signal

from gunicorn.workers.gasgi import ASGIWorker

from queen.system.parent_death import die_with


class QueenAsgiWorker(ASGIWorker):  # type: ignore[misc]
    """A worker of gunicorn that serves ``queen.app:app``."""

    _deepened = False

    def init_process(self) -> None:
        """Runs in the worker's process: ends with gunicorn, also when that is killed."""
        die_with(self.ppid, signal.SIGTERM)
        super().init_process()

    def notify(self) -> None:
        """The heartbeat; with the first after the start the backlog is set."""
        super().notify()
        if self.servers and not self._deepened:
            self._deepened = True
            for wrapper in self.sockets:
                wrapper.sock.listen(self.cfg.backlog)

    def handle_exit_signal(self) -> None:
        """SIGTERM: answers what is in flight."""
        if self.alive:
            self.asgi.begin_stop()
        super().handle_exit_signal()

    def handle_quit_signal(self) -> None:
        """SIGINT and SIGQUIT: the same, with less patience afterwards."""
        if self.alive:
            self.asgi.begin_stop()
        super().handle_quit_signal()
