"""The table of operations: for each kind of job its handler, and how the engine batches and waits."""

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from queen.core.errors import QueenError, forget_frames
from queen.core.job_type import JobType
from queen.engine.context import Context
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
    locks_of_pop,
    locks_of_push,
    locks_of_renewal,
    locks_of_transaction,
)
from queen.engine.handlers.push import announce, messages_by_queue
from queen.engine.handlers.renew_lease import renew_lease
from queen.engine.handlers.timers import change_timers
from queen.engine.handlers.unleased import unleased_of_ack, unleased_of_transaction
from queen.engine.metadata_cache import MetadataCache
from queen.engine.offer import Offer
from queen.engine.ports import Lock
from queen.log.requests import AckItem, Pop, Popped, Push, Pushed, Transaction

Handler = Callable[[Context, Sequence[Any]], Awaitable[Sequence[Any]]]


class Waiting(Struct, frozen=True):
    """How requests of a kind wait.

    Attributes:
        nothing: the answer at the timeout.
        give_back: releases messages that were found for a sender that has gone.
        count: counts an answer.
        prefetched: whether workers may have prefetched the messages; then a request that is no long poll tries again.
    """

    nothing: Any
    give_back: Callable[[Context, Any, Any], Awaitable[None]]
    count: Callable[[Context, Any, Any], None]
    prefetched: bool = False


class News(Struct, frozen=True):
    """The messages that requests of a kind bring for long polls.

    Attributes:
        arrivals: the messages of requests, by queue.
        announce: publishes notifications of the stored messages, except to groups that an offer has served.
    """

    arrivals: Callable[[Iterable[Any]], Mapping[str, int]]
    announce: Callable[[Context, Sequence[Any], Sequence[Any], Offer | None], None]


class JobSpec(Struct, frozen=True):
    """How a kind of job is executed.

    Attributes:
        handler: takes the requests of a batch and returns for each a result, or the error of its call, the same one for
            requests that shared it (``queen.engine.failures``). If it raises, nothing was changed, or the batch may be
            repeated.
        key: jobs with the same key are never in two calls at the same time; ``None``: all may be.
        size: bytes that a request adds to a call; ``None``: none that count.
        items: messages or acks that a request adds to a call; ``None``: one.
        cold: whether it uses the connections for administration, so that it never delays a message.
        unleased: the acks of a request that name no lease, if the kind has such: it is carried out when workers have
            released what they had prefetched there and no consumer holds.
        locks: what a request locks, as far as the worker knows; nothing for kinds whose locks cannot be named.
        news: for kinds that store messages, if the engine publishes the notifications; other handlers do it themselves.
        waiting: for kinds whose requests may wait for ``wait_ms``; the handler then returns a ``FetchResult`` for each,
            or a result that is the answer even if it has no messages.
    """

    handler: Handler
    key: Callable[[Any], Hashable] | None = None
    size: Callable[[Any], int] | None = None
    items: Callable[[Any], int] | None = None
    cold: bool = False
    locks: Callable[[MetadataCache, Any], frozenset[Lock]] = lambda _cache, _request: frozenset()
    unleased: Callable[[Any], Sequence[AckItem]] | None = None
    news: News | None = None
    waiting: Waiting | None = None


def _pop_key(request: Pop) -> Hashable:
    """Two calls for one group would skip the cursors that the other has locked, and find too few messages."""
    return (request.queue, request.group, request.namespace, request.task)


async def _give_back(context: Context, request: Pop, popped: Popped) -> None:
    await give_back(context, popped, request.group)


def _count(context: Context, request: Pop, popped: Popped) -> None:
    context.counters.pop(request, popped)


def _push_size(request: Push) -> int:
    return sum([len(batch.body) for batch in request.batches])


def _announce(context: Context, requests: Sequence[Push], results: Sequence[Any], offer: Offer | None) -> None:
    """Spooled messages are announced when the replay stores them."""
    stored = [request for request, result in zip(requests, results, strict=True) if isinstance(result, Pushed)]
    announce(context, stored, offer)


def _transaction_size(request: Transaction) -> int:
    return _push_size(request.push)


async def custom(context: Context, requests: Sequence[Callable[[Context], Awaitable[Any]]]) -> list[Any]:
    """Runs functions that make their own calls, one after another because each may be slow."""
    return [await _run(context, request) for request in requests]


async def _run(context: Context, request: Callable[[Context], Awaitable[Any]]) -> Any:  # noqa: ANN401 - its result
    try:
        return await request(context)
    except QueenError as problem:
        forget_frames(problem)
        return problem


JOB_SPECS: Mapping[JobType, JobSpec] = {
    JobType.PUSH: JobSpec(
        push_or_spool,
        size=_push_size,
        items=lambda request: request.items,
        locks=locks_of_push,
        news=News(messages_by_queue, _announce),
    ),
    JobType.POP: JobSpec(
        pop_unless_paused, _pop_key, locks=locks_of_pop, waiting=Waiting(Popped(), _give_back, _count, prefetched=True)
    ),
    JobType.ACK: JobSpec(ack, items=lambda request: len(request.items), locks=locks_of_ack, unleased=unleased_of_ack),
    JobType.TRANSACTION: JobSpec(
        transaction_behind_spool,
        size=_transaction_size,
        items=lambda request: request.push.items + len(request.acks),
        locks=locks_of_transaction,
        unleased=unleased_of_transaction,
    ),
    JobType.RENEW_LEASE: JobSpec(renew_lease, locks=locks_of_renewal),
    JobType.CYCLE: JobSpec(
        cycle_behind_spool,
        items=lambda request: request.push.items + len(request.changes),
        size=_transaction_size,
        locks=locks_of_cycle,
    ),
    JobType.TIMER: JobSpec(
        change_timers, size=lambda request: sum([len(change.message) for change in request]), items=len
    ),
    JobType.CUSTOM: JobSpec(custom, cold=True),
}
