"""PUSH: many requests, one segment per partition, one call; and functions that all appends share."""

import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from uuid import UUID, uuid4

from queen.core.errors import (
    BadRequestError,
    DatabaseUnavailableError,
    NoEncryptionKeyError,
    OutcomeUnknownError,
    QueenError,
    QueueFullError,
)
from queen.engine.context import Context
from queen.engine.offer import Offer, offered
from queen.engine.ports import LimitedQueue, Notification, PushOptions, WaitingColumns
from queen.log import append
from queen.log.append import AppendBatch, Appended
from queen.log.requests import Buffered, Push, Pushed
from queen.security.messages import seal_push

T = TypeVar("T")
Answer = Pushed | Buffered | QueenError

#: How often an append is laid out again because a queue was deleted or configured meanwhile, or is full.
_LAYOUTS_MAX = 50
_CHANGES_TOO_OFTEN = "The queue is being deleted or reconfigured repeatedly. Try again later"


async def laid_out_anew(attempt: Callable[[], Awaitable[T | None]]) -> T:
    """The result of an attempt to append; it is repeated while it is ``None``: the layout was outdated."""
    for _ in range(_LAYOUTS_MAX):
        result = await attempt()
        if result is not None:
            return result
    raise DatabaseUnavailableError(_CHANGES_TOO_OFTEN)


def partitions_of(pushes: Iterable[Push]) -> set[tuple[str, str]]:
    """The partitions, by queue and name, that these requests push to."""
    return {(batch.queue, batch.partition) for push in pushes for batch in push.batches}


async def current_options(context: Context, *, retries_during_outage: bool = True) -> PushOptions:
    """The push options from the cache, or from PostgreSQL."""
    known = context.cache.known_push_options
    if known is not None:
        return known
    return await context.idempotently(context.cache.push_options, retries_during_outage=retries_during_outage)


def seal(context: Context, push: Push, options: PushOptions) -> Push:
    """Encrypts the payloads of a request for encrypted queues.

    Raises:
        NoEncryptionKeyError: one of its queues is encrypted, and there is no key.
    """
    if not options.encrypted:
        return push
    if context.keys is not None:
        return seal_push(push, options.encrypted.__contains__, context.keys)
    for batch in push.batches:
        if batch.queue in options.encrypted:
            raise NoEncryptionKeyError(
                f"Queue {batch.queue!r} is encrypted, but this server has no QUEEN_ENCRYPTION_KEY"
            )
    return push


async def lay_out(
    context: Context, pushes: Sequence[Push], options: PushOptions, flush_id: UUID | None = None, *, make: bool = True
) -> AppendBatch | None:
    """The append of these requests, with a new id by default; ``None`` if one of its queues is being deleted.

    The requests must be sealed under the same options: the call is refused if these are outdated. Missing partitions
    are created here, or without ``make`` by the call, so that an undone transaction leaves none behind.
    """
    keys = partitions_of(pushes)
    part_ids = await context.cache.partitions(keys, create=make)
    missing = sorted(keys - part_ids.keys())
    if missing:
        if make:
            return None
        if append.names_messages(pushes):
            # Whether the server has assigned such an id depends on the number of the partition.
            return await lay_out(context, pushes, options, flush_id)
        part_ids |= {key: -number for number, key in enumerate(missing, 1)}
    positions = append.reserved_ids(pushes, part_ids)
    reserved = await _find_messages(context, positions) if positions else {}
    batch = _laid_out(pushes, options, flush_id or uuid4(), part_ids, reserved)
    batch.new = missing
    return batch


def lay_out_at_once(
    context: Context, pushes: Sequence[Push], options: PushOptions, flush_id: UUID
) -> AppendBatch | None:
    """The same without a question to PostgreSQL, as nearly always; ``None`` if there is one."""
    part_ids = context.cache.known_partitions(pushes)
    if part_ids is None or append.reserved_ids(pushes, part_ids):
        return None
    return _laid_out(pushes, options, flush_id, part_ids, {})


def _laid_out(
    pushes: Sequence[Push],
    options: PushOptions,
    flush_id: UUID,
    part_ids: Mapping[tuple[str, str], int],
    reserved: Mapping[str, append.Position],
) -> AppendBatch:
    batch = append.lay_out(flush_id, pushes, part_ids, reserved)
    batch.version = options.version
    batch.limited = options.limits_of(part_ids) if options.limited else None
    return batch


async def _find_messages(context: Context, positions: Mapping[str, tuple[int, int]]) -> dict[str, append.Position]:
    """What is known of messages with ids that have the form of server-made ones, by these ids."""
    parts, offsets = zip(*positions.values(), strict=True)
    found = await context.database.find_server_made(parts, offsets)
    return {text: ~offset if made else None for text, offset, made in zip(positions, offsets, found, strict=True)}


def is_stale(context: Context, appended: Sequence[Appended]) -> bool:
    """Whether nothing was stored because the cache was outdated; the outdated entries are forgotten."""
    if not appended:
        context.cache.forget_push_options()
        return True
    unknown = [row.part_id for row in appended if row.first is None and row.room is None]
    if unknown:
        context.cache.forget_partitions(unknown)
    return bool(unknown)


