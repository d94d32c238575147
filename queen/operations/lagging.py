"""Lists partitions in which a group has a lag: ``GET /api/v1/consumer-groups/lagging``."""

import falcon.asgi
from msgspec import Struct

from queen.core.administration import LaggingRow
from queen.engine.context import Context
from queen.http import answers, parameters
from queen.http.access import READ_ONLY
from queen.http.answers import answer, stamp, text
from queen.http.fields import number_of
from queen.http.operation import Answer, Parameter, operation
from queen.http.parsing import parse_integer
from queen.http.request import QueenRequest
from queen.log import ids
from queen.operations.consumer_groups import lag_s
from queen.operations.server import Server

_SECONDS, _SECONDS_MAX = 3600, 2**31 - 1
_LIMIT = 1000


class LaggingElement(Struct):
    """A partition whose oldest unacknowledged message is too old for a group."""

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


def _lagging_element(row: LaggingRow) -> LaggingElement:
    seconds = lag_s(row.oldest_at)
    return LaggingElement(
        row.consumer_group, row.queue, row.partition, ids.partition_id(row.part_id),
        str(row.lease) if row.lease else None, row.undone, seconds, round(seconds / 3600, 2), text(row.oldest_at),
        stamp(row.consumed_at),
    )  # fmt: skip


@operation(
    "GET",
    "/api/v1/consumer-groups/lagging",
    "listLaggingPartitions",
    "List partitions with consumer lag",
    access=READ_ONLY,
    answers=[Answer("Highest lag first", list[LaggingElement])],
    errors=(400, 503),
    parameters=[
        Parameter(
            "minLagSeconds",
            f"Only partitions whose oldest unacknowledged message is at least this old; {_SECONDS} by default",
            number_of(0, _SECONDS_MAX),
        ),
        parameters.limit(_LIMIT, _LIMIT),
    ],
)
async def list_lagging_partitions(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """One element per group and partition."""
    seconds = parse_integer(req.get_param("minLagSeconds"), "minLagSeconds", _SECONDS, 0, _SECONDS_MAX)
    limit = parse_integer(req.get_param("limit"), "limit", _LIMIT, 1, _LIMIT)

    async def look(context: Context) -> list[LaggingRow]:
        await answers.refresh(context)
        return await context.reads.consumer_groups.lagging(seconds, limit)

    answer(resp, [_lagging_element(row) for row in await server.ask(look)])
