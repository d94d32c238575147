"""Pauses and resumes queues and consumer groups: ``…/queues/{queue}/pause``, ``…/consumer-groups/…/pause``."""

from functools import partial

import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core.errors import NotFoundError
from queen.engine.handlers.pause import pause
from queen.http import parameters
from queen.http.access import READ_WRITE
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.parsing import check_name, decode
from queen.http.request import QueenRequest, read_body
from queen.operations.consumer_groups import check_group
from queen.operations.queue_rows import QUEUE_NOT_FOUND
from queen.operations.server import Server

_BODY_BYTES_MAX = 4096


class PauseBody(Struct):
    """The new state of a queue or group.

    Attributes:
        paused: false resumes it.
    """

    paused: bool


_decoder = msgspec.json.Decoder(PauseBody)


class QueuePauseAnswer(Struct):
    """Whether a queue is paused now."""

    queue: str
    paused: bool


class GroupPauseAnswer(Struct, rename="camel"):
    """Whether a group is paused now on a queue."""

    consumer_group: str
    queue: str
    paused: bool


async def _wanted(req: QueenRequest) -> bool:
    return decode(_decoder, await read_body(req, _BODY_BYTES_MAX), {"paused": "paused (boolean) is required"}).paused


@operation(
    "POST",
    "/api/v1/resources/queues/{queue}/pause",
    "pauseQueue",
    "Pause or resume a queue",
    access=READ_WRITE,
    answers=[Answer("Whether it is paused now", QueuePauseAnswer)],
    errors=(400, 404, 413, 503),
    description="While a queue is paused, pops of all groups get no messages and long polls wait. Pushes, and acks of "
    "what was delivered, go on.",
    parameters=[parameters.QUEUE_PATH],
    body=PauseBody,
    audited=True,
)
async def pause_queue(server: Server, req: QueenRequest, resp: falcon.asgi.Response, queue: str) -> None:
    """When a pause is answered, no message is delivered any more that was not before."""
    paused = await _wanted(req)
    if not await server.run(partial(pause, queue=check_name(queue, "queue"), group=None, paused=paused)):
        raise NotFoundError(QUEUE_NOT_FOUND)
    answer(resp, QueuePauseAnswer(queue, paused))


@operation(
    "POST",
    "/api/v1/consumer-groups/{consumerGroup}/queues/{queue}/pause",
    "pauseConsumerGroup",
    "Pause or resume a group on a queue",
    access=READ_WRITE,
    answers=[Answer("Whether it is paused now", GroupPauseAnswer)],
    errors=(400, 404, 413, 503),
    description="As `pauseQueue`, for one group of the queue. A group exists from its first pop on.",
    parameters=[parameters.GROUP_PATH, parameters.QUEUE_PATH],
    body=PauseBody,
    audited=True,
)
async def pause_consumer_group(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, consumer_group: str, queue: str
) -> None:
    """As the pause of a queue."""
    paused = await _wanted(req)
    group, name = check_group(consumer_group), check_name(queue, "queue")
    if not await server.run(partial(pause, queue=name, group=group, paused=paused)):
        raise NotFoundError("Consumer group not found on this queue")
    answer(resp, GroupPauseAnswer(consumer_group, queue, paused))
