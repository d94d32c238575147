"""SQS in one worker: what its actions share."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar
from uuid import UUID

from msgspec import Struct

from queen.engine.context import Context
from queen.http.access import Access
from queen.http.request import QueenRequest
from queen.operations.server import Server
from queen.simple_mq import sqs_administration
from queen.simple_mq.sqs_requests import SqsQueue
from queen.sqs.addresses import Place, may_name, name_of_url
from queen.sqs.errors import unknown_queue
from queen.sqs.handles import Handles

T = TypeVar("T")
Find = Callable[[Context, str], Awaitable[SqsQueue | None]]

#: How long a worker uses what it knows of a queue. A change by another worker has effect after this time.
_KNOWN_S = 1.0
_KNOWN_MAX = 10_000


class SqsWorker:
    """SQS in one worker.

    Args:
        server: the worker.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self._known: dict[str, tuple[float, SqsQueue]] = {}
        self._handles: Handles | None = None

    async def handles(self) -> Handles:
        """Makes and checks receipt handles, with the secret of the database."""
        if self._handles is None:
            self._handles = Handles(await self.server.ask(_secret))
        return self._handles

    async def find(self, name: str, find: Find = sqs_administration.find_queue) -> SqsQueue | None:
        """A queue as it is now."""
        found = None
        if may_name(name):
            found = await self.server.run(lambda context: find(context, name))
        if found is None:
            self._known.pop(name, None)
            return None
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[name] = time.monotonic() + _KNOWN_S, found
        return found

    async def queue(self, name: str) -> SqsQueue:
        """A queue as it was a moment ago, or before an outage; raises an error if it does not exist."""
        until, known = self._known.get(name, (0.0, None))
        if known is None or until < time.monotonic():
            known = await self.find(name, sqs_administration.used_queue)
        if known is None:
            raise unknown_queue()
        return known

    async def names_of(self, ids: Iterable[UUID | None]) -> Mapping[UUID, str]:
        """The names of those queues that exist."""
        wanted = [id_ for id_ in ids if id_ is not None]
        if not wanted:
            return {}
        return await self.server.run(lambda context: sqs_administration.queue_names(context, wanted))

    def forget(self, name: str) -> None:
        """Forgets a queue that has changed."""
        self._known.pop(name, None)


async def _secret(context: Context) -> str:
    return await context.administration.peer_secret()


@lru_cache(maxsize=8)
def worker_of(server: Server) -> SqsWorker:
    """SQS in a worker; always the same."""
    return SqsWorker(server)


class Call(Struct, frozen=True, eq=False):
    """A request of a client.

    Attributes:
        sqs: the worker.
        req: HTTP's.
        place: how the client reaches the server.
        path: the part of the path that names a queue, if there is one.
        given: its parameters, a struct made from botocore's model.
    """

    sqs: SqsWorker
    req: QueenRequest
    place: Place
    path: str
    given: Any

    async def run(self, work: Callable[[Context], Awaitable[T]]) -> T:
        """The result of a function of administration."""
        return await self.sqs.server.run(work)

    @property
    def name(self) -> str:
        """The name of its queue."""
        return name_of_url(self.given.QueueUrl, self.path)

    async def queue(self) -> SqsQueue:
        """Its queue, as it was a moment ago."""
        self.req.queue = self.name
        return await self.sqs.queue(self.name)

    async def present_queue(self) -> SqsQueue:
        """Its queue, as it is now."""
        self.req.queue = self.name
        found = await self.sqs.find(self.name)
        if found is None:
            raise unknown_queue()
        return found

    async def on_queue(self, work: Callable[[SqsQueue], Awaitable[T | None]]) -> T:
        """The result of work on its queue; ``None`` is a queue that is gone, maybe for another one of its name."""
        found = await work(await self.queue())
        if found is None:
            self.sqs.forget(self.name)
            found = await work(await self.queue())
        if found is None:
            raise unknown_queue()
        return found


class Served(Struct, frozen=True):
    """How an action is served.

    Attributes:
        handler: its result, without what is empty; ``None``: it has none.
        access: the level that it requires.
        audited: whether it is an administrative change.
        of_queue: whether it can be sent to the URL of a queue.
    """

    handler: Callable[[Call], Awaitable[dict[str, Any] | None]]
    access: Access
    audited: bool = False
    of_queue: bool = True
