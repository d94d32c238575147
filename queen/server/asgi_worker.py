"""gunicorn's own ``asgi`` worker, with two of its habits mended.

- It listens with a backlog of 100 whatever the setting says: a burst of long polls that come back is refused.
- It waits for open requests before it ends the application, and parked long polls are open requests.

A third, that its C parser never frees connections, is met in ``queen.server.config`` by not using it.
"""

import signal

from gunicorn.workers.gasgi import ASGIWorker

from queen.server.parent_death import die_with


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
