"""``/api/v1/consumer-groups…`` and ``POST /api/v1/stats/refresh``."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import falcon
import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core import ids
from queen.core.administration import CursorRow, GroupOrder, GroupRow, LaggingRow, Refreshed, Seek, Sought
from queen.core.errors import BadRequestError, NotFoundError
from queen.core.limits import GROUP_CHARS_MAX
from queen.engine.context import Context
from queen.engine.handlers.consumer_groups import seek_group, update_subscription
from queen.engine.handlers.removal import delete_group
from queen.http import answers, queries
from queen.http.answers import Administrative, age_s, answer, stamp, text
from queen.http.fields import Time
from queen.http.parsing import check_name, decode, parse_integer, parse_time
from queen.http.paths import cut
from queen.http.request import QueenRequest, read_body

PARTITION_NOT_FOUND = "Partition not found"
_ROOT = "/api/v1/consumer-groups"
_LAGGING_AFTER_S = 300
LAG_SECONDS_MAX = 2**31 - 1
_CURSORS_LIMIT = 1000
_BODY_BYTES_MAX = 64 * 1024


class GroupElement(Struct, rename="camel"):
    """A consumer group of a queue.

    Attributes:
        members: partitions with a cursor of the group.
        total_lag: messages that it has not done.
        max_time_lag: seconds since the oldest of them was pushed.
        state: ``Stable``; ``Lagging``: more than 300 s behind; ``Dead``: and nothing of what waits was ever delivered.
    """

    name: str
    topics: list[str]
    queue_name: str
    members: int
    partitions_with_lag: int
    total_lag: int
    max_time_lag: int
    state: str
    subscription_mode: str | None
    subscription_timestamp: str | None
    subscription_created_at: str
    stats_age: int


class CursorElement(Struct, rename="camel"):
    """How far a group is in a partition.

    ``lastConsumedAt`` is when the last message was pushed that the group has done with all before it; ``workerId`` is
    the live lease.
    """

    partition: str
    worker_id: str | None
    last_consumed_at: str | None
    total_consumed: int
    offset_lag: int
    time_lag_seconds: int
    lease_active: bool


class GroupOfQueue(Struct):
    """The cursors of a group on a queue."""

    partitions: list[CursorElement]


class LaggingElement(Struct):
    """A partition of a group whose oldest undone message waits too long."""

    consumer_group: str
    queue_name: str
    partition_name: str
    partition_id: str
    worker_id: str | None
    offset_lag: int
    time_lag_seconds: int
    lag_hours: float
    oldest_unconsumed_at: str
    last_consumed_at: str | None


class GroupDeletedAnswer(Struct, rename="camel", omit_defaults=True):
    """A group that is gone, or (``metadataDeleted`` false) that begins anew."""

    success: bool
    consumer_group: str
    deleted_partitions: int
    metadata_deleted: bool
    existed: bool
    queue_name: str | None = None


class SubscriptionBody(Struct, rename="camel"):
    """The new start of a group.

    Attributes:
        subscription_timestamp: partitions without a cursor begin after it.
    """

    subscription_timestamp: Time


class SubscriptionAnswer(Struct, rename="camel"):
    """On how many queues the start of a group was changed."""

    success: bool
    consumer_group: str
    new_timestamp: str
    rows_updated: int


class SeekBody(Struct, rename="camel"):
    """Where a group goes: one of the three.

    Attributes:
        to_end: past everything that is there.
        to_beginning: to the oldest message.
        timestamp: to the first message pushed after it; `now` is this moment.
    """

    to_end: bool = False
    to_beginning: bool = False
    timestamp: str | None = None


class SeekAnswer(Struct, rename="camel"):
    """How many cursors were put, and where."""

    success: bool
    consumer_group: str
    queue_name: str
    seek_to_end: bool
    target_timestamp: str | None
    partitions_updated: int


class PartitionSeekAnswer(Struct, rename="camel"):
    """A cursor that was put; ``cursorMovedTo``: when the message was pushed after which it stands."""

    success: bool
    consumer_group: str
    queue_name: str
    partition_name: str
    updated: bool
    cursor_moved_to: str | None


_subscription_decoder = msgspec.json.Decoder(SubscriptionBody)
_seek_decoder = msgspec.json.Decoder(SeekBody)
_TIMESTAMP_MISSING = "Missing subscriptionTimestamp in request body"
_SEEK_EMPTY = "Must specify either 'toEnd': true or 'timestamp'"


def _lag_s(oldest_at: datetime | None) -> int:
    return max(age_s(oldest_at), 0)


def _state(row: GroupRow) -> str:
    if _lag_s(row.oldest_at) <= _LAGGING_AFTER_S:
        return "Stable"
    return "Dead" if row.untouched else "Lagging"


def _group_element(row: GroupRow) -> GroupElement:
    return GroupElement(
        name=row.name,
        topics=[row.queue],
        queue_name=row.queue,
        members=row.members or 0,
        partitions_with_lag=row.partitions_with_lag or 0,
        total_lag=row.total_lag or 0,
        max_time_lag=_lag_s(row.oldest_at),
        state=_state(row),
        subscription_mode=None if row.subscription_mode == "all" else row.subscription_mode,
        subscription_timestamp=None if row.subscription_mode == "all" else stamp(row.since),
        subscription_created_at=text(row.created_at),
        stats_age=age_s(row.computed_at),
    )


def _cursor_element(row: CursorRow) -> CursorElement:
    return CursorElement(
        row.partition, str(row.lease) if row.lease else None, stamp(row.consumed_at), row.consumed, row.undone,
        _lag_s(row.oldest_at), row.lease is not None,
    )  # fmt: skip


def _by_queue(rows: Sequence[CursorRow]) -> Mapping[str, GroupOfQueue]:
    queues: dict[str, GroupOfQueue] = {}
    for row in rows:
        queues.setdefault(row.queue, GroupOfQueue([])).partitions.append(_cursor_element(row))
    return queues


def _lagging_element(row: LaggingRow) -> LaggingElement:
    seconds = _lag_s(row.oldest_at)
    return LaggingElement(
        row.consumer_group, row.queue, row.partition, ids.partition_id(row.part_id),
        str(row.lease) if row.lease else None, row.undone, seconds, round(seconds / 3600, 2), text(row.oldest_at),
        stamp(row.consumed_at),
    )  # fmt: skip


class GroupListResource(Administrative):
    """All consumer groups."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """An array, by default by queue and name: a page."""
        queues, search = queries.names(req, "queue"), queries.name(req, "search")
        order, page = queries.choice(req, "order", GroupOrder.NAME), queries.page(req, queries.LIMIT)

        async def look(context: Context) -> list[GroupRow]:
            await answers.refresh(context)
            groups = context.administration.consumer_groups
            return await groups.groups(queues, search, order, page.limit, page.offset)

        answer(resp, [_group_element(row) for row in await self.ask(look)])


class LaggingResource(Administrative):
    """Partitions that some group is behind in."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """An array, worst first."""
        seconds = parse_integer(req.get_param("minLagSeconds"), "minLagSeconds", 3600, 0, LAG_SECONDS_MAX)
        limit = parse_integer(req.get_param("limit"), "limit", _CURSORS_LIMIT, 1, _CURSORS_LIMIT)

        async def look(context: Context) -> list[LaggingRow]:
            await answers.refresh(context)
            return await context.administration.consumer_groups.lagging(seconds, limit)

        answer(resp, [_lagging_element(row) for row in await self.ask(look)])


class GroupResource(Administrative):
    """One group, or its cursors on one queue; names may hold slashes."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, place: str) -> None:  # noqa: ARG002
        """Its cursors by queue, a page of them; ``{}`` for a group that nobody knows."""
        group = _group((cut(req, _ROOT) or ("",))[0])
        page = queries.page(req, _CURSORS_LIMIT)
        rows = await self.ask(
            lambda context: context.administration.consumer_groups.cursors(group, page.limit, page.offset)
        )
        answer(resp, _by_queue(rows))

    async def on_delete(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, place: str) -> None:  # noqa: ARG002
        """Deletes it on all queues, or on one; an unknown group is an answer too."""
        names = cut(req, _ROOT, ("queues",)) or cut(req, _ROOT) or ("",)
        group, queue = _group(names[0]), check_name(names[1], "queue") if len(names) > 1 else None
        subscription = _flag(req, "deleteMetadata")

        async def delete(context: Context) -> list[int]:
            groups = context.administration.consumer_groups
            deleted = []
            queues = await context.patiently(lambda _again: groups.queues_of(group)) if queue is None else [queue]
            for name in queues:
                cursors = await delete_group(context, name, group, subscription=subscription)
                if cursors is not None:
                    deleted.append(cursors)
            return deleted

        deleted = await self.run(delete)
        existed = bool(deleted)
        answer(
            resp,
            GroupDeletedAnswer(True, group, sum(deleted), subscription and existed, existed, queue_name=queue),
        )

    async def on_post(self, req: QueenRequest, resp: falcon.asgi.Response, place: str) -> None:  # noqa: ARG002
        """``/subscription``, ``/queues/…/seek`` and ``/queues/…/partitions/…/seek``."""
        if names := cut(req, _ROOT, ("queues", "partitions"), "/seek"):
            await self._seek_partition(req, resp, *names)
        elif names := cut(req, _ROOT, ("queues",), "/seek"):
            await self._seek(req, resp, *names)
        elif names := cut(req, _ROOT, (), "/subscription"):
            await self._subscribe(req, resp, names[0])
        else:
            raise NotFoundError(f"Nothing to POST to at {req.path}: it ends with /seek or /subscription")

    async def _subscribe(self, req: QueenRequest, resp: falcon.asgi.Response, name: str) -> None:
        group = _group(name)
        body = decode(
            _subscription_decoder, await read_body(req, _BODY_BYTES_MAX), {"subscriptionTimestamp": _TIMESTAMP_MISSING}
        )
        since = parse_time(body.subscription_timestamp, "subscriptionTimestamp")

        async def update(context: Context) -> int:
            groups = context.administration.consumer_groups
            queues = await context.patiently(lambda _again: groups.queues_of(group))
            return sum([await update_subscription(context, queue, group, since) for queue in queues])

        rows = await self.run(update)
        answer(resp, SubscriptionAnswer(True, group, text(since), rows))

    async def _seek(self, req: QueenRequest, resp: falcon.asgi.Response, group: str, queue: str) -> None:
        body = decode(_seek_decoder, await read_body(req, _BODY_BYTES_MAX), {})
        seek = _target(body, Seek(_group(group), check_name(queue, "queue")))
        if seek is None:
            raise BadRequestError(_SEEK_EMPTY, "toEnd")
        sought = await self.run(lambda context: seek_group(context, seek))
        answer(resp, SeekAnswer(True, group, queue, seek.to_end, stamp(seek.since), sought.updated))

    async def _seek_partition(
        self, req: QueenRequest, resp: falcon.asgi.Response, group: str, queue: str, partition: str
    ) -> None:
        place = Seek(_group(group), check_name(queue, "queue"), check_name(partition, "partition"))
        raw = bytes(await req.stream.read(_BODY_BYTES_MAX))
        seek = (_target(decode(_seek_decoder, raw, {}), place) if raw else None) or _to_end(place)

        async def work(context: Context) -> tuple[Sought, bool]:
            sought = await seek_group(context, seek)
            found = await context.patiently(
                lambda _again: context.administration.catalogue.partitions(queue, partition, None, 1, 0)
            )
            return sought, bool(found)

        sought, known = await self.run(work)
        if not known:
            raise NotFoundError(PARTITION_NOT_FOUND)
        answer(resp, PartitionSeekAnswer(True, group, queue, partition, sought.updated > 0, stamp(sought.moved_to)))


