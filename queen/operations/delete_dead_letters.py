"""Deletes dead letters: ``DELETE /api/v1/dlq`` and ``DELETE /api/v1/dlq/{deadLetterId}``."""

import falcon.asgi
from msgspec import Struct

from queen.core.administration import DeadLetterFilter
from queen.core.errors import BadRequestError, NotFoundError
from queen.engine.context import Context
from queen.engine.handlers.removal import delete_dead_letter as remove
from queen.engine.handlers.removal import purge_dead_letters as purge
from queen.http import queries
from queen.http.access import ADMIN, READ_WRITE
from queen.http.answers import answer
from queen.http.operation import Answer, Parameter, operation
from queen.http.parameters import DEAD_LETTER_ID, GROUP, NAME, PARTITION
from queen.http.queries import DEAD_LETTER_NOT_FOUND
from queen.http.request import QueenRequest
from queen.operations.list_dead_letters import ERROR, error_text
from queen.operations.noted_letters import letter_of
from queen.operations.server import Server


class PurgedAnswer(Struct, rename="camel"):
    """The number of deleted dead letters."""

    success: bool
    deleted: int
    queue: str
    consumer_group: str | None


class DeletedDeadLetter(Struct, rename="camel"):
    """A deleted dead letter."""

    success: bool
    id: str


@operation(
    "DELETE",
    "/api/v1/dlq",
    "purgeDeadLetters",
    "Delete the dead letters of a queue",
    access=ADMIN,
    answers=[Answer("The number of deleted dead letters", PurgedAnswer)],
    errors=(400, 503),
    description="Deletes in transactions of up to 5,000, newest failure first. Dead letters added meanwhile "
    "stay; if the request is interrupted, the remaining ones stay, too.",
    parameters=[
        Parameter("queue", "Queue whose dead letters are deleted", NAME, required=True),
        GROUP,
        PARTITION,
        ERROR,
    ],
    audited=True,
)
async def purge_dead_letters(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Deletes those of a queue that match."""
    queue, group = queries.name(req, "queue"), queries.name(req, "consumerGroup")
    wanted = DeadLetterFilter(queue, group, queries.name(req, "partition"), error_text(req))
    if queue is None:
        raise BadRequestError("queue is required: dead letters can be deleted for one queue at a time", "queue")
    deleted = await server.run(lambda context: purge(context, wanted))
    answer(resp, PurgedAnswer(True, deleted, queue, group))


@operation(
    "DELETE",
    "/api/v1/dlq/{deadLetterId}",
    "deleteDeadLetter",
    "Delete one dead letter",
    access=READ_WRITE,
    answers=[Answer("The dead letter is deleted; its message stays acknowledged", DeletedDeadLetter)],
    errors=(404, 503),
    parameters=[DEAD_LETTER_ID],
    audited=True,
)
async def delete_dead_letter(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, dead_letter_id: str
) -> None:
    """Deletes it; its message stays acknowledged."""
    number = queries.dead_letter_number(dead_letter_id)

    async def work(context: Context) -> bool:
        letter = await context.with_retries(lambda _again: context.reads.dead_letters.find(number))
        if letter is None:
            return False
        req.about.append(letter_of(letter))
        return await remove(context, number)

    if not await server.run(work):
        raise NotFoundError(DEAD_LETTER_NOT_FOUND)
    answer(resp, DeletedDeadLetter(True, dead_letter_id))
