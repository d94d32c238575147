"""Polls messages: ``GET /api/queues/{queue_id}/messages``."""

import re

import falcon
import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core.errors import BadRequestError
from queen.core.job_type import JobType
from queen.http.access import READ_WRITE
from queen.http.disconnect import serve_or_abandon
from queen.http.fields import number_of
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.server import Server
from queen.simple_mq import requests as limits
from queen.simple_mq.job_specs import SIMPLE_MQ_SPECS
from queen.simple_mq.metrics import OPERATION_SECONDS
from queen.simple_mq.operations.messages import MessageAnswer, message_answer, parse_limit, query
from queen.simple_mq.operations.paths import MESSAGES, QUEUE_ID, parse_id, unknown_queue
from queen.simple_mq.requests import Dequeue, Dequeued

_SECONDS = re.compile(r"[0-9]{1,5}(\.[0-9]{1,6})?")


class PolledAnswer(Struct):
    """The message of a poll without a limit, if there was one."""

    message: MessageAnswer | None


class MessagesAnswer(Struct):
    """The messages of a poll with a limit."""

    messages: list[MessageAnswer]


@operation(
    "GET",
    MESSAGES,
    "dequeue",
    "Poll one message or several",
    access=READ_WRITE,
    answers=[Answer("`messages` if a limit is given, else `message`", PolledAnswer | MessagesAnswer)],
    errors=(400, 404, 501, 503),
    description="The messages are hidden for the visibility timeout of the queue. They are delivered again "
    "unless they are acknowledged.",
    parameters=[
        QUEUE_ID,
        query("limit", "Maximum of messages; one if it is not given", number_of(1, limits.BATCH_MESSAGES_MAX)),
        query(
            "wait",
            "Seconds to wait for a message; 0 by default",
            {"type": "number", "minimum": 0, "maximum": limits.WAIT_SECONDS_MAX},
        ),
    ],
)
async def dequeue(server: Server, req: QueenRequest, resp: falcon.asgi.Response, queue_id: str) -> None:
    """With ``wait`` it is a long poll: its messages become visible again if the client has disconnected."""
    queue = parse_id(queue_id, "queue_id")
    limit = req.get_param("limit")
    number = 1 if limit is None else parse_limit(limit, limits.BATCH_MESSAGES_MAX)
    poll = Dequeue(queue, number, _parse_wait_ms(req.get_param("wait")))
    job = server.engine.submit(JobType.DEQUEUE, poll)
    if poll.wait_ms:
        dequeued: Dequeued = await serve_or_abandon(req, server.engine, job, Dequeued(), SIMPLE_MQ_SPECS)
    else:
        with OPERATION_SECONDS.labels("dequeue").time():
            dequeued = await job.future
    if not dequeued.known:
        raise unknown_queue(queue)
    messages = [message_answer(message) for message in dequeued.messages]
    resp.content_type = falcon.MEDIA_JSON
    if limit is None:
        resp.data = msgspec.json.encode(PolledAnswer(messages[0] if messages else None))
    else:
        resp.data = msgspec.json.encode(MessagesAnswer(messages))


def _parse_wait_ms(text: str | None) -> int:
    """Seconds to wait, decimals allowed, as milliseconds; ``None`` is 0."""
    if text is None:
        return 0
    seconds = float(text) if _SECONDS.fullmatch(text) else None
    if seconds is None or seconds > limits.WAIT_SECONDS_MAX:
        raise BadRequestError(f"wait must be 0 to {limits.WAIT_SECONDS_MAX} seconds, not {text[:40]!r}", "wait")
    return int(seconds * 1000)
