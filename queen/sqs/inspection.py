"""Actions that SQS does not have, for the command line and the dashboard: to look at queues and messages."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from queen.simple_mq import sqs_administration as storage
from queen.simple_mq.sqs_metrics import DEAD, DELETED, EMPTY, RECEIVED, SENT
from queen.simple_mq.sqs_requests import PeekedMessage, SqsOverview
from queen.sqs import contents
from queen.sqs.addresses import may_name
from queen.sqs.errors import invalid_parameter, invalid_value
from queen.sqs.messages import facts_of
from queen.sqs.worker import Call

Result = dict[str, Any]

_PAGE, _PAGE_MAX = 10, 100
#: No more messages after so many bytes of bodies.
_PAGE_BYTES = 4 << 20


async def list_queues(call: Call) -> Result:
    """A page of queues whose names contain a text, with their messages and counters."""
    search, after, limit = call.given.Search or "", call.given.NextToken or "", _limit(call)
    if not (may_name(search) and may_name(after)):
        return {"Queues": []}
    found = await call.run(lambda context: storage.overview(context, search, after, limit + 1))
    more = {"NextToken": found[limit - 1].statistics.name} if len(found) > limit else {}
    return {"Queues": [_overview(call, each) for each in found[:limit]], **more}


def _limit(call: Call) -> int:
    limit: int = _PAGE if call.given.MaxResults is None else call.given.MaxResults
    if not 1 <= limit <= _PAGE_MAX:
        raise invalid_parameter("MaxResults", limit, f"Must be between 1 and {_PAGE_MAX}, if provided.")
    return limit


def _overview(call: Call, found: SqsOverview) -> Result:
    of, counts = found.statistics, found.statistics.counts
    return {
        "QueueName": of.name, "QueueUrl": call.place.url_of(of.name), "DeadLetterQueue": found.dead_letter_queue,
        "Visible": of.visible, "InFlight": of.in_flight, "Delayed": of.delayed, "OldestSeconds": of.oldest_age_s,
        "Sent": counts.get(SENT, 0), "Received": counts.get(RECEIVED, 0), "EmptyReceives": counts.get(EMPTY, 0),
        "Deleted": counts.get(DELETED, 0), "DeadLettered": counts.get(DEAD, 0),
    }  # fmt: skip


async def peek_messages(call: Call) -> Result:
    """A page of messages in the order in which they were sent, in any state. Receives none of them."""
    queue, limit, after = await call.present_queue(), _limit(call), _message(call.given.NextToken)
    found = await call.run(lambda context: storage.peek(context, queue.queue_id, after, limit, _PAGE_BYTES))
    sources = await call.sqs.names_of(each.message.source for each in found)
    # The next page may be empty.
    more = {"NextToken": str(found[-1].message.message_id)} if found else {}
    return {"Messages": [_shown(call, each, sources) for each in found], **more}


def _message(token: str | None) -> UUID | None:
    try:
        return None if token is None else UUID(token)
    except ValueError:
        raise invalid_value("Invalid or expired next token.") from None


def _shown(call: Call, found: PeekedMessage, sources: Mapping[UUID, str]) -> Result:
    message = found.message
    kept = contents.unpack(message.attributes)
    facts = facts_of(call, message, kept, sources)
    return {
        "MessageId": str(message.sent_id or message.message_id),
        "State": found.place,
        "VisibleTimestamp": str(int(found.visible_at.timestamp() * 1000)),
        "Body": message.body,
        "Problem": message.problem,
        "Attributes": {name: value for name, value in facts.items() if value is not None},
        "MessageAttributes": {name: value.shown for name, value in kept.attributes.items()},
    }
