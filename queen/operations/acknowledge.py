"""Acknowledges messages: ``POST /api/v1/ack`` and ``POST /api/v1/ack/batch``."""

import asyncio

import falcon
import falcon.asgi
import msgspec
from msgspec import UNSET, Struct, UnsetType

from queen.core.errors import QueenError
from queen.core.job_type import JobType
from queen.engine.job import Job
from queen.http import problems
from queen.http.access import READ_WRITE
from queen.http.acks import AckBody, to_ack_item, to_ack_items
from queen.http.disconnect import abandon
from queen.http.fields import GroupName
from queen.http.operation import Answer, operation
from queen.http.parsing import check_group, decode
from queen.http.pops import PopBody
from queen.http.problems import Problem
from queen.http.reading import read_json
from queen.http.rendering import AckAnswer, render_ack
from queen.http.request import QueenRequest, read_body
from queen.log.requests import QUEUE_MODE, Ack, AckItem, Pop, Popped
from queen.operations.pop import PopAnswer
from queen.operations.server import Server


class AckBatchBody(Struct):
    """Acknowledgments of one group.

    Attributes:
        consumerGroup: the group that got the messages; empty is queue mode.
        pop: also returns the next messages.
    """

    acknowledgments: list[AckBody]
    consumerGroup: GroupName | None = None  # noqa: N815
    pop: PopBody | None = None


class AckPopAnswer(Struct):
    """Results of acks, and the answer to the pop that came with them.

    Attributes:
        acknowledgments: one result per acknowledgment, in the same order.
        pop: `null` if there are no messages, or the pop failed.
        problem: the error of the pop; it does not affect the acks.
    """

    acknowledgments: list[AckAnswer]
    pop: PopAnswer | None
    problem: Problem | UnsetType = UNSET


_NO_PARTITION = "partitionId is required to ensure message uniqueness"
_SINGLE_TEXTS = {"transactionId": "transactionId is required", "partitionId": _NO_PARTITION}
_EACH = "Each acknowledgment must have a valid {} string{}"
_BATCH_TEXTS = {
    "acknowledgments": "acknowledgments array is required",
    "acknowledgments.transactionId": _EACH.format("transactionId", ""),
    "acknowledgments.partitionId": _EACH.format("partitionId", " to ensure message uniqueness"),
}
_single = msgspec.json.Decoder(AckBody)
_batch = msgspec.json.Decoder(AckBatchBody)


@operation(
    "POST",
    "/api/v1/ack",
    "ack",
    "Acknowledge one message",
    access=READ_WRITE,
    answers=[Answer("A list with one result", list[AckAnswer])],
    errors=(400, 413, 503),
    description="`completed` (`success`): the message is acknowledged. `failed`: it is delivered again, or "
    "becomes a dead letter after the queue's `retryLimit`. `retry`: it is delivered again without "
    "counting the failure. `dlq`: it becomes a dead letter at once. A refused ack is answered with "
    "`success` false.",
    body=AckBody,
)
async def acknowledge(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """The answer is an array with one result."""
    body = decode(_single, await read_body(req, server.body_bytes_max), _SINGLE_TEXTS)
    group = check_group(body.consumerGroup, "consumerGroup", QUEUE_MODE)
    resp.content_type = falcon.MEDIA_JSON
    resp.data = await _acknowledge(server, [to_ack_item(body, group)])


@operation(
    "POST",
    "/api/v1/ack/batch",
    "ackBatch",
    "Acknowledge many messages",
    access=READ_WRITE,
    answers=[
        Answer(
            "One result per acknowledgment, in the same order; with `pop`, an object with these "
            "results and the messages",
            list[AckAnswer] | AckPopAnswer,
        )
    ],
    errors=(400, 413, 501, 503),
    description="Acknowledgments are independent: a refused one does not affect the others. With `pop` the "
    "answer also has the next messages; the outcome of the pop does not affect the acks.",
    body=AckBatchBody,
)
async def acknowledge_batch(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """One result per acknowledgment, and the next messages on request."""
    body = await read_json(req, _batch, server.body_bytes_max, _BATCH_TEXTS)
    group = check_group(body.consumerGroup, "consumerGroup", QUEUE_MODE)
    items = to_ack_items(body.acknowledgments, group)
    resp.content_type = falcon.MEDIA_JSON
    if body.pop is None:
        resp.data = await _acknowledge(server, items)
    else:
        asked, pop = body.pop, server.pops.of_body(body.pop, body.consumerGroup)
        del body  # it would be kept while the pop waits
        results, job = await _begin_both(server, items, pop)
        del items
        req.forget_body()
        resp.data = b'{"acknowledgments":%b,%b}' % (results, await _rest(server, req, job, asked))


async def _acknowledge(server: Server, items: list[AckItem]) -> bytes:
    if not items:
        return b"[]"
    acked = await server.engine.submit(JobType.ACK, Ack(items)).future
    return render_ack(items, acked.results)


async def _begin_both(server: Server, items: list[AckItem], pop: Pop) -> tuple[bytes, Job]:
    """Starts acks and a pop together, in the same transaction if possible.

    If not, the pop may have run before the acks: then it runs again.
    """
    engine = server.engine
    if pop.auto_ack or not items:  # messages of an autoAck pop could not be released if the acks fail
        return await _acknowledge(server, items), engine.submit(JobType.POP, pop)
    acking = engine.submit(JobType.ACK, Ack(items, alone=False))
    popping = engine.submit(JobType.POP, pop)
    try:
        acked = await acking.future
        if not pop.wait_ms:  # one that asks several databases may be under way
            await asyncio.wait([popping.future])
    except BaseException:
        abandon(engine, popping)
        raise
    if _found_nothing(popping.future):
        popping = engine.submit(JobType.POP, msgspec.structs.replace(pop, wait_ms=0))
    return render_ack(items, acked.results), popping


async def _rest(server: Server, req: QueenRequest, job: Job, asked: PopBody) -> bytes:
    """The result of the pop, or its error: the acks are done in either case."""
    try:
        popped = await server.pops.answered(req, job)
    except Exception as error:
        found = problems.describe(error, req) if isinstance(error, QueenError) else problems.mistake(error, req)
        return b'"pop":null,"problem":' + msgspec.json.encode(found)
    if not popped.claims:
        return b'"pop":null'
    return b'"pop":' + server.pops.render(popped, job.request, autopilot=asked.autopilot)


def _found_nothing(answer: "asyncio.Future[Popped]") -> bool:
    return answer.done() and answer.exception() is None and not answer.result().claims
