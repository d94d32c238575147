"""Shows the backlog of a consumer group on a queue: ``GET /api/v1/resources/queues/{queue}/depth``."""

import falcon.asgi
from msgspec import Struct

from queen.core.administration import Depth, Page, PartitionFilter, PartitionOrder, PartitionRow
from queen.core.errors import NotFoundError
from queen.engine.context import Context
from queen.http import answers, parameters, queries
from queen.http.access import READ_ONLY
from queen.http.answers import age_s, answer
from queen.http.operation import Answer, Parameter, operation
from queen.http.parsing import check_name
from queen.http.request import QueenRequest
from queen.operations.queue_rows import PARTITIONS_LIMIT, QUEUE_NOT_FOUND
from queen.operations.server import Server


class PartitionDepth(Struct):
    """The backlog of a group in a partition."""

    partition: str
    pending: int
    processing: int
    ready: int


class DepthAnswer(Struct, rename="camel"):
    """The backlog of a group on a queue; ``ready``: what pops would deliver now."""

    queue: str
    group: str | None
    pending: int
    processing: int
    ready: int
    partitions_pending: int
    partitions_ready: int
    conflation: bool
    effective_pending: int
    effective_ready: int
    partitions: list[PartitionDepth]
    stats_age: int


@operation(
    "GET",
    "/api/v1/resources/queues/{queue}/depth",
    "getQueueDepth",
    "Show the backlog of a group on a queue",
    access=READ_ONLY,
    answers=[Answer("The backlog of the given group, or of the slowest group", DepthAnswer)],
    errors=(400, 404, 503),
    parameters=[
        parameters.QUEUE_PATH,
        Parameter("group", "Consumer group", parameters.NAME),
        Parameter("consumerGroup", "The same as `group`", parameters.NAME),
        *parameters.page(PARTITIONS_LIMIT),
    ],
)
async def get_queue_depth(server: Server, req: QueenRequest, resp: falcon.asgi.Response, queue: str) -> None:
    """Partitions without a backlog are left out of the page."""
    check_name(queue, "queue")
    group = queries.name(req, "group", "consumerGroup")
    page = queries.page(req, PARTITIONS_LIMIT)

    async def look(context: Context) -> tuple[Depth | None, list[PartitionRow], dict[str, int]]:
        await answers.refresh(context)
        catalogue = context.reads.catalogue
        depth = await catalogue.depth(queue, group)
        rows = await catalogue.partitions(
            PartitionFilter(queue), Page(PartitionOrder.NAME, page.limit, page.offset), group
        )
        return depth, rows, await catalogue.ready(queue, [row.name for row in rows], group)

    depth, rows, ready = await server.ask(look)
    if depth is None:
        raise NotFoundError(QUEUE_NOT_FOUND)
    partitions = [
        PartitionDepth(row.name, row.pending + row.processing, row.processing, ready.get(row.name, 0))
        for row in rows
        if row.pending + row.processing
    ]
    answer(
        resp,
        DepthAnswer(
            queue, group, depth.pending, depth.processing, depth.ready, depth.partitions_pending,
            depth.partitions_ready, False, depth.pending, depth.ready, partitions, age_s(depth.computed_at),
        ),
    )  # fmt: skip
