"""``/api/v1/messages…``: single messages, for people."""

from datetime import UTC, datetime, timedelta

import falcon
import falcon.asgi
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from queen.core import ids, limits
from queen.core.administration import Consumers, GivenUp, MessageDetail, MessageFilter, MessageKey, MessageRow, Period
from queen.core.errors import BadRequestError, ConflictError, NotFoundError
from queen.core.operations import QUEUE_MODE
from queen.engine.context import Context
from queen.engine.handlers.removal import delete_message
from queen.engine.thread import EngineThread
from queen.http import queries
from queen.http.answers import Administrative, answer, shown, stamp, text
from queen.http.fields import GroupName
from queen.http.parsing import check_group, decode
from queen.http.paths import cut
from queen.http.resources.dead_letters import Replayer
from queen.security.keyring import Keyring

MESSAGE_NOT_FOUND = "Message not found"
STATUSES = ("pending", "processing", "completed", "dead_letter")
_DEFAULT_PERIOD = timedelta(hours=1)
_FOREVER = datetime(9999, 1, 1, tzinfo=UTC)
_DEFAULT_LIMIT = 200
_OFFSET_MAX = 10_000
_BODY_BYTES_MAX = 64 * 1024


class BusStatus(Struct, rename="camel"):
    """How many of the named groups of the queue have completed a message."""

    consumed_by: int
    total_groups: int


class MessageElement(Struct, rename="camel"):
    """A message in a list."""

    id: str
    transaction_id: str
    partition_id: str
    queue_path: str
    queue: str
    partition: str
    namespace: str
    task: str
    status: str
    queue_status: str
    bus_status: BusStatus
    trace_id: str | None
    producer_sub: str | None
    queue_priority: int
    created_at: str
    lease_expires_at: str | None
    payload: Raw
    data: Raw
    error: str | UnsetType = UNSET
    error_code: str | UnsetType = UNSET


class Mode(Struct, rename="camel"):
    """How queues are consumed: ``queue`` (no group named), ``bus`` (named groups), ``hybrid`` or ``none``."""

    has_queue_mode: bool
    bus_groups_count: int
    type: str


class MessageList(Struct):
    """A page of messages; ``total`` is its length."""

    messages: list[MessageElement]
    mode: Mode
    total: int
    pagination: queries.Pagination


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
    """How a group stands to a message."""

    name: str
    consumed: bool
    lease_expires_at: str | None


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
    error: str | UnsetType = UNSET
    error_code: str | UnsetType = UNSET


class DeletedAnswer(Struct, rename="camel"):
    """A message that is gone."""

    success: bool
    partition_id: str
    transaction_id: str
    message: str


class GivenUpAnswer(Struct, rename="camel"):
    """A message that is among the dead letters of some groups now."""

    success: bool
    partition_id: str
    transaction_id: str
    consumer_groups: list[str]
    message: str


class GiveUpBody(Struct, rename="camel"):
    """For whom a message is given up, and why.

    Attributes:
        consumer_group: by default all that have not completed it.
        error: kept with the dead letter, up to 10,000 characters.
    """

    consumer_group: GroupName | None = None
    error: str | None = None


_give_up_decoder = msgspec.json.Decoder(GiveUpBody)


def _type(has_queue_mode: bool, bus_groups: int) -> str:
    if has_queue_mode:
        return "hybrid" if bus_groups else "queue"
    return "bus" if bus_groups else "none"


def _element(row: MessageRow, keys: Keyring | None) -> MessageElement:
    """A message as it stands in lists."""
    opened = shown(row.payload, row.key_id, row.queue, row.partition, keys)
    return MessageElement(
        id=ids.message_id(row.part_id, row.off),
        transaction_id=row.transaction_id,
        partition_id=ids.partition_id(row.part_id),
        queue_path=f"{row.queue}/{row.partition}",
        queue=row.queue,
        partition=row.partition,
        namespace=row.namespace,
        task=row.task,
        status=row.status,
        queue_status=row.queue_mode,
        bus_status=BusStatus(row.done, row.groups),
        trace_id=row.trace_id,
        producer_sub=row.producer_sub,
        queue_priority=row.priority,
        created_at=text(row.created_at),
        lease_expires_at=stamp(row.lease_ends),
        payload=opened.payload,
        data=opened.payload,
        error=opened.error,
        error_code=opened.code,
    )


def _message_answer(part_id: int, m: MessageDetail, keys: Keyring | None) -> MessageAnswer:
    groups = [
        GroupState(name, done, stamp(lease_ends))
        for name, done, lease_ends in zip(m.group_name or (), m.group_done or (), m.group_lease_ends or (), strict=True)
    ]
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
            has_queue_mode, len(named), sum(group.consumed for group in named), _type(has_queue_mode, len(named))
        ),
        consumer_groups=groups,
        error=opened.error,
        error_code=opened.code,
    )


