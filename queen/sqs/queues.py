"""The actions that concern whole queues: their life, attributes, tags, and permissions."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from queen.simple_mq import sqs_administration as storage
from queen.simple_mq.sqs_requests import SqsFigures, SqsQueue
from queen.sqs import attributes as rules
from queen.sqs.addresses import check_name, may_name
from queen.sqs.errors import SqsError, invalid_parameter, invalid_value, missing, unknown_queue
from queen.sqs.worker import Call

Result = dict[str, Any]

_PAGE_MAX = 1000
_PERMISSIONS_MAX, _ACTIONS_MAX = 20, 7
#: What a permission can be for.
_GRANTED = frozenset(
    {
        "*", "ChangeMessageVisibility", "DeleteMessage", "GetQueueAttributes", "GetQueueUrl",
        "ListDeadLetterSourceQueues", "PurgeQueue", "ReceiveMessage", "SendMessage",
    }
)  # fmt: skip


# ---------------------------------------------------------------- life


async def create_queue(call: Call) -> Result:
    """Creates a queue, or returns the one of the same name and attributes."""
    name, given, tags = call.given.QueueName, rules.tidied(call.given.Attributes or {}), call.given.tags or {}
    fifo = given.get(rules.FIFO_QUEUE) == "true"
    check_name(name, fifo=fifo)
    rules.check_settable(given, fifo=fifo)
    rules.check_tags(name, tags)
    await _check_redrive(call, name, given, fifo=fifo)
    wanted = {key: value for key, value in given.items() if value}
    queue, created = await call.run(lambda context: storage.create_queue(context, name, wanted, tags, fifo=fifo))
    if not created:
        rules.check_same(queue.attributes, given)
    call.sqs.forget(name)
    return {"QueueUrl": call.place.url_of(name)}


async def _check_redrive(call: Call, name: str, given: Mapping[str, str], *, fifo: bool) -> None:
    """Checks that the dead-letter queue of attributes exists, is of the same type, and allows it."""
    value = given.get("RedrivePolicy")
    if not value:
        return
    target = await call.sqs.find(rules.redrive_of(value).target)
    reason = ""
    if target is None:
        reason = "Dead letter target does not exist."
    elif target.fifo != fifo:
        reason = "Dead-letter queue must be same type of queue as the source."
    elif not rules.allowed_of(target.attributes.get("RedriveAllowPolicy")).admits(name):
        reason = "The dead-letter queue's RedriveAllowPolicy does not allow this queue."
    elif not await call.run(lambda context: storage.are_together(context, name, target)):
        reason = (
            f"{target.name} is on another database than {name}. Queues whose names are equal up to -- are on one: give "
            f"the dead-letter queue a name such as {storage.dead_letter_name_for(name)}."
        )
    if reason:
        raise invalid_parameter("RedrivePolicy", value, reason)


async def delete_queue(call: Call) -> None:
    """Deletes a queue with its messages."""
    queue = await call.present_queue()
    await call.run(lambda context: storage.delete_queue(context, queue.queue_id))
    call.sqs.forget(queue.name)


async def purge_queue(call: Call) -> None:
    """Deletes the messages of a queue, at most once a minute."""
    queue = await call.present_queue()
    outcome = await call.run(lambda context: storage.purge_queue(context, queue.queue_id))
    if outcome == "unknown":
        raise unknown_queue()
    if outcome == "too_soon":
        raise SqsError(
            "PurgeQueueInProgress", f"Only one PurgeQueue operation on {queue.name} is allowed every 60 seconds."
        )


async def get_queue_url(call: Call) -> Result:
    """The URL of a queue, by its name."""
    found = await call.sqs.find(call.given.QueueName)
    if found is None:
        raise unknown_queue()
    return {"QueueUrl": call.place.url_of(found.name)}


# ---------------------------------------------------------------- lists


async def list_queues(call: Call) -> Result:
    """The URLs of queues, by a prefix of their names; in pages if a number is given."""
    prefix, after, limit = call.given.QueueNamePrefix or "", *_page(call)
    if not may_name(prefix):
        return {}
    names = await call.run(lambda context: storage.list_queues(context, prefix, after, limit + 1))
    return _urls(call, "QueueUrls", names, limit)


async def list_dead_letter_source_queues(call: Call) -> Result:
    """The URLs of the queues that have a queue as their dead-letter queue."""
    queue, (after, limit) = await call.present_queue(), _page(call)
    names = await call.run(lambda context: storage.dead_letter_sources(context, queue.queue_id, after, limit + 1))
    return {"queueUrls": [], **_urls(call, "queueUrls", names, limit)}


def _page(call: Call) -> tuple[str, int]:
    """The name after which a page begins, and its size."""
    size, token = call.given.MaxResults, call.given.NextToken
    if size is None:
        size = _PAGE_MAX
    if not 1 <= size <= _PAGE_MAX:
        raise invalid_parameter("MaxResults", size, f"Must be between 1 and {_PAGE_MAX}, if provided.")
    try:
        after = urlsafe_b64decode(token or "").decode("ascii")
    except ValueError:
        after = "?"
    if not may_name(after):
        raise invalid_value("Invalid or expired next token.")
    return after, size


def _urls(call: Call, member: str, names: Sequence[str], limit: int) -> Result:
    if not names:
        return {}
    found: Result = {member: [call.place.url_of(name) for name in names[:limit]]}
    # AWS has pages only for clients that ask for a number.
    if len(names) > limit and call.given.MaxResults is not None:
        found["NextToken"] = urlsafe_b64encode(names[limit - 1].encode()).decode()
    return found


# ---------------------------------------------------------------- attributes


async def get_queue_attributes(call: Call) -> Result:
    """Attributes of a queue: none without names, as at AWS."""
    names = rules.check_known(call.given.AttributeNames)
    queue = await call.present_queue()
    found = rules.shown(queue.attributes, fifo=queue.fifo)
    found |= _facts(call, queue)
    if not names.isdisjoint(rules.FIGURES):
        figures = await call.run(lambda context: storage.figures(context, queue.queue_id))
        if figures is None:
            raise unknown_queue()
        found |= _figures(figures)
    chosen = {name: value for name, value in found.items() if name in names}
    return {"Attributes": chosen} if chosen else {}


def _facts(call: Call, queue: SqsQueue) -> dict[str, str]:
    return {
        "QueueArn": call.place.arn_of(queue.name),
        "CreatedTimestamp": str(int(queue.created_at.timestamp())),
        "LastModifiedTimestamp": str(int(queue.modified_at.timestamp())),
    }


def _figures(figures: SqsFigures) -> dict[str, str]:
    return dict(zip(rules.FIGURES, map(str, (figures.visible, figures.in_flight, figures.delayed)), strict=True))


async def set_queue_attributes(call: Call) -> None:
    """Changes attributes of a queue."""
    given, queue = rules.tidied(call.given.Attributes), await call.present_queue()
    rules.check_settable(given, fifo=queue.fifo)
    await _check_redrive(call, queue.name, given, fifo=queue.fifo)
    await _set(call, queue, given)


async def _set(call: Call, queue: SqsQueue, given: Mapping[str, str]) -> None:
    known = await call.run(lambda context: storage.set_attributes(context, queue.queue_id, given))
    call.sqs.forget(queue.name)
    if not known:
        raise unknown_queue()


# ---------------------------------------------------------------- tags


async def tag_queue(call: Call) -> None:
    """Adds tags to a queue, or changes them."""
    queue, tags = await call.present_queue(), call.given.Tags
    if not tags:
        raise missing("Tags")
    rules.check_tags(queue.name, {**queue.tags, **tags})
    if not await call.run(lambda context: storage.tag_queue(context, queue.queue_id, tags)):
        raise unknown_queue()


async def untag_queue(call: Call) -> None:
    """Removes tags of a queue."""
    queue, keys = await call.present_queue(), call.given.TagKeys
    if not keys:
        raise invalid_value("Tag keys must be between 1 and 128 characters in length.")
    rules.check_tag_keys(keys)
    if not await call.run(lambda context: storage.tag_queue(context, queue.queue_id, {}, keys)):
        raise unknown_queue()


async def list_queue_tags(call: Call) -> Result:
    """The tags of a queue."""
    queue = await call.present_queue()
    return {"Tags": dict(queue.tags)} if queue.tags else {}


# ---------------------------------------------------------------- permissions


async def add_permission(call: Call) -> None:
    """Adds a statement to the policy of a queue, which is stored and shown and has no effect."""
    queue, label = await call.present_queue(), call.given.Label
    accounts, allowed = call.given.AWSAccountIds, call.given.Actions
    _check_grant(accounts, allowed)
    arn, policy = call.place.arn_of(queue.name), _policy(queue)
    statements = policy.setdefault("Statement", [])
    if any(each.get("Sid") == label for each in statements):
        raise invalid_parameter("Label", label, "Already exists.")
    if len(statements) >= _PERMISSIONS_MAX:
        raise SqsError("OverLimit", f"A queue can have at most {_PERMISSIONS_MAX} statements in its policy.")
    statement = {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": _one_or_all([f"arn:aws:iam::{account}:root" for account in accounts])},
        "Action": _one_or_all([f"SQS:{action}" for action in allowed]),
        "Resource": arn,
    }
    new = {"Version": "2008-10-17", "Id": f"{arn}/SQSDefaultPolicy", **policy, "Statement": [*statements, statement]}
    await _set(call, queue, {"Policy": msgspec.json.encode(new).decode()})


def _check_grant(accounts: Sequence[str], allowed: Sequence[str]) -> None:
    if not allowed:
        raise missing("Actions")
    if not accounts:
        raise invalid_parameter("PrincipalId", "[]", "Unable to verify.")
    if len(allowed) > _ACTIONS_MAX:
        raise SqsError("OverLimit", f"{len(allowed)} Actions were found, maximum allowed is {_ACTIONS_MAX}.")
    for action in allowed:
        if action not in _GRANTED:
            reason = "Only the queue owner is allowed to invoke this action."
            raise invalid_parameter("ActionName", f"SQS:{action}", reason)


async def remove_permission(call: Call) -> None:
    """Removes a statement from the policy of a queue."""
    queue, label = await call.present_queue(), call.given.Label
    policy = _policy(queue)
    kept = [each for each in policy.get("Statement", []) if each.get("Sid") != label]
    if len(kept) == len(policy.get("Statement", [])):
        raise invalid_parameter("Label", label, "can't find label.")
    text = msgspec.json.encode({**policy, "Statement": kept}).decode() if kept else ""
    await _set(call, queue, {"Policy": text})


def _policy(queue: SqsQueue) -> dict[str, Any]:
    """The policy of a queue, of which statements must be a list of objects to be changed here."""
    policy: dict[str, Any] = msgspec.json.decode(queue.attributes.get("Policy") or "{}")
    statements = policy.get("Statement", [])
    if isinstance(statements, dict):
        policy["Statement"] = [statements]
    elif not isinstance(statements, list) or not all(isinstance(each, dict) for each in statements):
        raise invalid_value("The policy of the queue has no list of statements.")
    return policy


def _one_or_all(values: list[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else values
