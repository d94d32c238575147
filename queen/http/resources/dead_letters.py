"""``/api/v1/dlq…``: messages that a group gave up."""

from collections.abc import Awaitable, Callable

import falcon
import falcon.asgi
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from queen.core import ids
from queen.core.administration import DeadLetter, DeadLetterFilter, DeadLetterRow, Replayed
from queen.core.errors import BadRequestError, DatabaseUnavailableError, NotFoundError, QueueFullError
from queen.core.operations import Lot, Push
from queen.engine.context import Context
from queen.engine.handlers.push import CHANGES_TOO_OFTEN, LAYOUTS_MAX, current_options, lay_out_in, seal
from queen.engine.ports import Notice
from queen.engine.thread import EngineThread
from queen.http import queries
from queen.http.answers import Administrative, answer, shown, text
from queen.http.fields import Name
from queen.http.parsing import PushItem, check_name, decode, to_push
from queen.security.keyring import Keyring
from queen.security.messages import open_payload

DEAD_LETTER_NOT_FOUND = "Dead letter not found"
_BODY_BYTES_MAX = 64 * 1024


class DeadLetterElement(Struct, rename="camel"):
    """A dead letter; ``id`` is its own, ``messageId`` that of its message."""

    id: str
    message_id: str
    transaction_id: str
    partition_id: str
    queue: str
    partition: str
    consumer_group: str
    error_message: str
    retry_count: int
    data: Raw
    trace_id: str | None
    producer_sub: str | None
    created_at: str
    failed_at: str
    error: str | UnsetType = UNSET
    error_code: str | UnsetType = UNSET


class DeadLetterList(Struct):
    """A page of dead letters; ``total`` counts all that match, up to 100,000."""

    messages: list[DeadLetterElement]
    pagination: queries.Pagination
    total: int


class PurgedAnswer(Struct, rename="camel"):
    """How many dead letters are gone."""

    success: bool
    deleted: int
    queue: str
    consumer_group: str | None


class DeletedDeadLetter(Struct, rename="camel"):
    """A dead letter that is gone."""

    success: bool
    id: str


class ReplayedAs(Struct):
    """The message that a dead letter has become; the names are those of a push."""

    index: int
    message_id: str
    transaction_id: str
    queueName: str  # noqa: N815 - the interface's name
    status: str
    offset: int


class ReplayAnswer(Struct, rename="camel"):
    """What became of a replay: ``moved``, or ``duplicate``: then nothing was written and the dead letter is kept."""

    success: bool
    result: str
    queue: str
    partition: str
    consumer_group: str
    dlq_id: str
    original_transaction_id: str
    replayed_as: ReplayedAs
    dlq_row_removed: bool


class ReplayBody(Struct):
    """Where a dead letter goes.

    Attributes:
        queue: by default the one it came from.
        partition: by default the one it came from.
    """

    queue: Name | None = None
    partition: Name | None = None


_replay_decoder = msgspec.json.Decoder(ReplayBody)

#: Finds the dead letter that is to be replayed.
Find = Callable[[Context], Awaitable[DeadLetter | None]]


def _element(row: DeadLetterRow, keys: Keyring | None) -> DeadLetterElement:
    opened = shown(row.payload, row.key_id, row.queue, row.partition, keys)
    return DeadLetterElement(
        id=ids.dead_letter_id(row.id),
        message_id=ids.message_id(row.part_id, row.off),
        transaction_id=row.transaction_id,
        partition_id=ids.partition_id(row.part_id),
        queue=row.queue,
        partition=row.partition,
        consumer_group=row.consumer_group,
        error_message=row.error,
        retry_count=row.retry_count,
        data=opened.payload,
        trace_id=row.trace_id,
        producer_sub=row.producer_sub,
        created_at=text(row.created_at),
        failed_at=text(row.failed_at),
        error=opened.error,
        error_code=opened.code,
    )


class Replayer(Administrative):
    """Puts dead letters back to the tail of a partition."""

    @property
    def engine(self) -> EngineThread:
        """The engine that does it."""
        return self._engine

    async def replay(
        self, resp: falcon.asgi.Response, find: Find, missing: str, target: ReplayBody | None = None
    ) -> None:
        """Answers what became of it; raises NotFoundError with the text ``missing``."""
        target = target or ReplayBody()
        for field in ("queue", "partition"):
            if (place := getattr(target, field)) is not None:
                check_name(place, field)

        async def work(context: Context) -> ReplayAnswer | None:
            letter = await context.patiently(lambda _again: find(context))
            return await _replay(context, letter, target) if letter is not None else None

        replayed = await self.run(work)
        if replayed is None:
            raise NotFoundError(missing)
        answer(resp, replayed)