class MessageListResource(Administrative):
    """Messages of all queues."""

    def __init__(self, engine: EngineThread, keys: Keyring | None) -> None:
        super().__init__(engine)
        self._keys = keys

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """A page of those that match, newest first."""
        status = req.get_param("status") or None
        if status not in (None, *STATUSES):
            raise BadRequestError(f"status must be one of {', '.join(STATUSES)}, not {status[:40]!r}", "status")
        wanted = MessageFilter(
            queries.name(req, "queue"), queries.name(req, "partition"), queries.name(req, "ns", "namespace"),
            queries.name(req, "task"), status,
        )  # fmt: skip
        page = queries.page(req, _DEFAULT_LIMIT, _OFFSET_MAX)
        period = queries.period(req, _DEFAULT_PERIOD)
        if not req.get_param("to"):
            # The clock of the database may be ahead, and what is newest is found faster than what is as old as now.
            period = Period(period.begin, _FOREVER)

        async def look(context: Context) -> tuple[list[MessageRow], Consumers]:
            administration = context.administration
            rows = await administration.messages.page(wanted, period, page.limit, page.offset)
            queues = {row.queue for row in rows} or {wanted.queue or ""}
            return rows, await administration.consumer_groups.consumers_of(list(queues))

        rows, consumers = await self.ask(look)
        mode = Mode(consumers.queue_mode, consumers.groups, _type(consumers.queue_mode, consumers.groups))
        answer(resp, MessageList([_element(row, self._keys) for row in rows], mode, len(rows), page))


class MessageResource(Administrative):
    """One message: ``…/messages/<partition id>/<transaction id>``, and ``/retry`` or ``/dlq`` after it."""

    def __init__(self, replayer: Replayer, keys: Keyring | None) -> None:
        super().__init__(replayer.engine)
        self._replayer, self._keys = replayer, keys

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, place: str) -> None:  # noqa: ARG002
        """Everything that is known of it."""
        key = _key(req)
        message = await self.ask(lambda context: context.administration.messages.get(key))
        if message is None:
            raise NotFoundError(MESSAGE_NOT_FOUND)
        answer(resp, _message_answer(key.part_id, message, self._keys))

    async def on_delete(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, place: str) -> None:  # noqa: ARG002
        """Deletes it, with its dead letters and traces, for all groups."""
        key = _key(req)
        if not await self.run(lambda context: delete_message(context, key)):
            raise NotFoundError(MESSAGE_NOT_FOUND)
        partition_id = ids.partition_id(key.part_id)
        answer(resp, DeletedAnswer(True, partition_id, key.transaction_id, "Message deleted successfully"))

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, place: str) -> None:  # noqa: ARG002
        """``/retry`` replays its newest dead letter; ``/dlq`` moves it to the dead letters."""
        if (names := cut(req, "/api/v1/messages", ending="/retry")) is not None:
            key = _split(names[0])
            await self._replayer.replay(
                resp, lambda context: context.administration.dead_letters.find_newest(key), MESSAGE_NOT_FOUND
            )
        elif (names := cut(req, "/api/v1/messages", ending="/dlq")) is not None:
            await self._give_up(req, resp, _split(names[0]))
        else:
            raise NotFoundError(f"Nothing to POST to at {req.path}: it ends with /retry or /dlq")

    async def _give_up(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, key: MessageKey) -> None:
        raw = bytes(await req.stream.read(_BODY_BYTES_MAX))
        body = decode(_give_up_decoder, raw, {}) if raw else GiveUpBody()
        group = check_group(body.consumer_group, "consumerGroup", "") or None
        error = (body.error or "Moved to the dead letters on request")[: limits.ERROR_TEXT_CHARS_MAX]
        error = error.replace("\0", "\N{REPLACEMENT CHARACTER}")

        async def move(context: Context) -> GivenUp:
            await ensure_cursors(context, key)
            return await context.administration.messages.give_up(key, group, error)

        moved = await self.ask(move)
        if not moved.known:
            raise NotFoundError(MESSAGE_NOT_FOUND)
        if not moved.groups:
            raise ConflictError(
                f"The group {group} does not exist or has completed the message"
                if group
                else "Every group has completed the message already"
            )
        partition_id = ids.partition_id(key.part_id)
        text = "Message moved to the dead letters"
        answer(resp, GivenUpAnswer(True, partition_id, key.transaction_id, list(moved.groups), text))


async def ensure_cursors(context: Context, key: MessageKey) -> None:
    """Groups that have begun on the queue of a message give it up, too, where they have no cursor yet.

    A queue that nobody has popped has no group: then it is queue mode.
    """
    names = await context.database.describe_partitions([key.part_id])
    if not names:
        return
    queue = names[0].queue
    for group in await context.administration.consumer_groups.without_cursor(key.part_id):
        made = await context.past_locks(
            lambda group=group: context.database.subscribe(  # type: ignore[misc]
                queue, group, "all", None, create_queue=False, create_group=group == QUEUE_MODE, part=key.part_id
            )
        )
        if made.unfinished:
            context.unfinished.add((queue, group))


def _key(req: falcon.asgi.Request) -> MessageKey:
    names = cut(req, "/api/v1/messages")
    return _split(names[0] if names else "")


def _split(names: str) -> MessageKey:
    """A partition id never holds a slash; a transaction id may."""
    partition_id, _, transaction_id = names.partition("/")
    if not transaction_id:
        raise NotFoundError("A message is named by its partition id and its transaction id")
    return queries.message_key(partition_id, transaction_id)