class PushAttempt:
    """Push requests on their way to PostgreSQL, and their answers so far.

    Attributes:
        waiting: the requests without an answer, by number, as they were sent last.
        flush_id: the id under which they are sent next, or were sent last.
        sent_at: when they were sent, in seconds since 1970, if the outcome is unknown; else ``None``.
    """

    def __init__(self, pushes: Sequence[Push]) -> None:
        self.waiting = dict(enumerate(pushes))
        self._answers: dict[int, Answer] = {}
        self._count = len(pushes)
        self.flush_id = uuid4()
        self.sent_at: float | None = None

    def begin_anew(self) -> None:
        """Takes a new id: nothing is stored under the last one, but it may be fenced."""
        self.flush_id, self.sent_at = uuid4(), None

    def seal(self, context: Context, options: PushOptions) -> None:
        """Encrypts payloads for encrypted queues; refuses requests if there is no key."""
        for number, request in list(self.waiting.items()) if options.encrypted else ():
            try:
                self.waiting[number] = seal(context, request, options)
            except NoEncryptionKeyError as problem:
                self.refuse({number: problem})

    def refuse(self, refusals: Mapping[int, QueenError]) -> None:
        """Answers some of the requests; the others go on."""
        self._answers |= refusals
        self.waiting = {number: request for number, request in self.waiting.items() if number not in refusals}

    def answer(self, answers: Iterable[Pushed | Buffered]) -> list[Answer]:
        """Sets the answers of the waiting requests; returns the answers of all."""
        self._answers |= zip(self.waiting, answers, strict=True)
        return [self._answers[number] for number in range(self._count)]


def push(context: Context, push_attempt: PushAttempt) -> Coroutine[Any, Any, list[Answer]]:
    """Stores the messages of all requests without an answer; one answer each, or the error of a refused one.

    With a spool it is not retried during an outage. The caller notifies long polls.
    """
    return laid_out_anew(partial(_push, context, push_attempt, retries_during_outage=context.failover is None))


async def _push(context: Context, push_attempt: PushAttempt, *, retries_during_outage: bool) -> list[Answer] | None:
    options = context.cache.known_push_options
    if options is None:
        options = await current_options(context, retries_during_outage=retries_during_outage)
    if options.encrypted:
        push_attempt.seal(context, options)
    requests = list(push_attempt.waiting.values())
    batch = lay_out_at_once(context, requests, options, push_attempt.flush_id) or await context.idempotently(
        partial(lay_out, context, requests, options, push_attempt.flush_id), retries_during_outage=retries_during_outage
    )
    if batch is None:
        return None
    if not batch.part:
        return push_attempt.answer(batch.answers())
    push_attempt.sent_at = time.time()
    appended = await context.with_retries(_call_of(context, batch), retries_during_outage=retries_during_outage)
    if is_stale(context, appended):
        push_attempt.begin_anew()
        return None
    rooms = {row.part_id: row.room for row in appended if row.room is not None}
    if not rooms:
        return push_attempt.answer(batch.answers(appended))
    push_attempt.begin_anew()
    names = await context.cache.names(rooms)
    left = {name.queue: rooms[part_id] for part_id, name in names.items()}
    push_attempt.refuse(refuse(push_attempt.waiting, left, options.limited))
    return None


def _call_of(context: Context, batch: AppendBatch) -> Callable[[bool], Awaitable[Sequence[Appended]]]:
    """The call of an append, which also serves the long polls that are offered to it."""
    offer = offered.get()
    waiting = offer.columns(context.cache) if offer is not None else None
    if offer is None or waiting is None:
        return lambda again: context.database.push(batch, again=again)
    return partial(_append_to_waiters, context, batch, offer, waiting)


async def _append_to_waiters(
    context: Context, batch: AppendBatch, offer: Offer, waiting: WaitingColumns, again: bool
) -> Sequence[Appended]:
    if again:
        return await context.database.push(batch, again=True)
    names = await context.cache.names(batch.part)
    try:
        appended, given = await context.database.push_to_waiters(batch, waiting)
    except OutcomeUnknownError:
        context.orphans.add(offer.lose())
        raise
    offer.serve(given, batch, appended, names)
    return appended


def refuse(
    pushes: Mapping[int, Push], rooms: Mapping[str, int], limits: Mapping[str, LimitedQueue]
) -> dict[int, QueenError]:
    """The errors of requests that exceed the room of a queue; earlier requests take room first."""
    left = dict(rooms)
    refused: dict[int, QueenError] = {}
    for number, request in pushes.items():
        wanted = messages_by_queue([request])
        full = next((queue for queue, room in left.items() if wanted.get(queue, 0) > room), None)
        if full is None:
            for queue in left:
                left[queue] -= wanted.get(queue, 0)
        elif full in limits and wanted[full] > limits[full].max_size:
            refused[number] = BadRequestError(
                f"The request has {wanted[full]} messages for queue {full!r}, whose maxSize is "
                f"{limits[full].max_size}: send them in several requests",
                "items",
            )
        else:
            refused[number] = QueueFullError(
                f"Queue {full!r} is full (maxSize): it has room for {left[full]} of {wanted[full]} messages. "
                "Nothing of the request was stored; try again when consumers have caught up"
            )
    return refused


def messages_by_queue(pushes: Iterable[Push]) -> dict[str, int]:
    """The number of messages of these requests by queue."""
    messages: dict[str, int] = {}
    for request in pushes:
        for batch in request.batches:
            messages[batch.queue] = messages.get(batch.queue, 0) + len(batch.places)
    return messages


def announce(context: Context, pushes: Iterable[Push], offer: Offer | None = None) -> None:
    """Notifies long polls of the messages of these requests, except in groups that were served."""
    for queue, number in messages_by_queue(pushes).items():
        context.notify(Notification(queue, number, served=offer.groups(queue, number) if offer is not None else ()))