def _group(name: str) -> str:
    return check_name(name, "consumerGroup", GROUP_CHARS_MAX)


def _flag(req: falcon.asgi.Request, field: str) -> bool:
    """A switch of the query that is on when it is not there."""
    text = req.get_param(field)
    if text not in (None, "true", "1", "false", "0"):
        raise BadRequestError(f"{field} must be true or false, not {text[:40]!r}", field)
    return text in (None, "true", "1")


def _to_end(place: Seek) -> Seek:
    return msgspec.structs.replace(place, to_end=True)


def _target(body: SeekBody, place: Seek) -> Seek | None:
    """A seek with its target; ``None`` if the body names none."""
    if body.to_end + body.to_beginning + (body.timestamp is not None) > 1:
        raise BadRequestError("Only one of toEnd, toBeginning and timestamp can be meant", "timestamp")
    if body.to_end:
        return _to_end(place)
    if body.to_beginning:
        return place
    if body.timestamp is None:
        return None
    if body.timestamp == "now":
        return msgspec.structs.replace(place, since=datetime.now(UTC))
    return msgspec.structs.replace(place, since=parse_time(body.timestamp, "timestamp"))


# ---------------------------------------------------------------- statistics


class PartitionsRefreshed(Struct, rename="camel"):
    """Partitions whose figures were computed; they belong to their queue here, and are not stored apart."""

    partitions_updated: int


