"""Lists, shows and deletes consumer groups: ``/api/v1/consumer-groups``."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial

import falcon.asgi
from msgspec import Struct
from msgspec.structs import replace

from queen.core.administration import (
    CursorFilter,
    CursorOrder,
    CursorRow,
    GroupFilter,
    GroupOrder,
    GroupRow,
    QueuesOfGroup,
)
from queen.core.limits import GROUP_CHARS_MAX
from queen.engine.context import Context
from queen.engine.handlers.removal import delete_group_of_queues
from queen.http import answers, parameters, queries
from queen.http.access import ADMIN, READ_ONLY
from queen.http.answers import age_s, answer, stamp, text
from queen.http.operation import Answer, Parameter, operation
from queen.http.parsing import check_name
from queen.http.request import QueenRequest
from queen.operations.server import Server

#: The header with the number of elements of a list that is an array.
TOTAL = "X-Total-Count"
_LAGGING_AFTER_S = 300
_CURSORS_LIMIT = 1000


class GroupElement(Struct, rename="camel"):
    """A consumer group of a queue.

    Attributes:
        members: partitions with a cursor of the group.
        total_lag: messages that it has not acknowledged.
        max_time_lag: age of the oldest of them in seconds.
        state: ``Stable``; ``Lagging``: ``max_time_lag`` exceeds 300 s; ``Dead``: also, none of these messages was ever
            delivered.
        paused: it gets no messages of the queue; ``state`` does not say so.
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
    paused: bool


class QueuesOfGroupAnswer(Struct):
    """A page of the queues of a group, of ``total``; 0 beyond the last page."""

    queues: list[GroupElement]
    total: int


class CursorElement(Struct, rename="camel"):
    """The cursor of a group in a partition.

    ``lastConsumedAt`` is the push time of the newest message up to which the group has acknowledged everything;
    ``workerId`` is the live lease.
    """

    partition: str
    worker_id: str | None
    last_consumed_at: str | None
    total_consumed: int
    offset_lag: int
    time_lag_seconds: int
    lease_active: bool


class GroupOfQueue(Struct):
    """The cursors of a group on a queue, of ``total`` that match (null: not known yet); ``paused``: it gets nothing."""

    partitions: list[CursorElement]
    total: int | None
    paused: bool


class GroupDeletedAnswer(Struct, rename="camel", omit_defaults=True):
    """A deleted group; if ``metadataDeleted`` is false, it starts again where it first started."""

    success: bool
    consumer_group: str
    deleted_partitions: int
    metadata_deleted: bool
    existed: bool
    queue_name: str | None = None


def check_group(name: str) -> str:
    """The name of a group in a path; raises BadRequestError."""
    return check_name(name, "consumerGroup", GROUP_CHARS_MAX)


def lag_s(oldest_at: datetime | None) -> int:
    """Age of the oldest unacknowledged message in seconds; 0 if there is none."""
    return max(age_s(oldest_at), 0)


def _state(row: GroupRow) -> str:
    if lag_s(row.oldest_at) <= _LAGGING_AFTER_S:
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
        max_time_lag=lag_s(row.oldest_at),
        state=_state(row),
        subscription_mode=None if row.subscription_mode == "all" else row.subscription_mode,
        subscription_timestamp=None if row.subscription_mode == "all" else stamp(row.since),
        subscription_created_at=text(row.created_at),
        stats_age=age_s(row.computed_at),
        paused=row.paused,
    )


def _cursor_element(row: CursorRow) -> CursorElement:
    return CursorElement(
        row.partition, str(row.lease) if row.lease else None, stamp(row.consumed_at), row.consumed, row.undone,
        lag_s(row.oldest_at), row.lease is not None,
    )  # fmt: skip


def _by_queue(rows: Sequence[CursorRow], paused: Collection[str]) -> Mapping[str, GroupOfQueue]:
    queues: dict[str, GroupOfQueue] = {}
    for row in rows:
        queues.setdefault(row.queue, GroupOfQueue([], row.total, row.queue in paused)).partitions.append(
            _cursor_element(row)
        )
    return queues


