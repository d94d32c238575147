"""Sends of SQS through the spool: while PostgreSQL is unavailable, and until the spool is empty (ADR 66).

All sends to a queue are one partition of the spool, so they are stored in the order of their answers. The message gets
its id and sequence number when it is stored; its consumers see the id that the sender was told.

A send whose outcome is unknown is not spooled: the client gets an error and repeats it, as it does with SQS.
"""

from collections.abc import Sequence
from datetime import datetime
from math import inf
from uuid import UUID, uuid4

import msgspec
from msgspec import Struct

from queen.core.errors import DatabaseUnavailableError, NoEncryptionKeyError, OutcomeUnknownError, QueenError
from queen.engine.context import Context
from queen.engine.failover import Failover
from queen.simple_mq.handlers import announce
from queen.simple_mq.sqs_handlers import count_sent, no_key, send, stored_form
from queen.simple_mq.sqs_requests import SendMessages, Sent, SentAll
from queen.simple_mq.sqs_storage import ReplayColumns, SqsSpoolStore
from queen.spool.format import SpooledBatch, packed
from queen.spool.held import Partition

#: The kind of these requests in the spool.
KIND = "sqs"
_QUEUES = f"{KIND}:"
#: Four runs of the job that forgets; and how long instances have for their spools after an outage.
_GAP_S, _CALM_S = 60.0, 600.0


class SpooledMessage(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A message as it will be stored, perhaps encrypted."""

    body: str
    attributes: bytes | None = None
    key_id: str | None = None
    delay_seconds: int | None = None
    group: str | None = None
    deduplication_id: str | None = None


_decoder = msgspec.json.Decoder(list[SpooledMessage])


async def send_or_spool(context: Context, requests: Sequence[SendMessages]) -> list[SentAll | QueenError]:
    """Stores the messages of all requests, or spools them; one answer each.

    Raises:
        SpoolError: they could be neither stored nor spooled.
        OutcomeUnknownError: they may be stored.
    """
    failover = context.failover
    if failover is None:
        return await send(context, requests)
    while True:
        insist, spooled = failover.unavailable, _spooled(failover, requests)
        if any(spooled) and not all(spooled):
            return await _send_separately(context, requests, spooled)
        if not any(spooled):
            try:
                return await send(context, requests)
            except OutcomeUnknownError:
                raise
            except DatabaseUnavailableError:
                insist = True
        answers = await _spool(context, failover, requests, insist=insist)
        if answers is not None:
            return answers


def _spooled(failover: Failover, requests: Sequence[SendMessages]) -> list[bool]:
    """Which of these go to the spool."""
    if failover.unavailable or failover.spooling:
        return [True] * len(requests)
    held = failover.held_back
    return [_partition(request) in held for request in requests]


def _partition(request: SendMessages) -> Partition:
    return _QUEUES + request.name, str(request.queue)


async def _send_separately(
    context: Context, requests: Sequence[SendMessages], behind: Sequence[bool]
) -> list[SentAll | QueenError]:
    """Sends to held-back queues separately from the others: first those, as all are sent again if they fail."""
    free = [request for request, held in zip(requests, behind, strict=True) if not held]
    waiting = [request for request, held in zip(requests, behind, strict=True) if held]
    stored = iter(await send_or_spool(context, free))
    try:
        rest = iter(await send_or_spool(context, waiting))
    except QueenError as problem:
        rest = iter([problem] * len(waiting))
    return [next(rest) if held else next(stored) for held in behind]


async def _spool(
    context: Context, failover: Failover, requests: Sequence[SendMessages], *, insist: bool
) -> list[SentAll | QueenError] | None:
    """The answers to spooled requests; ``None``: the spool has ended."""
    answers: list[SentAll | QueenError] = []
    batches: list[list[SpooledBatch]] = []
    for request in requests:
        try:
            batch = spooled(context, request)
        except NoEncryptionKeyError as problem:
            answers.append(problem)
            continue
        batches.append([batch])
        answers.append(SentAll(True, [Sent(UUID(each), None) for each in batch.ids or ()]))
    if batches and not await failover.append(uuid4(), batches, None, insist=insist):
        return None
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, SentAll):
            count_sent(context, request.queue, len(answer.messages))
    return answers


def spooled(context: Context, request: SendMessages) -> SpooledBatch:
    """The form of a request in the spool, with new ids. Raises NoEncryptionKeyError."""
    if request.encrypted and context.keys is None:
        raise no_key()
    lines = []
    for message in request.messages:
        body, attributes, key_id = stored_form(message, context.keys if request.encrypted else None)
        lines.append(
            msgspec.json.encode(
                SpooledMessage(body, attributes, key_id, message.delay_s, message.group, message.deduplication_id)
            )
        )
    ids = [str(uuid4()) for _ in lines]
    return SpooledBatch(*_partition(request), b",".join(lines), packed([len(line) + 1 for line in lines]), ids, KIND)


class Calm:
    """Whether deduplication ids may be forgotten, as the job that does so knows it.

    Spools may hold sends from the time of an id, and compare them with it when they are stored. So the job waits until
    it has run for a while without a gap, as an outage makes it, and without a spool on this machine.

    Args:
        failover: the spool of the instance, if there is one.
    """

    def __init__(self, failover: Failover | None) -> None:
        self._failover = failover
        self._since = self._last = -inf

    def lasts(self, now: float) -> bool:
        """Whether there has been calm for long enough; to be called at each run, with the time in seconds."""
        if now - self._last > _GAP_S or self._spools:
            self._since = now
        self._last = now
        return now - self._since >= _CALM_S

    @property
    def _spools(self) -> bool:
        failover = self._failover
        return failover is not None and (
            failover.spooling or any(queue.startswith(_QUEUES) for queue, _ in failover.held_back)
        )


class SpooledSends:
    """Stores spooled sends; implements ``queen.engine.ports.SpooledKind``.

    Args:
        context: of the engine, or of the server before its engines start.
        store: the procedure.
    """

    def __init__(self, context: Context, store: SqsSpoolStore) -> None:
        self._context, self._store = context, store

    async def replay(
        self,
        lane: UUID,
        first: int,
        upto: int,
        sent_at: datetime,
        requests: Sequence[Sequence[SpooledBatch]],
        limit_s: float | None,
    ) -> int:
        """Stores requests of a lane, and its position, which it returns."""
        columns = ReplayColumns()
        for batch in [batch for batches in requests for batch in batches]:
            for message, sent_id in zip(_decoder.decode(b"[" + batch.body + b"]"), batch.ids or (), strict=True):
                columns.queue.append(UUID(batch.partition))
                columns.sent_id.append(UUID(sent_id))
                columns.data.append(message.body)
                columns.attributes.append(message.attributes)
                columns.key_id.append(message.key_id)
                columns.delay.append(message.delay_seconds)
                columns.group.append(message.group)
                columns.deduplication.append(message.deduplication_id)
        position = await self._store.replay(lane, first, upto, sent_at, columns, limit_s)
        if position == upto:
            for queue in dict.fromkeys(columns.queue):
                announce(self._context, queue, columns.queue.count(queue))
        return position
