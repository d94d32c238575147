"""Lists connected consumers of a group: ``GET /api/v1/consumer-groups/{consumerGroup}/queues/{queue}/consumers``."""

import falcon.asgi
from msgspec import Struct

from queen.core.administration import ConnectedRow
from queen.engine.context import Context
from queen.http import parameters, queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer, text
from queen.http.operation import Answer, operation
from queen.http.parsing import check_name
from queen.http.request import QueenRequest
from queen.operations.consumer_groups import check_group
from queen.operations.queue_rows import check_group_of
from queen.operations.server import Server

_LIMIT = 100


class ConsumerElement(Struct, rename="camel"):
    """A connected consumer.

    Attributes:
        kind: `longPoll`: a pop that waits; `webSocket`: a subscription.
        address: of the client, or of the proxy before it; empty if it is unknown.
        since: when the pop began to wait, or the subscription began.
        in_flight: messages of the subscription that are not acknowledged; null for a long poll.
        namespace: of a consumer that named no queue; so is `task`.
        hostname: the worker that it is connected to; so is `workerId`.
    """

    kind: str
    address: str
    since: str
    in_flight: int | None
    namespace: str | None
    task: str | None
    hostname: str
    worker_id: int


class ConsumerList(Struct):
    """A page of them, of ``total``."""

    consumers: list[ConsumerElement]
    total: int


def _element(row: ConnectedRow) -> ConsumerElement:
    hostname, _, pid = row.worker.rpartition(":")
    return ConsumerElement(
        row.kind, row.address, text(row.since), row.in_flight, row.namespace, row.task, hostname, int(pid)
    )


@operation(
    "GET",
    "/api/v1/consumer-groups/{consumerGroup}/queues/{queue}/consumers",
    "listConsumers",
    "List connected consumers of a group",
    access=READ_ONLY,
    answers=[Answer("A page, the longest connected first", ConsumerList)],
    errors=(400, 404, 503),
    description="Long polls that wait, and WebSockets with a subscription. Other workers reported theirs up to "
    "`STATS_INTERVAL_MS` ago, each at most 1,000 of both kinds. A consumer that works on messages of a pop is not "
    "connected meanwhile: leases show that.",
    parameters=[parameters.GROUP_PATH, parameters.QUEUE_PATH, *parameters.page(_LIMIT)],
)
async def list_consumers(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, consumer_group: str, queue: str
) -> None:
    """Those of this worker are of this moment."""
    group, name, page = check_group(consumer_group), check_name(queue, "queue"), queries.page(req, _LIMIT)

    async def look(context: Context) -> list[ConnectedRow]:
        await check_group_of(context, name, group)
        await context.report()
        return await context.reads.consumer_groups.connected(name, group, page.limit, page.offset)

    rows = await server.ask(look)
    answer(resp, ConsumerList([_element(row) for row in rows], rows[0].total if rows else 0))
