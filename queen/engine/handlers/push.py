"""PUSH: many requests, one segment a partition, one call."""

import time
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from functools import partial
from uuid import UUID, uuid4

from queen.core.errors import (
    BadRequestError,
    DatabaseUnavailableError,
    NoEncryptionKeyError,
    QueenError,
    QueueFullError,
)
from queen.core.operations import Buffered, Push, Pushed
from queen.engine.context import Context
from queen.engine.flush import Flush, reserved_ids
from queen.engine.ports import Appended, LimitedQueue, Notice, PushOptions
from queen.security.messages import seal_push

#: How often a flush is laid out anew because a queue was deleted or configured under it, or filled up.
LAYOUTS_MAX = 50
CHANGES_TOO_OFTEN = "The queue is being deleted or configured again and again while it is pushed to"


def places_of(pushes: Sequence[Push]) -> set[tuple[str, str]]:
    """The partitions, by queue and name, that these requests push to."""
    return {(lot.queue, lot.partition) for push in pushes for lot in push.lots}


async def current_options(context: Context, *, outwaits: bool = True) -> PushOptions:
    """What the worker knows of queues."""
    known = context.directory.known_push_options
    if known is not None:
        return known
    return await context.harmlessly(context.directory.push_options, outwaits=outwaits)


def seal(context: Context, push: Push, options: PushOptions) -> Push:
    """The request as it may leave this process: payloads for encrypted queues are encrypted.

    Raises:
        NoEncryptionKeyError: one of its queues is encrypted, and there is no key.
    """
    if not options.encrypted:
        return push
    if context.keys is None:
        for lot in push.lots:
            if lot.queue in options.encrypted:
                raise NoEncryptionKeyError(
                    f"Queue {lot.queue!r} is encrypted, and this server has no QUEEN_ENCRYPTION_KEY"
                )
        return push
    return seal_push(push, options.encrypted.__contains__, context.keys)


async def lay_out(
    context: Context, pushes: Sequence[Push], options: PushOptions, flush_id: UUID | None = None
) -> Flush:
    """The segments of these requests, with the partitions that they name made where missing; by default a new flush.

    The requests were sealed under the same options, for the call is refused if those no longer hold.
    """
    keys = places_of(pushes)
    for _ in range(LAYOUTS_MAX):
        part_ids = await context.directory.partitions(keys, create=True)
        if len(part_ids) == len(keys):
            break
    else:
        raise DatabaseUnavailableError(CHANGES_TOO_OFTEN)
    return await lay_out_in(context, pushes, part_ids, options, flush_id)


async def lay_out_in(
    context: Context,
    pushes: Sequence[Push],
    part_ids: Mapping[tuple[str, str], int],
    options: PushOptions,
    flush_id: UUID | None = None,
) -> Flush:
    """The segments of these requests in partitions with these numbers; by default a new flush."""
    reserved = reserved_ids(pushes, part_ids)
    found: list[bool] = []
    if reserved:
        places = list(reserved.values())
        found = await context.database.find_server_made([part for part, _ in places], [off for _, off in places])
    made = frozenset(text for text, exists in zip(reserved, found, strict=True) if exists)
    flush = Flush(flush_id or uuid4(), pushes, part_ids, reserved, made)
    flush.columns.version = options.version
    if options.limited:
        queues = {queue for queue, _ in part_ids}
        flush.columns.limited = [limit.queue_id for queue, limit in options.limited.items() if queue in queues] or None
    return flush


def is_stale(context: Context, appended: Sequence[Appended]) -> bool:
    """Whether nothing was stored because what the worker knew of the queues no longer holds; it is forgotten."""
    if not appended:
        context.directory.forget_push_options()
        return True
    unknown = [row.part_id for row in appended if row.first is None and row.room is None]
    if unknown:
        context.directory.forget_partitions(unknown)
    return bool(unknown)


