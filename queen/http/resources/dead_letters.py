"""``/api/v1/dlq…``: messages that a group gave up."""

from collections.abc import Awaitable, Callable

import falcon
import falcon.asgi
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from queen.core import ids
from queen.core.administration import DeadLetter, DeadLetterFilter, DeadLetterRow
from queen.core.errors import BadRequestError, NotFoundError
from queen.engine.context import Context
from queen.engine.handlers.dead_letters import PutBack, replay_dead_letter, transaction_id_of
from queen.engine.handlers.removal import purge_dead_letters
from queen.engine.thread import EngineThread
from queen.http import queries
from queen.http.answers import Administrative, answer, shown, text
from queen.http.fields import Name
from queen.http.parsing import check_name, decode
from queen.security.keyring import Keyring

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
    """A page of dead letters; ``total`` counts those that match among the newest 100,000."""

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
            if letter is None:
                return None
            queue, partition = target.queue or letter.queue, target.partition or letter.partition
            put_back = await replay_dead_letter(context, letter, queue, partition)
            return _answer(letter, queue, partition, put_back) if put_back is not None else None

        replayed = await self.run(work)
        if replayed is None:
            raise NotFoundError(missing)
        answer(resp, replayed)


def _answer(letter: DeadLetter, queue: str, partition: str, put_back: PutBack) -> ReplayAnswer:
    message_id = ids.message_id(put_back.part_id, put_back.offset)
    status = "queued" if put_back.moved else "duplicate"
    return ReplayAnswer(
        True,
        "moved" if put_back.moved else "duplicate",
        queue,
        partition,
        letter.consumer_group,
        ids.dead_letter_id(letter.id),
        letter.transaction_id,
        ReplayedAs(0, message_id, transaction_id_of(letter), queue, status, put_back.offset),
        put_back.moved,
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
        deleted = await self.run(lambda context: purge_dead_letters(context, queue, group))
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
