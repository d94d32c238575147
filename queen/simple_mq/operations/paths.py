"""The paths of queues and messages: their parameters, and the errors for ids that are invalid or unknown."""

import re
from uuid import UUID

from queen.core.errors import BadRequestError, NotFoundError
from queen.http.parameters import path

QUEUES = "/api/queues"
#: The original has no list; where its routes are, it could be one of them some day.
LISTED = "/api/v1/simple-mq/queues"
QUEUE = f"{QUEUES}/{{queue_id}}"
MESSAGES = f"{QUEUE}/messages"
MESSAGE = f"{MESSAGES}/{{message_id}}"

#: JSON Schema of an id.
UUID_SCHEMA = {"type": "string", "format": "uuid"}
QUEUE_ID = path("queue_id", "Id of the queue", UUID_SCHEMA)
MESSAGE_ID = path("message_id", "Id of the message", UUID_SCHEMA)

MESSAGE_NOT_FOUND = "Message not found"

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def parse_id(text: str, field: str) -> UUID:
    """A queue or message id."""
    if not _UUID.fullmatch(text):
        raise BadRequestError(f"Invalid UUID string: {text[:100]}", field)
    return UUID(text)


def unknown_queue(queue: object) -> NotFoundError:
    """The error for a queue that does not exist."""
    return NotFoundError(f"Queue not found with ID: {queue}")


def unknown_message() -> NotFoundError:
    """The error for a message that does not exist."""
    return NotFoundError(MESSAGE_NOT_FOUND)
