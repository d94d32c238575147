"""The actions that send and receive messages."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct

from queen.core.job_type import JobType
from queen.http.disconnect import serve_or_abandon
from queen.simple_mq.job_specs import SIMPLE_MQ_SPECS
from queen.simple_mq.metrics import OPERATION_SECONDS
from queen.simple_mq.sqs_requests import (
    RECEIVE_MESSAGES_MAX,
    VISIBILITY_SECONDS_MAX,
    NewSqsMessage,
    ReceivedMessage,
    ReceiveMessages,
    SendMessages,
    Sent,
    SentAll,
    SqsQueue,
    SqsReceived,
)
from queen.sqs import contents
from queen.sqs.attributes import MESSAGE_BYTES_MAX, encrypted, number_of, unknown_attribute
from queen.sqs.batches import batch_answer, check_entries
from queen.sqs.contents import Kept, Value
from queen.sqs.errors import SqsError, invalid_parameter, invalid_value, missing
from queen.sqs.handles import Handles
from queen.sqs.worker import Call

Result = dict[str, Any]
_DELAY_S_MAX, _WAIT_S_MAX = 900, 20
_TRACE_ID = "X-Amzn-Trace-Id"

#: Attributes that the system gives to messages.
_SYSTEM = frozenset(
    {
        "SenderId",
        "SentTimestamp",
        "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp",
        "SequenceNumber",
        "MessageDeduplicationId",
        "MessageGroupId",
        contents.TRACE_HEADER,
        "DeadLetterQueueSourceArn",
    }
)
_ALL = "All"


# ---------------------------------------------------------------- send


class Prepared(Struct, frozen=True):
    """A message that can be sent.

    Attributes:
        message: as it is stored.
        size: in bytes, with its attributes.
        hashes: of body and attributes, as members of the answer.
    """

    message: NewSqsMessage
    size: int
    hashes: Mapping[str, str]


async def send_message(call: Call) -> Result:
    """Stores a message."""

    async def work(queue: SqsQueue) -> Result | None:
        prepared = _prepare(call, queue, call.given)
        sent = await _send(call, queue, [prepared])
        return None if sent is None else _sent(prepared, sent[0])

    return await call.on_queue(work)


async def send_message_batch(call: Call) -> Result:
    """Stores up to ten messages, each on its own."""
    entries = call.given.Entries
    check_entries(entries, "SendMessageBatchRequestEntry")
    size = sum(contents.size_of(entry) for entry in entries)
    if size > MESSAGE_BYTES_MAX:
        raise SqsError(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {MESSAGE_BYTES_MAX} bytes. You have sent {size} bytes.",
        )

    async def work(queue: SqsQueue) -> Result | None:
        if queue.fifo:
            _check_fifo_entries(queue, entries)
        prepared: dict[str, Prepared] = {}
        failed: dict[str, SqsError] = {}
        for entry in entries:
            try:
                prepared[entry.Id] = _prepare(call, queue, entry)
            except SqsError as problem:
                failed[entry.Id] = problem
        sent = await _send(call, queue, list(prepared.values())) if prepared else []
        if sent is None:
            return None
        successful = [
            {"Id": name, **_sent(each, done)} for (name, each), done in zip(prepared.items(), sent, strict=True)
        ]
        return batch_answer(successful, failed)

    return await call.on_queue(work)


def _check_fifo_entries(queue: SqsQueue, entries: Sequence[Any]) -> None:
    """AWS refuses a whole batch if one of its messages has no group or deduplication id."""
    for entry in entries:
        if entry.MessageGroupId is None:
            raise invalid_value("The request must contain the parameter MessageGroupId.")
        _check_deduplicated(queue, entry)


def _check_deduplicated(queue: SqsQueue, given: Any) -> None:  # noqa: ANN401 - a struct made from the model
    if given.MessageDeduplicationId is None and queue.attributes.get("ContentBasedDeduplication") != "true":
        raise invalid_value(
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided "
            "explicitly"
        )


def _prepare(call: Call, queue: SqsQueue, given: Any) -> Prepared:  # noqa: ANN401
    """The message of a request or an entry, checked."""
    body = given.MessageBody
    if not body:
        raise missing("MessageBody")
    contents.check_body(body)
    attributes = contents.attributes_of(given.MessageAttributes)
    trace = contents.trace_of(given.MessageSystemAttributes)
    size = contents.size_of(given)
    size_max = number_of(queue.attributes, "MaximumMessageSize")
    if size > size_max:
        found = "are invalid" if given is call.given else "cannot be validated"
        raise invalid_value(f"One or more parameters {found}. Reason: Message must be shorter than {size_max} bytes.")
    hashes = {"MD5OfMessageBody": contents.md5(body)}
    if attributes:
        hashes["MD5OfMessageAttributes"] = contents.md5_of_attributes(attributes)
    if trace is not None:
        system = {contents.TRACE_HEADER: Value("String", trace)}
        hashes["MD5OfMessageSystemAttributes"] = contents.md5_of_attributes(system)
    kept = Kept(attributes, trace or call.req.get_header(_TRACE_ID), call.req.subject)
    group, deduplication_id = _fifo_ids(queue, given)
    message = NewSqsMessage(
        body, contents.pack(kept), _delay(queue, given.DelaySeconds), group, deduplication_id
    )  # fmt: skip
    return Prepared(message, size, hashes)


def _fifo_ids(queue: SqsQueue, given: Any) -> tuple[str | None, str | None]:  # noqa: ANN401
    """The group and the deduplication id of a message."""
    group, deduplication_id = given.MessageGroupId, given.MessageDeduplicationId
    if group is not None:
        contents.check_id("MessageGroupId", group)
    elif queue.fifo:
        raise missing("MessageGroupId")
    if deduplication_id is not None:
        if not queue.fifo:
            raise invalid_parameter(
                "MessageDeduplicationId",
                deduplication_id,
                "The request includes a parameter that is not valid for this queue type",
            )
        return group, contents.check_id("MessageDeduplicationId", deduplication_id)
    if not queue.fifo:
        return group, None
    _check_deduplicated(queue, given)
    return group, contents.deduplication_id_of(given.MessageBody)


def _delay(queue: SqsQueue, seconds: int | None) -> int | None:
    if seconds is None:
        return None
    if not 0 <= seconds <= _DELAY_S_MAX:
        raise invalid_parameter("DelaySeconds", seconds, f"DelaySeconds must be >= 0 and <= {_DELAY_S_MAX}.")
    if not queue.fifo:
        return seconds
    if seconds:
        raise invalid_parameter(
            "DelaySeconds", seconds, "The request include parameter that is not valid for this queue type."
        )
    return None


async def _send(call: Call, queue: SqsQueue, prepared: Sequence[Prepared]) -> Sequence[Sent] | None:
    """The results of messages; ``None``: the queue is gone."""
    size = sum(each.size for each in prepared)
    encrypts = encrypted(queue.attributes, encrypts=call.sqs.server.keys is not None)
    request = SendMessages(queue.queue_id, [each.message for each in prepared], size, encrypts, queue.name)
    call.req.forget_body()
    with OPERATION_SECONDS.labels("enqueue").time():
        sent: SentAll = await call.sqs.server.engine.submit(JobType.SQS_SEND, request).future
    return sent.messages if sent.known else None


def _sent(prepared: Prepared, sent: Sent) -> Result:
    found: Result = {"MessageId": str(sent.message_id), **prepared.hashes}
    if sent.sequence is not None:
        found["SequenceNumber"] = _sequence(sent.sequence)
    return found


def _sequence(number: int) -> str:
    """A sequence number as text that is in order, too."""
    return f"{number:020d}"


# ---------------------------------------------------------------- receive


async def receive_message(call: Call) -> Result:
    """Receives up to ten messages, and waits for one if asked to."""
    given = call.given
    system = _system_names([*(given.AttributeNames or ()), *(given.MessageSystemAttributeNames or ())])
    limit = _within("MaxNumberOfMessages", given.MaxNumberOfMessages, 1, RECEIVE_MESSAGES_MAX)
    visibility_s = _within("VisibilityTimeout", given.VisibilityTimeout, 0, VISIBILITY_SECONDS_MAX)
    wait_s = _within("WaitTimeSeconds", given.WaitTimeSeconds, 0, _WAIT_S_MAX)
    handles = await call.sqs.handles()

    async def work(queue: SqsQueue) -> Result | None:
        attempt_id = given.ReceiveRequestAttemptId
        if attempt_id is not None:
            _check_attempt(queue, attempt_id)
        seconds = number_of(queue.attributes, "ReceiveMessageWaitTimeSeconds") if wait_s is None else wait_s
        limits = call.sqs.server.settings.sqs
        in_flight_max = limits.fifo_in_flight_max if queue.fifo else limits.in_flight_max
        poll = ReceiveMessages(queue.queue_id, in_flight_max, limit or 1, visibility_s, seconds * 1000, attempt_id)
        received = await _receive(call, poll)
        if received.outcome == "unknown":
            return None
        if received.outcome == "over_limit" and not queue.fifo:
            raise SqsError("OverLimit", f"{in_flight_max} messages of this queue are in flight: delete some first.")
        sources = await call.sqs.names_of(each.source for each in received.messages)
        messages = readable(received.messages, fifo=queue.fifo)
        shown = [_shown(call, handles, queue, each, system, sources) for each in messages]
        return {"Messages": shown} if shown else {}

    return await call.on_queue(work)


async def _receive(call: Call, poll: ReceiveMessages) -> SqsReceived:
    engine = call.sqs.server.engine
    call.req.forget_body()
    job = engine.submit(JobType.SQS_RECEIVE, poll)
    if poll.wait_ms:
        return await serve_or_abandon(call.req, engine, job, SqsReceived(), SIMPLE_MQ_SPECS)
    with OPERATION_SECONDS.labels("dequeue").time():
        return await job.future  # type: ignore[no-any-return]


def _system_names(names: Iterable[str]) -> frozenset[str]:
    found = frozenset(names)
    for name in found - _SYSTEM - {_ALL}:
        raise unknown_attribute(name)
    return _SYSTEM if _ALL in found else found


def _within(name: str, value: int | None, low: int, high: int) -> int | None:
    if value is not None and not low <= value <= high:
        between = f"between {low} and {high}" if low else f">= {low} and <= {high}"
        raise invalid_parameter(name, value, f"Must be {between}, if provided.")
    return value


def _check_attempt(queue: SqsQueue, attempt_id: str) -> None:
    contents.check_id("ReceiveRequestAttemptId", attempt_id)
    if not queue.fifo:
        raise invalid_parameter(
            "ReceiveRequestAttemptId",
            attempt_id,
            "The request include parameter that is not valid for this queue type.",
        )


def readable(messages: Sequence[ReceivedMessage], *, fifo: bool) -> list[ReceivedMessage]:
    """Those that can be decrypted; of a FIFO queue without those behind others of their group.

    The rest comes again after its visibility timeout, or becomes a dead letter.

    Raises:
        SqsError: none can be.
    """
    found: list[ReceivedMessage] = []
    stopped: set[str | None] = set()
    for message in messages:
        if message.body is None:
            stopped.add(message.group)
        elif not fifo or message.group not in stopped:
            found.append(message)
    if messages and not found:
        first = next(each for each in messages if each.body is None)
        raise SqsError("KmsNotFound", f"Message {first.message_id} cannot be decrypted: {first.problem}")
    return found


def _shown(
    call: Call,
    handles: Handles,
    queue: SqsQueue,
    message: ReceivedMessage,
    system: frozenset[str],
    sources: Mapping[UUID, str],
) -> Result:
    """A message as its consumer sees it."""
    body = message.body or ""
    kept = contents.unpack(message.attributes)
    found: Result = {
        "MessageId": str(message.sent_id or message.message_id),
        "ReceiptHandle": handles.seal(
            queue.queue_id, message.message_id, message.receive_count, int(time.time() * 1000)
        ),
        "MD5OfBody": contents.md5(body),
        "Body": body,
    }
    if system:
        facts = facts_of(call, message, kept, sources)
        found["Attributes"] = {name: value for name, value in facts.items() if name in system and value is not None}
    chosen = contents.selected(kept.attributes, call.given.MessageAttributeNames)
    if chosen:
        found["MD5OfMessageAttributes"] = contents.md5_of_attributes(chosen)
        found["MessageAttributes"] = {name: value.shown for name, value in chosen.items()}
    return found


def facts_of(call: Call, message: ReceivedMessage, kept: Kept, sources: Mapping[UUID, str]) -> dict[str, str | None]:
    """The attributes that the system gives to a message; those that it does not have are ``None``."""
    source = None if message.source is None else sources.get(message.source)
    first = message.first_received_at
    return {
        "SenderId": kept.sender or call.place.account,
        "SentTimestamp": str(int(message.sent_at.timestamp() * 1000)),
        "ApproximateReceiveCount": str(message.receive_count),
        "ApproximateFirstReceiveTimestamp": None if first is None else str(int(first.timestamp() * 1000)),
        "SequenceNumber": None if message.sequence is None else _sequence(message.sequence),
        "MessageDeduplicationId": message.deduplication_id,
        "MessageGroupId": message.group,
        contents.TRACE_HEADER: contents.trace_header_of(kept),
        "DeadLetterQueueSourceArn": None if source is None else call.place.arn_of(source),
    }
