"""The engine with tracing: operations on queues are recorded in spans, and trace contexts in messages.

It replaces ``EngineHandle`` only if telemetry is on, so that the latter needs no check.
"""

from asyncio import Future
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from msgspec import structs
from opentelemetry.sdk.trace import SpanLimits
from opentelemetry.semconv._incubating.attributes import messaging_attributes as messaging
from opentelemetry.trace import Span
from opentelemetry.util.types import AttributeValue

from queen.core.job_type import JobType
from queen.engine.handle import EngineHandle
from queen.engine.job import Job
from queen.log.requests import QUEUE_MODE, Ack, Acked, Cycle, Pop, Popped, Push, Transaction
from queen.log.trace_context import Delivered, delivered, stamp, stamp_timers, stamp_transaction
from queen.simple_mq.requests import Acknowledge, Dequeue, Dequeued, Enqueue, ExtendVisibility
from queen.simple_mq.sqs_requests import ChangeVisibility, DeleteMessages, SendMessages, SqsReceived
from queen.sqs import contents
from queen.telemetry.exchange import context_of, current

Attributes = dict[str, AttributeValue]

QUEEN, SIMPLE_MQ, SQS = "queen", "simple_mq", "aws_sqs"
_LINKS_MAX = SpanLimits().max_links


class TracedEngine(EngineHandle):
    """An engine that describes jobs in the span of the request that submits them."""

    def submit(self, kind: JobType, request: Any) -> Job:  # noqa: ANN401 - any operation
        """Hands a request to the engine; await ``future`` of the job for the result."""
        exchange, describe = current.get(), _DESCRIBED.get(kind)
        if exchange is None or describe is None:
            return super().submit(kind, request)
        if kind in _STAMPED and (traceparent := exchange.traceparent) is not None:
            request = _STAMPED[kind](request, traceparent)
        job = super().submit(kind, request)
        if exchange.span.is_recording():
            exchange.span.set_attributes(describe(request))
            if kind in _ANSWERED:
                # Before the result is delivered, and so before the span ends.
                job.future.add_done_callback(partial(_answered, _ANSWERED[kind], exchange.span))
        return job


def _answered(tell: Callable[[Span, Any], None], span: Span, future: "Future[Any]") -> None:
    if not future.cancelled() and future.exception() is None:
        tell(span, future.result())


# ---------------------------------------------------------------- what is asked


def _operation(name: str, kind: str, system: str = QUEEN) -> Attributes:
    attributes: Attributes = {messaging.MESSAGING_SYSTEM: system, messaging.MESSAGING_OPERATION_NAME: name}
    return attributes | ({messaging.MESSAGING_OPERATION_TYPE: kind} if kind else {})


def _only(name: str, values: Iterable[str]) -> Attributes:
    """The attribute, if all values are the same."""
    found = set(values)
    return {name: found.pop()} if len(found) == 1 else {}


def _group(names: Iterable[str]) -> Attributes:
    found = _only(messaging.MESSAGING_CONSUMER_GROUP_NAME, names)
    return {name: group for name, group in found.items() if group != QUEUE_MODE}


def _destination(push: Push) -> Attributes:
    queues = _only(messaging.MESSAGING_DESTINATION_NAME, (batch.queue for batch in push.batches))
    if not queues:
        return {}
    return queues | _only(messaging.MESSAGING_DESTINATION_PARTITION_ID, (batch.partition for batch in push.batches))


def _of_push(push: Push) -> Attributes:
    return {**_operation("push", "send"), **_destination(push), messaging.MESSAGING_BATCH_MESSAGE_COUNT: push.items}


def _of_pop(pop: Pop) -> Attributes:
    attributes = _operation("pop", "receive") | _group([pop.group])
    if pop.queue:
        attributes[messaging.MESSAGING_DESTINATION_NAME] = pop.queue
    if pop.partition is not None:
        attributes[messaging.MESSAGING_DESTINATION_PARTITION_ID] = pop.partition
    return attributes


def _of_ack(ack: Ack) -> Attributes:
    attributes = _operation("ack", "settle") | _group(item.group for item in ack.items)
    return attributes | {messaging.MESSAGING_BATCH_MESSAGE_COUNT: len(ack.items)}


def _of_transaction(transaction: Transaction) -> Attributes:
    attributes = _operation("transaction", "send" if transaction.push.items else "settle")
    attributes |= _destination(transaction.push) | _group(item.group for item in transaction.acks)
    return attributes | {messaging.MESSAGING_BATCH_MESSAGE_COUNT: transaction.push.items or len(transaction.acks)}


def _of_cycle(cycle: Cycle) -> Attributes:
    attributes = _operation("cycle", "process") | _destination(cycle.push) | _group([cycle.group])
    return attributes | {messaging.MESSAGING_BATCH_MESSAGE_COUNT: cycle.push.items}


def _of_enqueue(enqueue: Enqueue) -> Attributes:
    return _operation("enqueue", "send", SIMPLE_MQ) | {
        messaging.MESSAGING_DESTINATION_NAME: str(enqueue.queue),
        messaging.MESSAGING_BATCH_MESSAGE_COUNT: len(enqueue.messages),
    }


