"""The interface of simple-mq."""

from collections.abc import Mapping
from typing import Any

from queen.core import simple_mq as limits
from queen.http.contract import shapes
from queen.http.contract.operation import Answer, Operation, Parameter, Topic
from queen.http.contract.parameters import TIME, path
from queen.http.fields import number_of
from queen.http.resources.simple_mq.messages import AckBody, VisibilityBody
from queen.http.resources.simple_mq.parsing import EnqueueBody
from queen.http.resources.simple_mq.queues import CreateBody
from queen.http.resources.simple_mq.rendering import MessagesAnswer, PageAnswer, PolledAnswer, QueueAnswer
from queen.metrics.registry import CONTENT_TYPE

_UUID = {"type": "string", "format": "uuid"}
_QUEUE_ID = path("queue_id", "Id of the queue", _UUID)
_MESSAGE_ID = path("message_id", "Id of the message", _UUID)
_ONE = "/api/queues/{queue_id}"
_MESSAGES = f"{_ONE}/messages"
_MESSAGE = f"{_MESSAGES}/{{message_id}}"


def _query(name: str, description: str, schema: Mapping[str, Any]) -> Parameter:
    """A parameter that this interface, unlike the other, does not want to be empty."""
    return Parameter(name, description, schema, may_be_empty=False)


TOPIC = Topic(
    "simple-mq",
    "A second interface, in the manner of SQS, with queues of its own: size limits, visibility timeouts, dead-letter "
    "queues that are queues.",
    [
        Operation(
            "POST",
            "/api/queues",
            "createSimpleMqQueue",
            "Make a queue",
            [Answer("Its id; names need not be unique", shapes.QueueCreated, 201)],
            (400, 413, 415, 429, 503),
            "Each field has two spellings; `maxMessageBytes` alone may be left out.",
            body=CreateBody,
        ),
        Operation(
            "GET",
            _ONE,
            "getSimpleMqQueue",
            "Settings and message count of a queue",
            [Answer("As it is", QueueAnswer)],
            (400, 404, 503),
            parameters=(_QUEUE_ID,),
        ),
        Operation(
            "DELETE",
            _ONE,
            "deleteSimpleMqQueue",
            "Delete a queue with its messages",
            [Answer("It is gone; its dead-letter queue stays")],
            (400, 404, 409, 503),
            parameters=(_QUEUE_ID,),
        ),
        Operation(
            "POST",
            f"{_ONE}/requeue",
            "requeueSimpleMqQueue",
            "Give all messages of a dead-letter queue a second chance",
            [Answer("As many as the parent has room for", shapes.QueueRequeued)],
            (400, 404, 409, 503),
            parameters=(_QUEUE_ID,),
        ),
        Operation(
            "POST",
            _MESSAGES,
            "enqueue",
            "Store one message, or several",
            [Answer("Their ids", shapes.MessageEnqueued | shapes.MessagesEnqueued, 201)],
            (400, 404, 413, 415, 422, 429, 503),
            "All of them or none.",
            (_QUEUE_ID,),
            EnqueueBody,
        ),
        Operation(
            "GET",
            _MESSAGES,
            "dequeue",
            "Take the oldest message, or several",
            [Answer("`messages` if a limit was named, else `message`", PolledAnswer | MessagesAnswer)],
            (400, 404, 501, 503),
            "They are hidden for the visibility timeout of the queue, and come again unless they are acknowledged.",
            (
                _QUEUE_ID,
                _query("limit", "Most messages; without it one", number_of(1, limits.BATCH_MESSAGES_MAX)),
                _query(
                    "wait",
                    "Seconds to wait for a message; 0 by default",
                    {"type": "number", "minimum": 0, "maximum": limits.WAIT_SECONDS_MAX},
                ),
            ),
        ),
        Operation(
            "GET",
            f"{_MESSAGES}/peek",
            "peek",
            "Show messages and take none",
            [Answer("A page, oldest first, and where the next one begins", PageAnswer)],
            (400, 404, 503),
            parameters=(
                _QUEUE_ID,
                Parameter("limit", "Most messages", number_of(1, limits.PEEK_MESSAGES_MAX), required=True),
                _query("cursorCreatedAt", "Where the page begins, as the page before it said", TIME),
                _query("cursorMessageId", "The same for messages of one moment", _UUID),
            ),
        ),
        Operation(
            "POST",
            f"{_MESSAGES}/ack",
            "acknowledgeMessages",
            "Acknowledge messages",
            [Answer("A result each", shapes.MessagesAcknowledged)],
            (400, 404, 413, 415, 503),
            parameters=(_QUEUE_ID,),
            body=AckBody,
        ),
        Operation(
            "DELETE",
            _MESSAGE,
            "acknowledgeMessage",
            "Acknowledge a message",
            [Answer("It is gone for good", shapes.MessageAcknowledged)],
            (400, 404, 503),
            parameters=(_QUEUE_ID, _MESSAGE_ID),
        ),
        Operation(
            "POST",
            f"{_MESSAGE}/requeue",
            "requeueMessage",
            "Give a message a second chance",
            [Answer("Where it has gone", shapes.MessageRequeued)],
            (400, 404, 429, 503),
            parameters=(_QUEUE_ID, _MESSAGE_ID),
        ),
        Operation(
            "POST",
            f"{_MESSAGE}/visibility",
            "extendVisibility",
            "Set how long a message stays hidden",
            [Answer("Until when", shapes.VisibilityExtended)],
            (400, 404, 409, 413, 415, 503),
            parameters=(_QUEUE_ID, _MESSAGE_ID),
            body=VisibilityBody,
        ),
        Operation(
            "GET",
            "/actuator/health",
            "getActuatorHealth",
            "Whether the database answers",
            [
                Answer("`UP`", shapes.ActuatorHealth),
                Answer("`DOWN`", shapes.ActuatorHealth, 503),
            ],
            (),
        ),
        Operation(
            "GET",
            "/actuator/info",
            "getActuatorInfo",
            "What runs here",
            [Answer("Name and version", shapes.ActuatorInfo)],
            (),
        ),
        Operation(
            "GET",
            "/actuator/metrics",
            "listActuatorMetrics",
            "Names of metrics",
            [Answer("As the original writes them", shapes.MeterNames)],
            (),
        ),
        Operation(
            "GET",
            "/actuator/prometheus",
            "getActuatorPrometheus",
            "The same as `/metrics/prometheus`",
            [Answer("Of all workers of the instance", str, media_type=CONTENT_TYPE)],
            (),
        ),
    ],
    prefix="SimpleMq",
)
