"""Shows totals over all queues: ``GET /api/v1/resources/overview``."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import falcon.asgi
from msgspec import Struct

from queen.core.administration import GroupBy, Period, QueueFilter, QueueMetricsRow, QueuesSummary
from queen.engine.context import Context
from queen.http import answers
from queen.http.access import READ_ONLY
from queen.http.answers import answer, text
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.queue_rows import MessageCounts, counts, summary_age
from queen.operations.server import Server

#: Period over which the throughput is measured.
_THROUGHPUT = timedelta(minutes=5)


class Distribution(Struct):
    """Average, median, minimum and maximum of some values."""

    avg: float
    median: float
    min: float
    max: float


class LagAnswer(Struct):
    """Consumer lag: age of the oldest unacknowledged message in seconds, and unacknowledged messages per partition."""

    time: Distribution
    offset: Distribution


class Throughput(Struct, rename="camel"):
    """Messages per second, averaged over the last five minutes."""

    ingested_per_second: float
    processed_per_second: float


class OverviewAnswer(Struct, rename="camel"):
    """Totals over all queues."""

    queues: int
    partitions: int
    namespaces: int
    tasks: int
    messages: MessageCounts
    lag: LagAnswer
    throughput: Throughput
    timestamp: str
    stats_age: int


def _overview(all_: QueuesSummary, recent: Sequence[QueueMetricsRow]) -> OverviewAnswer:
    seconds = _THROUGHPUT.total_seconds()
    pushed, done = sum(row.push_messages for row in recent), sum(row.ack_success for row in recent)
    return OverviewAnswer(
        queues=all_.queues,
        partitions=all_.partitions,
        namespaces=all_.namespaces,
        tasks=all_.tasks,
        messages=counts(all_),
        lag=LagAnswer(
            Distribution(round(all_.age_mean, 3), all_.age_median, all_.age_min, all_.age_max),
            Distribution(round(all_.lag_mean, 3), all_.lag_median, all_.lag_min, all_.lag_max),
        ),
        throughput=Throughput(round(pushed / seconds, 3), round(done / seconds, 3)),
        timestamp=text(datetime.now(UTC)),
        stats_age=summary_age(all_),
    )


@operation(
    "GET",
    "/api/v1/resources/overview",
    "getOverview",
    "Show an overview of all queues",
    access=READ_ONLY,
    answers=[Answer("Counts, lag and throughput", OverviewAnswer)],
    errors=(503,),
)
async def get_overview(server: Server, _req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """It includes what this worker has not stored yet."""

    async def look(context: Context) -> OverviewAnswer:
        await answers.refresh(context)
        await answers.record(context)
        now = datetime.now(UTC)
        recent = await context.reads.statistics.queues(
            Period(now - _THROUGHPUT, now), 5, QueueFilter(), GroupBy(bucket=False)
        )
        return _overview(await context.reads.catalogue.summary(), recent)

    answer(resp, await server.ask(look))