@operation(
    "GET",
    "/api/v1/consumer-groups",
    "listConsumerGroups",
    "List consumer groups",
    access=READ_ONLY,
    answers=[Answer("A page, one element per group and queue, by default by queue and name", list[GroupElement])],
    errors=(400, 503),
    description=f"The header `{TOTAL}` of the answer says how many there are.",
    parameters=[
        parameters.QUEUES,
        parameters.SEARCH,
        *parameters.sorting(GroupOrder, GroupOrder.NAME),
        parameters.BEHIND,
        *parameters.page(queries.LIMIT),
    ],
)
async def list_consumer_groups(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Statistics of small queues are computed for the answer."""
    wanted = GroupFilter(
        queries.names(req, "queue"), queries.name(req, "search"), queries.flag(req, "behind", default=False)
    )  # fmt: skip
    page = queries.sorted_page(req, GroupOrder.NAME, queries.LIMIT)

    async def look(context: Context) -> tuple[list[GroupRow], int]:
        await answers.refresh(context)
        groups = context.reads.consumer_groups
        return await groups.groups(wanted, page), await groups.count(wanted)

    rows, total = await server.ask(look)
    resp.set_header(TOTAL, str(total))
    answer(resp, [_group_element(row) for row in rows])


@operation(
    "GET",
    "/api/v1/consumer-groups/{consumerGroup}/queues",
    "listQueuesOfGroup",
    "List the queues of a group",
    access=READ_ONLY,
    answers=[Answer("A page, by default by name; empty for an unknown group", QueuesOfGroupAnswer)],
    errors=(400, 503),
    parameters=[
        parameters.GROUP_PATH,
        parameters.QUEUE,
        replace(parameters.SEARCH, description="Only queues whose name contains this text, case-insensitive"),
        *parameters.sorting(GroupOrder, GroupOrder.NAME),
        parameters.BEHIND,
        *parameters.page(queries.LIMIT),
    ],
)
async def list_queues_of_group(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, consumer_group: str
) -> None:
    """Statistics of small queues are computed for the answer."""
    wanted = QueuesOfGroup(
        check_group(consumer_group), queries.name(req, "queue"), queries.name(req, "search"),
        queries.flag(req, "behind", default=False),
    )  # fmt: skip
    page = queries.sorted_page(req, GroupOrder.NAME, queries.LIMIT)

    async def look(context: Context) -> tuple[list[GroupRow], int]:
        await answers.refresh(context)
        return await context.reads.consumer_groups.on_queues(wanted, page)

    rows, total = await server.ask(look)
    answer(resp, QueuesOfGroupAnswer([_group_element(row) for row in rows], total))


@operation(
    "GET",
    "/api/v1/consumer-groups/{consumerGroup}",
    "getConsumerGroup",
    "Show the cursors of a group",
    access=READ_ONLY,
    answers=[Answer("By queue; an empty object for an unknown group", dict[str, GroupOfQueue])],
    errors=(400, 503),
    description="Any order but `name`, and `behind`, read every cursor that matches.",
    parameters=[
        parameters.GROUP_PATH,
        parameters.QUEUE,
        parameters.PARTITION_SEARCH,
        *parameters.sorting(CursorOrder, CursorOrder.NAME),
        parameters.BEHIND,
        *parameters.page(_CURSORS_LIMIT),
    ],
)
async def get_consumer_group(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, consumer_group: str
) -> None:
    """The cursors are computed for the answer."""
    wanted = CursorFilter(
        check_group(consumer_group), queries.name(req, "queue"), queries.name(req, "search"),
        queries.flag(req, "behind", default=False),
    )  # fmt: skip
    page = queries.sorted_page(req, CursorOrder.NAME, _CURSORS_LIMIT)
    rows = await server.ask(lambda context: context.reads.consumer_groups.cursors(wanted, page))
    paused = await server.ask(lambda context: context.reads.consumer_groups.paused_on(wanted.group))
    answer(resp, _by_queue(rows, frozenset(paused)))


_DELETED = [Answer("The number of deleted cursors; an unknown group is not an error", GroupDeletedAnswer)]
_DELETE_METADATA = Parameter(
    "deleteMetadata",
    "Whether to delete the stored start of the group, too (default). If not, the group starts again where "
    "it first started",
    parameters.FLAG,
)


async def _delete(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, consumer_group: str, queue: str | None = None
) -> None:
    group, queue = check_group(consumer_group), None if queue is None else check_name(queue, "queue")
    subscription = queries.flag(req, "deleteMetadata", default=True)
    work = partial(delete_group_of_queues, group=group, queue=queue, subscription=subscription)
    cursors = await server.run(work)
    existed = cursors is not None
    answer(resp, GroupDeletedAnswer(True, group, cursors or 0, subscription and existed, existed, queue_name=queue))


delete_consumer_group = operation(
    "DELETE",
    "/api/v1/consumer-groups/{consumerGroup}",
    "deleteConsumerGroup",
    "Delete a group on all queues",
    access=ADMIN,
    answers=_DELETED,
    errors=(400, 503),
    parameters=[parameters.GROUP_PATH, _DELETE_METADATA],
    audited=True,
)(_delete)

delete_consumer_group_of_queue = operation(
    "DELETE",
    "/api/v1/consumer-groups/{consumerGroup}/queues/{queue}",
    "deleteConsumerGroupOfQueue",
    "Delete a group on one queue",
    access=ADMIN,
    answers=_DELETED,
    errors=(400, 503),
    parameters=[parameters.GROUP_PATH, parameters.QUEUE_PATH, _DELETE_METADATA],
    audited=True,
)(_delete)