class QueuesRefreshed(Struct, rename="camel"):
    """Queues whose figures were computed."""

    queues_updated: int


class GroupsRefreshed(Struct, rename="camel"):
    """Groups whose figures were computed."""

    groups_updated: int


class NamespacesRefreshed(Struct, rename="camel"):
    """Namespaces whose figures are new with those of their queues."""

    namespaces_updated: int


class TasksRefreshed(Struct, rename="camel"):
    """Tasks whose figures are new with those of their queues."""

    tasks_updated: int


class SystemRefreshed(Struct, rename="camel"):
    """Whether the figures of the whole are new."""

    system_updated: int


class CleanUp(Struct, rename="camel"):
    """Figures of queues that are gone."""

    orphaned_deleted: int


class RefreshAnswer(Struct):
    """What a refresh of the statistics has done."""

    partition: PartitionsRefreshed
    queue: QueuesRefreshed
    group: GroupsRefreshed
    namespace: NamespacesRefreshed
    task: TasksRefreshed
    system: SystemRefreshed
    cleanup: CleanUp


class RefreshResource(Administrative):
    """The statistics of all queues and groups."""

    async def on_post(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """Computes them anew; waits for another server that does."""

        async def refresh(context: Context) -> RefreshAnswer:
            await context.patiently(lambda _again: answers.record(context))
            done = await _refresh_all(context)
            all_ = await context.patiently(lambda _again: context.administration.catalogue.summary())
            return RefreshAnswer(
                PartitionsRefreshed(all_.partitions), QueuesRefreshed(done.queues or 0),
                GroupsRefreshed(done.groups or 0), NamespacesRefreshed(all_.namespaces), TasksRefreshed(all_.tasks),
                SystemRefreshed(1), CleanUp(done.removed or 0),
            )  # fmt: skip

        answer(resp, await self.run(refresh))


async def _refresh_all(context: Context) -> Refreshed:
    """Page by page; a page that has to be done again begins none of the others anew."""
    queues = groups = removed = 0
    after: int | None = 0
    while after is not None:
        place: int = after
        page = await context.patiently(
            lambda _again, place=place: context.administration.metrics.refresh_page(place, wait=True)  # type: ignore[misc]
        )
        after = page.last
        queues, groups = queues + (page.queues or 0), groups + (page.groups or 0)
        removed += page.removed or 0
    return Refreshed(queues, groups, removed, False, None)