def _of_dequeue(dequeue: Dequeue) -> Attributes:
    return _operation("dequeue", "receive", SIMPLE_MQ) | {messaging.MESSAGING_DESTINATION_NAME: dequeue.queue}


def _of_acknowledge(ack: Acknowledge) -> Attributes:
    return _operation("ack", "settle", SIMPLE_MQ) | {
        messaging.MESSAGING_DESTINATION_NAME: str(ack.queue),
        messaging.MESSAGING_BATCH_MESSAGE_COUNT: len(ack.message_ids),
    }


def _of_extension(extension: ExtendVisibility) -> Attributes:
    return _operation("extend_visibility", "", SIMPLE_MQ) | {
        messaging.MESSAGING_DESTINATION_NAME: str(extension.queue),
        messaging.MESSAGING_MESSAGE_ID: str(extension.message_id),
    }


def _of_sqs(name: str, kind: str) -> Callable[[SendMessages | DeleteMessages | ChangeVisibility], Attributes]:
    """The name of the queue is known to the request only (``queen.telemetry.requests``)."""
    return lambda request: (
        _operation(name, kind, SQS) | {messaging.MESSAGING_BATCH_MESSAGE_COUNT: len(request.messages)}
    )


_DESCRIBED: Mapping[JobType, Callable[[Any], Attributes]] = {
    JobType.PUSH: _of_push,
    JobType.POP: _of_pop,
    JobType.ACK: _of_ack,
    JobType.TRANSACTION: _of_transaction,
    JobType.RENEW_LEASE: lambda _renew: _operation("extend_lease", ""),
    JobType.CYCLE: _of_cycle,
    JobType.TIMER: lambda _changes: _operation("timer", ""),
    JobType.ENQUEUE: _of_enqueue,
    JobType.DEQUEUE: _of_dequeue,
    JobType.ACKNOWLEDGE: _of_acknowledge,
    JobType.EXTEND_VISIBILITY: _of_extension,
    JobType.SQS_SEND: _of_sqs("send", "send"),
    JobType.SQS_RECEIVE: lambda _receive: _operation("receive", "receive", SQS),
    JobType.SQS_DELETE: _of_sqs("delete", "settle"),
    JobType.SQS_CHANGE_VISIBILITY: _of_sqs("change_visibility", ""),
}


def _stamp_enqueue(enqueue: Enqueue, traceparent: str) -> Enqueue:
    return structs.replace(enqueue, traceparent=traceparent)


def _stamp_send(send: SendMessages, traceparent: str) -> SendMessages:
    messages = [
        structs.replace(message, attributes=contents.with_context(message.attributes, traceparent))
        for message in send.messages
    ]
    return structs.replace(send, messages=messages)


_STAMPED: Mapping[JobType, Callable[[Any, str], Any]] = {
    JobType.PUSH: stamp,
    JobType.TRANSACTION: stamp_transaction,
    JobType.CYCLE: stamp,
    JobType.TIMER: stamp_timers,
    JobType.ENQUEUE: _stamp_enqueue,
    JobType.SQS_SEND: _stamp_send,
}


# ---------------------------------------------------------------- what is answered


def _tell_popped(span: Span, popped: Popped) -> None:
    _tell(span, delivered(popped))
    span.set_attributes(_only(messaging.MESSAGING_DESTINATION_NAME, (claim.queue for claim in popped.claims)))
    if len(popped.claims) == 1:
        span.set_attribute(messaging.MESSAGING_DESTINATION_PARTITION_ID, popped.claims[0].partition)


def _tell_dequeued(span: Span, dequeued: Dequeued) -> None:
    contexts = Counter(message.traceparent for message in dequeued.messages if message.traceparent)
    _tell(span, Delivered(len(dequeued.messages), contexts))


def _tell_received(span: Span, received: SqsReceived) -> None:
    found = (contents.context_of(contents.unpack(message.attributes)) for message in received.messages)
    _tell(span, Delivered(len(received.messages), Counter(context for context in found if context)))


def _tell_acked(span: Span, acked: Acked) -> None:
    queues = (result.queue for result in acked.results if result.queue is not None)
    span.set_attributes(_only(messaging.MESSAGING_DESTINATION_NAME, queues))


def _tell(span: Span, found: Delivered) -> None:
    """Counts the messages and links to their trace contexts: one link per context, with the number of its messages."""
    span.set_attribute(messaging.MESSAGING_BATCH_MESSAGE_COUNT, found.messages)
    for context, messages in found.contexts.most_common(_LINKS_MAX):
        span.add_link(context_of(context), {messaging.MESSAGING_BATCH_MESSAGE_COUNT: messages})


_ANSWERED: Mapping[JobType, Callable[[Span, Any], None]] = {
    JobType.POP: _tell_popped,
    JobType.DEQUEUE: _tell_dequeued,
    JobType.SQS_RECEIVE: _tell_received,
    JobType.ACK: _tell_acked,
}
