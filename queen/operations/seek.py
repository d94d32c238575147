"""Seeks a consumer group on a queue, or in one partition: ``POST /api/v1/consumer-groups/…/seek``."""

from datetime import UTC, datetime

import falcon.asgi
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from queen.core.administration import Page, PartitionFilter, PartitionOrder, Seek, SeekPreview, SeekResult
from queen.core.errors import BadRequestError, NotFoundError
from queen.engine.context import Context
from queen.engine.handlers.consumer_groups import seek_group
from queen.http import parameters, queries
from queen.http.access import READ_ONLY, READ_WRITE
from queen.http.answers import answer, stamp
from queen.http.operation import Answer, Parameter, operation
from queen.http.parsing import check_name, decode, parse_time
from queen.http.request import QueenRequest, read_body
from queen.operations.consumer_groups import check_group
from queen.operations.queue_rows import check_group_of
from queen.operations.server import Server

_BODY_BYTES_MAX = 64 * 1024


class SeekBody(Struct, rename="camel"):
    """The target of a seek: one of the three.

    Attributes:
        to_end: the log end.
        to_beginning: the oldest message.
        timestamp: the first message pushed after it; `now` is the current time.
    """

    to_end: bool = False
    to_beginning: bool = False
    timestamp: str | None = None


class SeekAnswer(Struct, rename="camel"):
    """The number of moved cursors, and their target."""

    success: bool
    consumer_group: str
    queue_name: str
    seek_to_end: bool
    target_timestamp: str | None
    partitions_updated: int


class PartitionSeekAnswer(Struct, rename="camel"):
    """A moved cursor; ``cursorMovedTo``: the push time of the last message before it."""

    success: bool
    consumer_group: str
    queue_name: str
    partition_name: str
    updated: bool
    cursor_moved_to: str | None


class SeekPreviewAnswer(Struct, rename="camel"):
    """What a seek would do: cursors that it moves, messages that it skips, and done ones that it delivers again."""

    partitions: int
    skipped: int
    repeated: int


_decoder = msgspec.json.Decoder(SeekBody)


def _target(body: SeekBody, place: Seek) -> Seek | None:
    """A seek with its target; ``None`` if the body has none."""
    if body.to_end + body.to_beginning + (body.timestamp is not None) > 1:
        raise BadRequestError("Give only one of toEnd, toBeginning and timestamp", "timestamp")
    if body.to_end:
        return replace(place, to_end=True)
    if body.to_beginning:
        return place
    if body.timestamp is None:
        return None
    if body.timestamp == "now":
        return replace(place, since=datetime.now(UTC))
    return replace(place, since=parse_time(body.timestamp, "timestamp"))


def _chosen(body: SeekBody, place: Seek) -> Seek:
    """A seek with its target; raises BadRequestError if the body has none."""
    seek = _target(body, place)
    if seek is None:
        raise BadRequestError("Must specify either 'toEnd': true or 'timestamp'", "toEnd")
    return seek


@operation(
    "GET",
    "/api/v1/consumer-groups/{consumerGroup}/queues/{queue}/seek",
    "previewSeek",
    "Show what a seek would skip and repeat",
    access=READ_ONLY,
    answers=[Answer("Nothing is moved", SeekPreviewAnswer)],
    errors=(400, 404, 503),
    description="Counts the cursors that the group has: a partition without one begins as the group does.",
    parameters=[
        parameters.GROUP_PATH,
        parameters.QUEUE_PATH,
        parameters.PARTITION,
        Parameter("toEnd", "`true`: to the log end", parameters.FLAG),
        Parameter("toBeginning", "`true`: to the oldest message", parameters.FLAG),
        Parameter("timestamp", "To the first message pushed after it; `now` is the current time", {"type": "string"}),
    ],
)
async def preview_seek(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, consumer_group: str, queue: str
) -> None:
    """The target must be given."""
    body = SeekBody(
        queries.flag(req, "toEnd", default=False), queries.flag(req, "toBeginning", default=False),
        req.get_param("timestamp") or None,
    )  # fmt: skip
    seek = _chosen(body, Seek(check_group(consumer_group), check_name(queue, "queue"), queries.name(req, "partition")))

    async def look(context: Context) -> SeekPreview:
        await _check(context, seek)
        return await context.reads.consumer_groups.preview(seek)

    found = await server.ask(look)
    answer(resp, SeekPreviewAnswer(found.partitions, found.skipped, found.repeated))


async def _check(context: Context, seek: Seek) -> None:
    """Returns if there are queue, group and partition; raises NotFoundError."""
    await check_group_of(context, seek.queue, seek.group)
    if seek.partition is not None and not await _partition_exists(context, seek.queue, seek.partition):
        raise NotFoundError(f"Partition not found: {seek.partition}")


async def _partition_exists(context: Context, queue: str, partition: str) -> bool:
    return bool(
        await context.reads.catalogue.partitions(PartitionFilter(queue, partition), Page(PartitionOrder.NAME, 1))
    )


@operation(
    "POST",
    "/api/v1/consumer-groups/{consumerGroup}/queues/{queue}/seek",
    "seekConsumerGroup",
    "Seek a group on a queue",
    access=READ_WRITE,
    answers=[Answer("The number of partitions", SeekAnswer)],
    errors=(400, 413, 503),
    description="Moves all cursors of the group to the end, to the beginning, or to the first message at or after a "
    "time.",
    parameters=[parameters.GROUP_PATH, parameters.QUEUE_PATH],
    body=SeekBody,
    audited=True,
)
async def seek_consumer_group(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, consumer_group: str, queue: str
) -> None:
    """The target must be given."""
    body = decode(_decoder, await read_body(req, _BODY_BYTES_MAX), {})
    seek = _chosen(body, Seek(check_group(consumer_group), check_name(queue, "queue")))
    sought = await server.run(lambda context: seek_group(context, seek))
    answer(resp, SeekAnswer(True, consumer_group, queue, seek.to_end, stamp(seek.since), sought.updated))


@operation(
    "POST",
    "/api/v1/consumer-groups/{consumerGroup}/queues/{queue}/partitions/{partition}/seek",
    "seekPartition",
    "Seek a group in one partition",
    access=READ_WRITE,
    answers=[Answer("Whether the cursor was moved", PartitionSeekAnswer)],
    errors=(400, 404, 503),
    description="Without a body, or with an empty one, the cursor moves to the end.",
    parameters=[parameters.GROUP_PATH, parameters.QUEUE_PATH, parameters.PARTITION_PATH],
    body=SeekBody,
    needs_body=False,
    audited=True,
)
async def seek_partition(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, consumer_group: str, queue: str, partition: str
) -> None:
    """The target is optional."""
    place = Seek(check_group(consumer_group), check_name(queue, "queue"), check_name(partition, "partition"))
    body = bytes(await req.stream.read(_BODY_BYTES_MAX))
    seek = (_target(decode(_decoder, body, {}), place) if body else None) or replace(place, to_end=True)

    async def work(context: Context) -> tuple[SeekResult, bool]:
        sought = await seek_group(context, seek)
        return sought, await context.with_retries(lambda _again: _partition_exists(context, queue, partition))

    sought, known = await server.run(work)
    if not known:
        raise NotFoundError("Partition not found")
    moved_to = stamp(sought.moved_to)
    answer(resp, PartitionSeekAnswer(True, consumer_group, queue, partition, sought.updated > 0, moved_to))