class Sending:
    """Push requests on their way to PostgreSQL: what has become of them so far, wherever that breaks off.

    Attributes:
        waiting: the requests without an answer, by number, as they were sent last.
        flush_id: under which they are sent next, or were sent last.
        sent_at: when that was, in seconds since 1970, if the outcome is not known; else ``None``.
    """

    def __init__(self, pushes: Sequence[Push]) -> None:
        self.waiting = dict(enumerate(pushes))
        self._answers: dict[int, Pushed | Buffered | QueenError] = {}
        self._count = len(pushes)
        self.flush_id = uuid4()
        self.sent_at: float | None = None

    def mark_sent(self) -> None:
        """From now on the waiting requests may be stored."""
        self.sent_at = time.time()

    def begin_anew(self) -> None:
        """Nothing is stored under the id, for sure; but it may be fenced, so what is sent next needs another."""
        self.flush_id, self.sent_at = uuid4(), None

    def seal(self, context: Context, options: PushOptions) -> None:
        """Encrypts what is to be encrypted; requests for which there is no key are refused."""
        for number, request in list(self.waiting.items()):
            try:
                self.waiting[number] = seal(context, request, options)
            except NoEncryptionKeyError as problem:
                self.refuse({number: problem})

    def refuse(self, refusals: Mapping[int, QueenError]) -> None:
        """Answers some of the requests; the others go on."""
        self._answers |= refusals
        self.waiting = {number: request for number, request in self.waiting.items() if number not in refusals}

    def answer(self, answers: Iterable[Pushed | Buffered]) -> list[Pushed | Buffered | QueenError]:
        """The answers of all requests, given those of the waiting ones."""
        self._answers |= zip(self.waiting, answers, strict=True)
        return [self._answers[number] for number in range(self._count)]


async def push(context: Context, sending: Sending) -> list[Pushed | Buffered | QueenError]:
    """Stores the messages of all requests that wait; one answer each, or the error of one that is refused.

    With a spool it does not outwait an outage. The caller tells of what came.
    """
    outwaits = context.failover is None
    for _ in range(LAYOUTS_MAX):
        options = await current_options(context, outwaits=outwaits)
        sending.seal(context, options)
        requests = list(sending.waiting.values())
        flush = await context.harmlessly(
            partial(lay_out, context, requests, options, sending.flush_id), outwaits=outwaits
        )
        appended = await _append(context, sending, flush, outwaits=outwaits) if flush.columns.part else []
        if appended is None:
            continue
        rooms = await find_rooms(context, appended)
        if not rooms:
            return sending.answer(flush.answers(appended))
        sending.refuse(refuse(sending.waiting, rooms, options.limited))
    raise DatabaseUnavailableError(CHANGES_TOO_OFTEN)


async def _append(context: Context, sending: Sending, flush: Flush, *, outwaits: bool) -> Sequence[Appended] | None:
    """One call; ``None``: it was laid out under something that no longer holds."""
    sending.mark_sent()
    appended = await context.patiently(
        lambda again: context.database.push(flush.columns, again=again), outwaits=outwaits
    )
    stale = is_stale(context, appended)
    if stale or any(row.room is not None for row in appended):
        sending.begin_anew()
    return None if stale else appended


async def find_rooms(context: Context, appended: Iterable[Appended]) -> dict[str, int]:
    """The queues that would have become too large, and how many messages each has room for."""
    rooms = {row.part_id: row.room for row in appended if row.room is not None}
    names = await context.directory.names(rooms) if rooms else {}
    return {name.queue: rooms[part_id] for part_id, name in names.items()}


def refuse(
    pushes: Mapping[int, Push], rooms: Mapping[str, int], limits: Mapping[str, LimitedQueue]
) -> dict[int, QueenError]:
    """Which requests have to go so that the others have room: first come, first served."""
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
                f"The request has {wanted[full]} messages for queue {full!r}, which never holds more than "
                f"{limits[full].max_size} (maxSize): send them in parts",
                "items",
            )
        else:
            refused[number] = QueueFullError(
                f"Queue {full!r} is full: it has room for {left[full]} of {wanted[full]} messages (maxSize). "
                "Nothing of the request was stored; try again when consumers have caught up"
            )
    return refused


def messages_by_queue(pushes: Iterable[Push]) -> dict[str, int]:
    """How many messages these requests have for each queue that they name."""
    messages: dict[str, int] = {}
    for request in pushes:
        for lot in request.lots:
            messages[lot.queue] = messages.get(lot.queue, 0) + len(lot.places)
    return messages


def announce(context: Context, pushes: Iterable[Push], besides: Container[Hashable] = ()) -> None:
    """Wakes who waits for messages of these requests, but for the places that know already."""
    for queue, number in messages_by_queue(pushes).items():
        context.heard(Notice(queue, number), besides)