async def _replay(context: Context, letter: DeadLetter, target: ReplayBody) -> ReplayAnswer | None:
    queue, partition = target.queue or letter.queue, target.partition or letter.partition
    item = PushItem(
        queue, partition, Raw(_payload(context, letter)), f"dlq:{ids.dead_letter_id(letter.id)}", letter.trace_id
    )
    request = to_push([item], letter.producer_sub)
    for _ in range(LAYOUTS_MAX):
        options = await current_options(context)
        part_ids = await context.patiently(
            lambda _again: context.directory.partitions([(queue, partition)], create=True)
        )
        if not part_ids:
            continue
        flush = await lay_out_in(context, [seal(context, request, options)], part_ids, options)
        replayed = await context.patiently(
            lambda again, f=flush: context.administration.dead_letters.replay(letter.id, f.columns, again=again)  # type: ignore[misc]
        )
        if replayed.outcome == "unknown":
            context.directory.forget_queue(queue)
            continue
        if replayed.outcome == "stale":
            context.directory.forget_push_options()
            continue
        if replayed.outcome == "full":
            raise QueueFullError(f"Queue {queue!r} is full (maxSize): try again when its consumers have caught up")
        if replayed.off is None:
            return None
        context.heard(Notice(queue, 1))
        return _answer(letter, request, replayed, part_ids[queue, partition], replayed.off)
    raise DatabaseUnavailableError(CHANGES_TOO_OFTEN)


def _payload(context: Context, letter: DeadLetter) -> bytes:
    """In clear: what is encrypted is bound to the partition that it was pushed to."""
    payload = letter.payload.encode()
    if letter.key_id is None:
        return payload
    return open_payload(letter.key_id, payload, letter.queue, letter.partition, context.keys)


def _answer(letter: DeadLetter, request: Push, replayed: Replayed, part_id: int, offset: int) -> ReplayAnswer:
    lot: Lot = request.lots[0]
    moved = replayed.outcome == "moved"
    dlq_id = ids.dead_letter_id(letter.id)
    status = "queued" if moved else "duplicate"
    own = ReplayedAs(0, ids.message_id(part_id, offset), f"dlq:{dlq_id}", lot.queue, status, offset)
    return ReplayAnswer(
        True,
        replayed.outcome,
        lot.queue,
        lot.partition,
        letter.consumer_group,
        dlq_id,
        letter.transaction_id,
        own,
        moved,
    )


class DeadLetterListResource(Administrative):
    """All dead letters."""

    def __init__(self, engine: EngineThread, keys: Keyring | None) -> None:
        super().__init__(engine)
        self._keys = keys

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """A page of those that match, newest failure first."""
        wanted = DeadLetterFilter(
            queries.name(req, "queue"), queries.name(req, "consumerGroup"), queries.name(req, "partition"),
            queries.moment(req, "from"), queries.moment(req, "to"),
        )  # fmt: skip
        page = queries.page(req, 100)

        async def look(context: Context) -> DeadLetterList:
            dead_letters = context.administration.dead_letters
            rows = await dead_letters.page(wanted, page.limit, page.offset)
            return DeadLetterList([_element(row, self._keys) for row in rows], page, await dead_letters.count(wanted))

        answer(resp, await self.ask(look))

    async def on_delete(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """Deletes those of a queue, of one group if it is named."""
        queue, group = queries.name(req, "queue"), queries.name(req, "consumerGroup")
        if queue is None:
            raise BadRequestError(
                "queue is required: only the dead letters of one queue are deleted at a time", "queue"
            )
        deleted = await self.ask(lambda context: context.administration.dead_letters.purge(queue, group))
        answer(resp, PurgedAnswer(True, deleted, queue, group))


class DeadLetterResource(Administrative):
    """One dead letter, by its own id."""

    async def on_delete(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response, dead_letter: str) -> None:
        """Deletes it; its message stays done."""
        number = _number(dead_letter)
        if not await self.ask(lambda context: context.administration.dead_letters.delete(number)):
            raise NotFoundError(DEAD_LETTER_NOT_FOUND)
        answer(resp, DeletedDeadLetter(True, dead_letter))


class ReplayResource:
    """Replays one dead letter, by its own id."""

    def __init__(self, replayer: Replayer) -> None:
        self._replayer = replayer

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, dead_letter: str) -> None:
        """Puts it to the tail of its partition, or where the body says."""
        number = _number(dead_letter)
        raw = bytes(await req.stream.read(_BODY_BYTES_MAX))
        target = decode(_replay_decoder, raw, {}) if raw else ReplayBody()
        await self._replayer.replay(
            resp, lambda context: context.administration.dead_letters.find(number), DEAD_LETTER_NOT_FOUND, target
        )


def _number(text: str) -> int:
    number = ids.parse_dead_letter_id(text)
    if number is None:
        raise NotFoundError(DEAD_LETTER_NOT_FOUND)
    return number
