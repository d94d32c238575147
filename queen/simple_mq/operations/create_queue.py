"""Creates a queue: ``POST /api/queues``."""

import secrets
import time
from typing import Annotated

import falcon.asgi
import msgspec
from msgspec import Meta, Struct

from queen.core.errors import BadRequestError, CapacityError
from queen.http.access import READ_WRITE
from queen.http.answers import answer
from queen.http.fields import between, text_of
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.server import Server
from queen.simple_mq import administration
from queen.simple_mq import requests as limits
from queen.simple_mq.operations.bodies import Visibility, check_number, either, read_json, visibility_of
from queen.simple_mq.operations.paths import QUEUES
from queen.simple_mq.requests import NewQueue, uuid7

_Name = Annotated[str, Meta(extra_json_schema=text_of(1, limits.NAME_CHARS_MAX))]
_Size = Annotated[int, between(1, limits.QUEUE_SIZE_MAX)]
_Deliveries = Annotated[int, between(1, limits.DELIVERIES_MAX)]
_Bytes = Annotated[int, Meta(extra_json_schema={"minimum": 1})]


class CreateBody(Struct):
    """A queue to create; each field has two spellings. All but `maxMessageBytes` are required.

    Attributes:
        queueName: need not be unique.
        queueSize: maximum of messages in the queue.
        visibilityTimeout: seconds for which a polled message is hidden.
        maxDeliveries: deliveries after which a message goes to the dead-letter queue.
        maxMessageBytes: maximum size of one message; at most and by default `QUEEN_SMQ_MAX_MESSAGE_BYTES`.
    """

    queueName: _Name | None = None  # noqa: N815 - the interface's names
    queueSize: _Size | None = None  # noqa: N815
    visibilityTimeout: Visibility | None = None  # noqa: N815
    maxDeliveries: _Deliveries | None = None  # noqa: N815
    maxMessageBytes: _Bytes | None = None  # noqa: N815
    queue_name: _Name | None = None
    queue_size: _Size | None = None
    visibility_timeout: Visibility | None = None
    max_deliveries: _Deliveries | None = None
    max_message_bytes: _Bytes | None = None


class QueueCreated(Struct):
    """The id of a new queue."""

    queue_id: str


_decoder = msgspec.json.Decoder(CreateBody)


@operation(
    "POST",
    QUEUES,
    "createSimpleMqQueue",
    "Create a queue",
    access=READ_WRITE,
    answers=[Answer("Its id; names need not be unique", QueueCreated, 201)],
    errors=(400, 413, 415, 429, 503),
    description="Each field may be given in camel case or in snake case; all but `maxMessageBytes` are required.",
    body=CreateBody,
    audited=True,
)
async def create_queue(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """The id is chosen here, so that the queue is created once if the call is repeated."""
    settings = server.settings.simple_mq
    queue = _to_queue(await read_json(req, _decoder, server.body_bytes_max), settings.message_bytes_max)
    made = await server.run(lambda context: administration.create_queue(context, queue, settings.queues_max))
    if made is None:
        raise CapacityError(f"There are {settings.queues_max} queues already, the maximum (QUEEN_SMQ_MAX_QUEUES)")
    answer(resp, QueueCreated(str(made)), 201)


def _to_queue(body: CreateBody, message_bytes_max: int) -> NewQueue:
    """A queue with a new id; raises BadRequestError for missing or invalid fields."""
    name = _name_of(body)
    own_limit = either(body, "maxMessageBytes", "max_message_bytes")
    bytes_text = f"maxMessageBytes must be from 1 to {message_bytes_max}"
    return NewQueue(
        queue_id=uuid7(time.time_ns() // 1_000_000, secrets.randbits(74)),
        name=name,
        size=check_number(
            either(body, "queueSize", "queue_size"), "queueSize", (1, "Queue size must be at least 1"),
            (limits.QUEUE_SIZE_MAX, "Queue size cannot exceed 1,000,000"),
        ),
        visibility_timeout=visibility_of(body),
        max_deliveries=check_number(
            either(body, "maxDeliveries", "max_deliveries"), "maxDeliveries", (1, "Max deliveries must be at least 1"),
            (limits.DELIVERIES_MAX, "Max deliveries cannot exceed 100"),
        ),
        max_message_bytes=own_limit if own_limit is None else check_number(
            own_limit, "maxMessageBytes", (1, bytes_text), (message_bytes_max, bytes_text)
        ),
    )  # fmt: skip


def _name_of(body: CreateBody) -> str:
    name = either(body, "queueName", "queue_name")
    if not isinstance(name, str) or not name.strip():
        raise BadRequestError("Queue name is required", "queueName")
    if len(name) > limits.NAME_CHARS_MAX:
        raise BadRequestError("Queue name must be between 1 and 255 characters", "queueName")
    if "\0" in name:
        raise BadRequestError("Queue name contains U+0000, which cannot be stored", "queueName")
    return name
