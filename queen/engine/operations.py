"""The table of operations: kind of job, handler, and which jobs must not be in two calls at once."""

from collections.abc import Awaitable, Callable, Container, Hashable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from queen.core.errors import QueenError
from queen.core.operations import JobType, Pop, Popped, Push, Pushed, Transaction
from queen.core.simple_mq import Dequeued, Enqueue
from queen.engine.context import Context
from queen.engine.directory import Directory
from queen.engine.handlers import simple_mq
from queen.engine.handlers.ack import ack
from queen.engine.handlers.failover import (
    cycle_behind_spool,
    pop_unless_paused,
    push_or_spool,
    transaction_behind_spool,
)
from queen.engine.handlers.give_back import give_back
from queen.engine.handlers.locks import (
    locks_of_ack,
    locks_of_cycle,
    locks_of_enqueue,
    locks_of_pop,
    locks_of_push,
    locks_of_renewal,
    locks_of_transaction,
)
from queen.engine.handlers.push import announce, messages_by_queue
from queen.engine.handlers.renew_lease import renew_lease
from queen.engine.ports import Lock

Handler = Callable[[Context, Sequence[Any]], Awaitable[Sequence[Any]]]


class Waiting(Struct, frozen=True):
    """How requests of a kind wait.

    Attributes:
        nothing: the answer when nothing came in time.
        give_back: takes back what was found for a sender who has gone meanwhile.
        count: counts what a sender is answered.
    """

    nothing: Any
    give_back: Callable[[Context, Any, Any], Awaitable[None]]
    count: Callable[[Context, Any, Any], None]


class News(Struct, frozen=True):
    """What requests of a kind bring to those who wait.

    Attributes:
        arrivals: the messages of requests, by queue.
        announce: tells of those that were stored, except at places that know already.
    """

    arrivals: Callable[[Iterable[Any]], Mapping[str, int]]
    announce: Callable[[Context, Sequence[Any], Sequence[Any], Container[Hashable]], None]


class Operation(Struct, frozen=True):
    """How a kind of job is carried out.

    Attributes:
        handler: takes the requests of a batch and returns a result each, or the error of its call, the same for those
            that shared it (``queen.engine.failures``); whatever it raises, nothing was changed or the batch may be
            repeated.
        key: jobs with the same key are never in two calls at the same time.
        size: bytes that a request adds to a call.
        items: messages or acks that a request adds to a call.
        cold: it is carried out on the connections for everything else, so that it never delays a message.
        locks: what a request locks, as far as the worker knows; nothing for kinds whose locks nobody can name.
        news: for kinds that bring messages, of which the engine tells when they are answered; others do it themselves.
        waiting: for kinds whose requests may wait, and say with ``wait_ms`` how long; the handler then returns a
            ``Look`` each, or a result that is the answer although it may be empty.
    """

    handler: Handler
    key: Callable[[Any], Hashable] = lambda _request: None
    size: Callable[[Any], int] = lambda _request: 0
    items: Callable[[Any], int] = lambda _request: 1
    cold: bool = False
    locks: Callable[[Directory, Any], frozenset[Lock]] = lambda _directory, _request: frozenset()
    news: News | None = None
    waiting: Waiting | None = None


def _pop_key(request: Pop) -> Hashable:
    """Two calls for one group would find each other's locks, and less than there is."""
    return (request.queue, request.group, request.namespace, request.task)


async def _give_back(context: Context, request: Pop, popped: Popped) -> None:
    await give_back(context, popped, request.group)


def _count(context: Context, request: Pop, popped: Popped) -> None:
    context.meter.pop(request, popped)


def _enqueue_size(request: Enqueue) -> int:
    return request.size


def _push_size(request: Push) -> int:
    return sum([len(lot.body) for lot in request.lots])


def _announce(context: Context, requests: Sequence[Push], results: Sequence[Any], besides: Container[Hashable]) -> None:
    """What waits in the spool is told of when it is stored."""
    stored = [request for request, result in zip(requests, results, strict=True) if isinstance(result, Pushed)]
    announce(context, stored, besides)


def _transaction_size(request: Transaction) -> int:
    return _push_size(request.push)


async def custom(context: Context, requests: Sequence[Callable[[Context], Awaitable[Any]]]) -> list[Any]:
    """Runs functions that bring their own calls; one after another, since each may be slow."""
    return [await _run(context, request) for request in requests]


async def _run(context: Context, request: Callable[[Context], Awaitable[Any]]) -> Any:  # noqa: ANN401 - its result
    try:
        return await request(context)
    except QueenError as problem:
        return problem


OPERATIONS: Mapping[JobType, Operation] = {
    JobType.PUSH: Operation(
        push_or_spool,
        size=_push_size,
        items=lambda request: request.items,
        locks=locks_of_push,
        news=News(messages_by_queue, _announce),
    ),
    JobType.POP: Operation(
        pop_unless_paused, _pop_key, locks=locks_of_pop, waiting=Waiting(Popped(), _give_back, _count)
    ),
    JobType.ACK: Operation(ack, items=lambda request: len(request.items), locks=locks_of_ack),
    JobType.TRANSACTION: Operation(
        transaction_behind_spool,
        size=_transaction_size,
        items=lambda request: request.push.items + len(request.acks),
        locks=locks_of_transaction,
    ),
    JobType.RENEW_LEASE: Operation(renew_lease, locks=locks_of_renewal),
    JobType.CYCLE: Operation(
        cycle_behind_spool,
        items=lambda request: request.push.items + len(request.changes),
        size=_transaction_size,
        locks=locks_of_cycle,
    ),
    JobType.ENQUEUE: Operation(
        simple_mq.enqueue, size=_enqueue_size, items=lambda request: len(request.messages), locks=locks_of_enqueue
    ),
    JobType.DEQUEUE: Operation(
        simple_mq.dequeue,
        items=lambda request: request.limit,
        waiting=Waiting(Dequeued(), simple_mq.give_back, simple_mq.count_dequeued),
    ),
    JobType.ACKNOWLEDGE: Operation(simple_mq.acknowledge, items=lambda request: len(request.message_ids)),
    JobType.EXTEND_VISIBILITY: Operation(simple_mq.extend_visibility),
    JobType.CUSTOM: Operation(custom, cold=True),
}
