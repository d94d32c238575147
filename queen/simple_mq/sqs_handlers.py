"""SQS_SEND, SQS_RECEIVE, SQS_DELETE and SQS_CHANGE_VISIBILITY: the requests of SQS, many of each kind per call."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from uuid import UUID, uuid4

from queen.core.errors import (
    DatabaseUnavailableError,
    DecryptionError,
    NoEncryptionKeyError,
    OutcomeUnknownError,
    QueenError,
)
from queen.engine.context import Context
from queen.engine.fetch_result import FetchResult
from queen.security.keyring import Keyring
from queen.security.messages import open_payload
from queen.simple_mq.handlers import announce
from queen.simple_mq.interface import SimpleMq, Sqs
from queen.simple_mq.sqs_metrics import DEAD, DELETED, EMPTY, RECEIVED, SENT
from queen.simple_mq.sqs_requests import (
    ChangeVisibility,
    DeleteMessages,
    NewSqsMessage,
    ReceivedMessage,
    ReceiveMessages,
    SendMessages,
    Sent,
    SentAll,
    SqsOutcomes,
    SqsReceived,
    sequence_of,
)
from queen.simple_mq.sqs_storage import OfQueue, ReceiveColumns, SendColumns, StoredMessage

#: The place of all messages in the associated data of ciphertexts: a message moves between queues as it is.
_PLACE = ("simple_mq", "sqs")

# ---------------------------------------------------------------- send


async def send(context: Context, requests: Sequence[SendMessages]) -> list[SentAll | QueenError]:
    """Stores the messages of all requests; one answer each."""
    if context.keys is not None or not any(request.encrypted for request in requests):
        return [*await _send(context, requests, context.keys)]
    plain = [request for request in requests if not request.encrypted]
    sent = iter(await _send(context, plain, None) if plain else [])
    return [no_key() if request.encrypted else next(sent) for request in requests]


def no_key() -> NoEncryptionKeyError:
    """The error of sends that cannot be encrypted."""
    return NoEncryptionKeyError("The queue is encrypted, but this server has no QUEEN_ENCRYPTION_KEY")


def _columns(requests: Sequence[SendMessages], keys: Keyring | None) -> SendColumns:
    columns = SendColumns(uuid4(), [request.queue for request in requests])
    for number, request in enumerate(requests, 1):
        for message in request.messages:
            data, attributes, key_id = stored_form(message, keys if request.encrypted else None)
            columns.request.append(number)
            columns.data.append(data)
            columns.attributes.append(attributes)
            columns.key_id.append(key_id)
            columns.delay.append(message.delay_s)
            columns.group.append(message.group)
            columns.deduplication.append(message.deduplication_id)
    return columns


async def _send(context: Context, requests: Sequence[SendMessages], keys: Keyring | None) -> list[SentAll]:
    rows = iter(await _stored(context, _columns(requests, keys)))
    answers, stored = [], Counter[UUID]()
    for request in requests:
        sent = [
            Sent(sent_id or message_id, sequence_of(message_id) if fifo else None)
            for message_id, fifo, sent_id in [next(rows) for _ in request.messages]
            if message_id is not None
        ]
        answers.append(SentAll(len(sent) == len(request.messages), sent))
        stored[request.queue] += len(sent)
    for queue, messages in stored.items():
        if messages:
            count_sent(context, queue, messages)
            announce(context, queue, messages)
    return answers


def count_sent(context: Context, queue: UUID, messages: int) -> None:
    """Counts messages that are answered as sent."""
    context.counters.messages += messages
    SimpleMq.of(context).outcomes.add(queue, SENT, "", messages)


async def _stored(context: Context, columns: SendColumns) -> list[tuple[UUID | None, bool, UUID | None]]:
    """The result of a call. What certainly was not stored can be spooled at once; for the rest PostgreSQL is asked."""
    database = Sqs.of(context).database
    try:
        return await context.with_retries(
            lambda _again: database.send(columns), retries_during_outage=context.failover is None
        )
    except OutcomeUnknownError as lost:
        try:
            return await context.with_retries(lambda _again: database.send(columns))
        except DatabaseUnavailableError as problem:
            raise OutcomeUnknownError(str(problem)) from lost


def stored_form(message: NewSqsMessage, keys: Keyring | None) -> tuple[str, bytes | None, str | None]:
    """Body, attributes and key id, as they are stored."""
    if keys is None:
        return message.body, message.attributes, None
    attributes = None if message.attributes is None else keys.seal(message.attributes, *_PLACE)
    return keys.seal(message.body.encode(), *_PLACE).decode(), attributes, keys.current_id


# ---------------------------------------------------------------- receive


class Outcome(FetchResult):
    """The messages of a receive; if there are none, seconds until one becomes visible by itself (``inf``: never)."""

    __slots__ = ("more", "prefetched", "ready_in", "received")

    def __init__(self, received: SqsReceived, ready_in: float) -> None:
        self.received, self.ready_in = received, ready_in
        self.more, self.prefetched = True, False

    @property
    def found(self) -> bool:
        """Whether to answer now: there are messages, or there will be none."""
        return bool(self.received.messages) or self.received.outcome != "ok"

    @property
    def result(self) -> SqsReceived:
        """The answer."""
        return self.received


async def receive(context: Context, requests: Sequence[ReceiveMessages]) -> list[Outcome]:
    """Serves all receives; one outcome each.

    A call whose answer was lost may have taken messages that no consumer got: they are visible again at their timeout,
    or a receive with the same attempt id returns them.
    """
    columns = ReceiveColumns(
        [request.queue_id for request in requests],
        [request.limit for request in requests],
        [request.visibility_s for request in requests],
        [request.attempt_id for request in requests],
        [request.in_flight_max for request in requests],
    )
    stored, queues = await context.with_retries(lambda _again: Sqs.of(context).database.receive(columns))
    announce_dead(context, [(queue, of_queue.dlq_id, of_queue.dead) for queue, of_queue in queues.items()])
    return [
        _outcome(context, messages, queues[request.queue_id])
        for request, messages in zip(requests, stored, strict=True)
    ]


def announce_dead(context: Context, routed: Iterable[tuple[UUID, UUID | None, int]]) -> None:
    """Counts dead letters, and notifies long polls; by source: the dead-letter queue, and how many went there."""
    for queue, dlq_id, dead in routed:
        if dlq_id is not None and dead:
            SimpleMq.of(context).outcomes.add(queue, DEAD, "", dead)
            announce(context, dlq_id, dead)


def _outcome(context: Context, messages: Sequence[StoredMessage], of_queue: OfQueue) -> Outcome:
    received = SqsReceived("ok", [opened(context, message) for message in messages])
    if not of_queue.known:
        received = SqsReceived("unknown")
    elif of_queue.is_full and not messages:
        received = SqsReceived("over_limit")
    return Outcome(received, inf if of_queue.ready_in is None else of_queue.ready_in)


def opened(context: Context, message: StoredMessage) -> ReceivedMessage:
    """A message as it was sent; if it cannot be decrypted, without its contents."""
    body: str | None = message.data
    attributes, problem = message.attributes, None
    if message.key_id is not None:
        try:
            body = open_payload(message.key_id, message.data.encode(), *_PLACE, context.keys).decode()
            if attributes is not None:
                attributes = open_payload(message.key_id, attributes, *_PLACE, context.keys)
        except DecryptionError as error:
            body, attributes, problem = None, None, str(error)
    return ReceivedMessage(
        message.message_id, body, attributes, message.delivery_count, message.created_at, message.first_received_at,
        message.group, message.deduplication_id, sequence_of(message.message_id) if message.fifo else None,
        message.source, message.sent_id, problem,
    )  # fmt: skip


def count_received(context: Context, request: ReceiveMessages, received: SqsReceived) -> None:
    """Counts the answer to a receive."""
    number, outcomes = len(received.messages), SimpleMq.of(context).outcomes
    context.counters.messages += number
    if number:
        outcomes.add(request.queue_id, RECEIVED, "", number)
    elif received.outcome == "ok":
        outcomes.add(request.queue_id, EMPTY, "")


async def give_back(context: Context, request: ReceiveMessages, received: SqsReceived) -> None:
    """Makes messages visible again whose consumer has gone: other consumers get them now, not at the timeout."""
    messages = [(message.message_id, message.receive_count) for message in received.messages]
    if not messages:
        return
    await context.with_retries(
        lambda _again: context.past_locks(lambda: Sqs.of(context).database.give_back(request.queue_id, messages))
    )
    announce(context, request.queue_id, len(messages))


# ---------------------------------------------------------------- delete, change visibility


async def delete(context: Context, requests: Sequence[DeleteMessages]) -> list[SqsOutcomes]:
    """Removes the messages of all requests; one answer each. What a lost call has removed is ``deleted``, too."""
    queues = [request.queue for request in requests for _ in request.messages]
    messages, counts = zip(*[each for request in requests for each in request.messages], strict=True)
    found, lost = await context.tried(lambda _again: Sqs.of(context).database.delete(queues, messages, counts))
    for queue, (outcome, freed) in zip(queues, found, strict=True):
        if outcome == "deleted":
            SimpleMq.of(context).outcomes.add(queue, DELETED, "")
        if freed:
            announce(context, queue, 1)
    return _shared_out(requests, ["deleted" if lost and outcome == "missing" else outcome for outcome, _ in found])


async def change_visibility(context: Context, requests: Sequence[ChangeVisibility]) -> list[SqsOutcomes]:
    """Changes how long messages stay hidden; one answer each."""
    queues = [request.queue for request in requests for _ in request.messages]
    messages, counts, seconds = zip(*[each for request in requests for each in request.messages], strict=True)
    found = await context.with_retries(
        lambda _again: Sqs.of(context).database.change_visibility(queues, messages, counts, seconds)
    )
    # Waiting receives learn when to check again: now, if a message is visible at once.
    _announce_each(context, [queue for queue, outcome in zip(queues, found, strict=True) if outcome == "changed"])
    return _shared_out(requests, found)


def _announce_each(context: Context, queues: Sequence[UUID]) -> None:
    """One message of each queue, as often as it is named."""
    for queue, messages in Counter(queues).items():
        announce(context, queue, messages)


def _shared_out(
    requests: Sequence[DeleteMessages] | Sequence[ChangeVisibility], outcomes: Iterable[str]
) -> list[SqsOutcomes]:
    """The outcomes of all messages, by request."""
    rest = iter(outcomes)
    return [SqsOutcomes([next(rest) for _ in request.messages]) for request in requests]
