"""Shows and deletes one message: ``/api/v1/messages/{partitionId}/{transactionId}``."""

from datetime import datetime

import falcon.asgi
from msgspec import UNSET, Raw, Struct, UnsetType

from queen.core.administration import MessageDetail
from queen.core.errors import NotFoundError
from queen.engine.handlers.removal import delete_message as delete
from queen.http.access import READ_ONLY, READ_WRITE
from queen.http.answers import answer, shown, shown_headers, stamp, text
from queen.http.operation import Answer, operation
from queen.http.parameters import PARTITION_ID, TRANSACTION_ID
from queen.http.queries import MESSAGE_NOT_FOUND, message_key
from queen.http.request import QueenRequest
from queen.log import ids
from queen.log.requests import QUEUE_MODE
from queen.operations.list_messages import mode_type
from queen.operations.server import Server
from queen.security.keyring import Keyring

_PATH = "/api/v1/messages/{partitionId}/{transactionId}"


class QueueConfig(Struct, rename="camel"):
    """Options of the queue of a message."""

    lease_time: int
    retry_limit: int
    retry_delay: int
    ttl: int
    priority: int


class DetailMode(Struct, rename="camel"):
    """How the queue of a message is consumed."""

    has_queue_mode: bool
    bus_groups_count: int
    consumed_by_groups: int
    type: str


class GroupState(Struct, rename="camel"):
    """The state of a message for a group.

    Attributes:
        consumed: the group has done it and did not give it up.
        state: ``pending``, ``processing`` (in flight), ``completed``, or ``dead_letter``: the group gave it up.
        failed_at, error_message: of the dead letter.
    """

    name: str
    consumed: bool
    state: str
    lease_expires_at: str | None
    failed_at: str | None
    error_message: str | None


class MessageAnswer(Struct, rename="camel"):
    """One message."""

    id: str
    transaction_id: str
    partition_id: str
    queue_path: str
    queue: str
    partition: str
    namespace: str
    task: str
    status: str
    payload: Raw
    data: Raw
    is_encrypted: bool
    trace_id: str | None
    producer_sub: str | None
    created_at: str
    error_message: str | None
    retry_count: int | None
    lease_expires_at: str | None
    queue_config: QueueConfig
    mode: DetailMode
    consumer_groups: list[GroupState]
    headers: dict[str, str] | UnsetType = UNSET
    error: str | UnsetType = UNSET
    error_code: str | UnsetType = UNSET


class DeletedAnswer(Struct, rename="camel"):
    """A deleted message."""

    success: bool
    partition_id: str
    transaction_id: str
    message: str


@operation(
    "GET",
    _PATH,
    "getMessage",
    "Show a message",
    access=READ_ONLY,
    answers=[Answer("The message, with its state for each consumer group", MessageAnswer)],
    errors=(400, 404, 503),
    parameters=[PARTITION_ID, TRANSACTION_ID],
)
async def get_message(
    server: Server, _req: QueenRequest, resp: falcon.asgi.Response, partition_id: str, transaction_id: str
) -> None:
    """The message, with its state for each group."""
    key = message_key(partition_id, transaction_id)
    message = await server.ask(lambda context: context.reads.messages.get(key))
    if message is None:
        raise NotFoundError(MESSAGE_NOT_FOUND)
    answer(resp, _message_answer(key.part_id, message, server.keys))


@operation(
    "DELETE",
    _PATH,
    "deleteMessage",
    "Delete a message for all groups",
    access=READ_WRITE,
    answers=[Answer("The message is deleted, with its dead letters and traces", DeletedAnswer)],
    errors=(400, 404, 503),
    parameters=[PARTITION_ID, TRANSACTION_ID],
    audited=True,
)
async def delete_message(
    server: Server, _req: QueenRequest, resp: falcon.asgi.Response, partition_id: str, transaction_id: str
) -> None:
    """Deletes it, with its dead letters and traces, for all groups."""
    key = message_key(partition_id, transaction_id)
    if not await server.run(lambda context: delete(context, key)):
        raise NotFoundError(MESSAGE_NOT_FOUND)
    partition_id = ids.partition_id(key.part_id)
    answer(resp, DeletedAnswer(True, partition_id, transaction_id, "Message deleted successfully"))


def _group_state(
    name: str, done: bool, lease_ends: datetime | None, failed_at: datetime | None, error: str | None
) -> GroupState:
    if failed_at is not None:
        state = "dead_letter"
    elif done:
        state = "completed"
    else:
        state = "pending" if lease_ends is None else "processing"
    return GroupState(name, state == "completed", state, stamp(lease_ends), stamp(failed_at), error)


def _message_answer(part_id: int, m: MessageDetail, keys: Keyring | None) -> MessageAnswer:
    columns = (m.group_name, m.group_done, m.group_lease_ends, m.group_failed_at, m.group_error)
    groups = [_group_state(*group) for group in zip(*(column or () for column in columns), strict=True)]
    named = [group for group in groups if group.name != QUEUE_MODE]
    has_queue_mode = len(named) < len(groups)
    opened = shown(m.payload, m.key_id, m.queue, m.partition, keys)
    return MessageAnswer(
        id=ids.message_id(part_id, m.off),
        transaction_id=m.transaction_id,
        partition_id=ids.partition_id(part_id),
        queue_path=f"{m.queue}/{m.partition}",
        queue=m.queue,
        partition=m.partition,
        namespace=m.namespace,
        task=m.task,
        status=m.status,
        payload=opened.payload,
        data=opened.payload,
        is_encrypted=m.key_id is not None,
        trace_id=m.trace_id,
        producer_sub=m.producer_sub,
        created_at=text(m.created_at),
        error_message=m.error,
        retry_count=m.retry_count,
        lease_expires_at=stamp(m.lease_ends),
        queue_config=QueueConfig(m.lease_time or 60, m.retry_limit, m.retry_delay or 0, m.ttl, m.priority),
        mode=DetailMode(
            has_queue_mode, len(named), sum(group.consumed for group in named), mode_type(has_queue_mode, len(named))
        ),
        consumer_groups=groups,
        headers=shown_headers(m.headers),
        error=opened.error,
        error_code=opened.code,
    )
