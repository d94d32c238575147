"""Functions that work on messages: ``@worker.task(queue="emails")``, run by ``queen worker module:worker``.

It talks to a server over HTTP, or gets its messages over WebSockets. The guide is docs/worker.md.
"""

from queen.worker.client import Client, RefusedError
from queen.worker.runner import run
from queen.worker.socket import SocketClient
from queen.worker.tasks import Message, Middleware, Next, Reject, Retry, Task, Worker

__all__ = [
    "Client",
    "Message",
    "Middleware",
    "Next",
    "RefusedError",
    "Reject",
    "Retry",
    "SocketClient",
    "Task",
    "Worker",
    "run",
]
