"""``POST /api/v1/ack`` and ``POST /api/v1/ack/batch``."""

import asyncio
from collections.abc import Sequence

import falcon
import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core import limits
from queen.core.errors import BadRequestError, QueenError
from queen.core.operations import QUEUE_MODE, Ack, AckItem, JobType, Pop, Popped
from queen.engine.job import Job
from queen.engine.thread import EngineThread
from queen.http import problems
from queen.http.disconnect import abandon
from queen.http.fields import GroupName, Required
from queen.http.parsing import check_group, decode
from queen.http.pops import PopBody, Pops
from queen.http.reading import read_json
from queen.http.rendering import render_ack
from queen.http.request import QueenRequest, read_body


class AckBody(Struct):
    """One acknowledgment.

    Attributes:
        transactionId: that of the message, as it was delivered.
        partitionId: that of the message, as it was delivered.
        leaseId: the lease of the pop; an ack under another one is refused. Without one nothing is fenced.
        status: `completed` (default) or `success`, `failed`, `retry`, `dlq`.
        error: why it failed; kept with the dead letter, up to 10,000 characters.
        consumerGroup: whose message it was; empty is queue mode. In a batch, that of the batch counts.
    """

    transactionId: Required  # noqa: N815 - the interface's names
    partitionId: str  # noqa: N815
    leaseId: str | None = None  # noqa: N815
    status: str | None = None
    error: str | None = None
    consumerGroup: str | None = None  # noqa: N815


class AckBatchBody(Struct):
    """Acknowledgments of one group.

    Attributes:
        consumerGroup: whose messages they were; empty is queue mode.
        pop: asks for the next messages in the same request.
    """

    acknowledgments: list[AckBody]
    consumerGroup: GroupName | None = None  # noqa: N815
    pop: PopBody | None = None


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


def to_ack_item(body: AckBody, group: str, field: str = "") -> AckItem:
    """An acknowledgment as the engine takes it; raises BadRequestError for an empty transactionId."""
    if not body.transactionId:
        raise BadRequestError(f"{field}transactionId must not be empty", f"{field}transactionId")
    error = body.error[: limits.ERROR_TEXT_CHARS_MAX].replace("\0", "\N{REPLACEMENT CHARACTER}") if body.error else None
    return AckItem(body.transactionId, body.partitionId, group, body.leaseId or None, body.status or "completed", error)


def to_ack_items(bodies: Sequence[AckBody], group: str) -> list[AckItem]:
    """The same for the elements of ``acknowledgments``."""
    try:
        return [to_ack_item(body, group) for body in bodies]
    except BadRequestError:
        # Only now is it worth a name for each element.
        return [to_ack_item(body, group, f"acknowledgments[{number}].") for number, body in enumerate(bodies)]


class AckResource:
    """Says what became of delivered messages."""

    def __init__(self, engine: EngineThread, body_bytes_max: int, pops: Pops) -> None:
        self._engine, self._body_bytes_max, self._pops = engine, body_bytes_max, pops

    async def on_post(self, req: QueenRequest, resp: falcon.asgi.Response) -> None:
        """One acknowledgment; the answer is an array of one."""
        body = decode(_single, await read_body(req, self._body_bytes_max), _SINGLE_TEXTS)
        group = check_group(body.consumerGroup, "consumerGroup", QUEUE_MODE)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = await self._acknowledge([to_ack_item(body, group)])

    async def on_post_batch(self, req: QueenRequest, resp: falcon.asgi.Response) -> None:
        """Many acknowledgments, each with a result of its own; and the next messages, if they are asked for."""
        body = await read_json(req, _batch, self._body_bytes_max, _BATCH_TEXTS)
        group = check_group(body.consumerGroup, "consumerGroup", QUEUE_MODE)
        items = to_ack_items(body.acknowledgments, group)
        resp.content_type = falcon.MEDIA_JSON
        if body.pop is None:
            resp.data = await self._acknowledge(items)
        else:
            asked, pop = body.pop, self._pops.of_body(body.pop, body.consumerGroup)
            del body  # it would be kept while the pop waits
            results, job = await self._begin_both(items, pop)
            del items
            req.forget_body()
            resp.data = b'{"acknowledgments":%b,%b}' % (results, await self._rest(req, job, asked))

    async def _acknowledge(self, items: list[AckItem]) -> bytes:
        if not items:
            return b"[]"
        acked = await self._engine.submit(JobType.ACK, Ack(items)).future
        return render_ack(items, acked.results)

    async def _begin_both(self, items: list[AckItem], pop: Pop) -> tuple[bytes, Job]:
        """The results of acks, and a pop that left in the same turn, and so in the same transaction where it can.

        Where it cannot it may have looked before the acks were done: then it looks again.
        """
        if pop.auto_ack or not items:  # what an autoAck pop takes could not be given back if the acks fail
            return await self._acknowledge(items), self._engine.submit(JobType.POP, pop)
        acking, popping = self._engine.submit(JobType.ACK, Ack(items)), self._engine.submit(JobType.POP, pop)
        try:
            acked = await acking.future
        except BaseException:
            abandon(self._engine, popping)
            raise
        if _found_nothing(popping.future):
            popping = self._engine.submit(JobType.POP, msgspec.structs.replace(pop, wait_ms=0))
        return render_ack(items, acked.results), popping

    async def _rest(self, req: QueenRequest, job: Job, asked: PopBody) -> bytes:
        """The fields that say what a pop has got, or why it failed: the acks are done in either case."""
        try:
            popped = await self._pops.answered(req, job)
        except Exception as error:
            found = problems.describe(error, req) if isinstance(error, QueenError) else problems.mistake(error, req)
            return b'"pop":null,"problem":' + msgspec.json.encode(found)
        if not popped.claims:
            return b'"pop":null'
        return b'"pop":' + self._pops.render(popped, job.request, autopilot=asked.autopilot)


def _found_nothing(answer: "asyncio.Future[Popped]") -> bool:
    return answer.done() and answer.exception() is None and not answer.result().claims
