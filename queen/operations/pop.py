"""Pops messages of a queue, a partition, or all queues of a namespace and task: ``GET /api/v1/pop…``."""

from typing import Any

import falcon
import falcon.asgi
from msgspec import UNSET, Raw, Struct, UnsetType

from queen.core import limits
from queen.core.errors import BadRequestError, NotFoundError
from queen.core.job_type import JobType
from queen.http.access import READ_WRITE
from queen.http.fields import MODE, START, number_of, text_of
from queen.http.operation import Answer, Parameter, operation
from queen.http.parameters import NAME, PARTITION_PATH, QUEUE_PATH, SWITCH
from queen.http.parsing import parse_boolean
from queen.http.pops import place_of
from queen.http.request import QueenRequest
from queen.log import ids
from queen.operations.server import Server


class DeliveredMessage(Struct, rename="camel"):
    """A message of a pop.

    Attributes:
        id: id of the message.
        data: the payload, as it was pushed.
        producer_sub: subject of the producer's token.
        offset: its offset in the partition.
        delivery_attempt: 1 at the first delivery to the group.
        headers: of its push, if it had any.
        traceparent: W3C trace context of its push, if there is one and the server stores it (`QUEEN_OTEL_ENABLED`).
    """

    id: str
    transaction_id: str
    trace_id: str | None
    data: Raw
    producer_sub: str | None
    created_at: str
    partition_id: str
    queue: str
    partition: str
    lease_id: str
    consumer_group: str
    offset: int
    delivery_attempt: int
    headers: dict[str, str] | UnsetType = UNSET
    traceparent: str | UnsetType = UNSET


class Autopilot(Struct, rename="camel"):
    """The values that the server chose for a pop with `autopilot=true`."""

    partitions: int
    batch: int
    wait_ms: int


class PopAnswer(Struct, rename="camel"):
    """Leased messages; queue and partition are those of the first one.

    Attributes:
        lease_id: empty with `autoAck`.
        partitions_claimed: number of partitions that they come from.
    """

    success: bool
    queue: str
    partition: str
    partition_id: str
    lease_id: str
    consumer_group: str
    messages: list[DeliveredMessage]
    partitions_claimed: int
    autopilot: Autopilot | UnsetType = UNSET


_PARAMETERS = (
    Parameter(
        "consumerGroup",
        "Consumer group; queue mode if it is not given",
        text_of(0, limits.GROUP_CHARS_MAX),
    ),
    Parameter(
        "batch",
        "Maximum of messages in the answer; by default `DEFAULT_BATCH_SIZE` (1), with `autopilot` 200",
        number_of(1, limits.BATCH_MESSAGES_MAX),
    ),
    Parameter(
        "partitions",
        "Maximum of partitions to claim, if the path names none; 0 and less mean "
        f"{limits.POP_PARTITIONS_MAX}. By default 1, with `autopilot` {limits.AUTOPILOT_PARTITIONS}",
        number_of(-(10**9), 10**9),
    ),
    Parameter("wait", "`true` or `1`: a long poll, which waits if there is no message", SWITCH),
    Parameter(
        "timeout",
        "Timeout of a long poll in milliseconds; by default `DEFAULT_TIMEOUT` (30000)",
        number_of(0, limits.TIMEOUT_MS_MAX),
    ),
    Parameter("autoAck", "`true` or `1`: acknowledge the messages on delivery, without a lease", SWITCH),
    Parameter(
        "subscriptionMode",
        "Where a new group starts: after the newest message (`new`, `new-only`), or at the oldest one (any other word)",
        MODE,
    ),
    Parameter(
        "subscriptionFrom",
        "Where a new group starts, by time: after this time; `now` means `new`. Takes precedence over the mode",
        START,
    ),
    Parameter(
        "leaseSeconds",
        "Lease time; by default the queue's `leaseTime`",
        number_of(1, limits.LEASE_SECONDS_MAX),
    ),
    Parameter(
        "conflation", "Not supported: `true` or `1` is refused, because this server delivers every message", SWITCH
    ),
    Parameter("autopilot", "`true` or `1`: the server chooses batch and partitions unless they are given", SWITCH),
)
_ANSWERS = (
    Answer("Messages, leased until they are acknowledged or the lease expires", PopAnswer),
    Answer("No messages, even after the wait", status=204),
)
_ERRORS = (400, 501, 503)


async def _pop(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, queue: str = "", partition: str | None = None
) -> None:
    """At once or as a long poll. Without a queue in the path, the query says of what."""
    if queue or partition is not None:
        partition = _partition_of(req, partition)
        pop = server.pops.of_query(queue, partition, req.query_string, req.get_param)
    else:
        pop = server.pops.of(req.get_param, await _named_by_query(server, req))
    popped = await server.pops.answered(req, server.engine.submit(JobType.POP, pop))
    if not popped.claims:
        resp.status = 204
        return
    resp.content_type = falcon.MEDIA_JSON
    autopilot = "autopilot" in req.query_string and parse_boolean(req.get_param("autopilot"))
    resp.data = server.pops.render(popped, pop, autopilot=autopilot)


def _partition_of(req: QueenRequest, partition: str | None) -> str | None:
    """The partition; a client without one may send none or ``null``, which is no name unless encoded."""
    named = partition and not (partition == "null" and req.scope["raw_path"].endswith(b"/null"))
    return partition if named else None


async def _named_by_query(server: Server, req: QueenRequest) -> dict[str, Any]:
    """A queue, one of its partitions, or all queues of a namespace and task."""
    queue, partition = req.get_param("queue"), req.get_param("partition")
    namespace, task = req.get_param("namespace"), req.get_param("task")
    if (queue or partition) and (namespace or task):
        raise BadRequestError("Give queue and partition, or namespace and task, not both", "namespace")
    if queue or not partition:
        return place_of(queue or None, partition or None, namespace, task)
    part_id = ids.parse_partition_id(partition)
    if part_id is None:
        raise BadRequestError(
            "A partition without its queue must be given by id (partitionId of a message)", "partition"
        )
    found = await server.ask(
        lambda context: context.at_partition(part_id, lambda home: home.database.describe_partitions([part_id]))
    )
    if not found:
        raise NotFoundError(f"There is no partition with the id {partition}")
    return place_of(found[0].queue, found[0].partition, None, None)


pop_queue = operation(
    "GET",
    "/api/v1/pop/queue/{queue}",
    "popQueue",
    "Pop messages of any partition of a queue",
    access=READ_WRITE,
    answers=_ANSWERS,
    errors=_ERRORS,
    description="Skips partitions that another consumer of the group has leased. An unknown queue has no "
    "messages; a pop of a named group creates it.",
    parameters=(QUEUE_PATH, *_PARAMETERS),
)(_pop)

pop_partition = operation(
    "GET",
    "/api/v1/pop/queue/{queue}/partition/{partition}",
    "popPartition",
    "Pop messages of one partition",
    access=READ_WRITE,
    answers=_ANSWERS,
    errors=_ERRORS,
    parameters=(QUEUE_PATH, PARTITION_PATH, *_PARAMETERS),
)(_pop)

pop_label = operation(
    "GET",
    "/api/v1/pop",
    "popLabel",
    "Pop messages of a queue, or of all queues of a namespace or task",
    access=READ_WRITE,
    answers=_ANSWERS,
    errors=(404, *_ERRORS),
    description="One of `queue`, `partition`, `namespace` and `task` is required. If `namespace` and `task` are given, "
    "a queue must match both.",
    parameters=(
        Parameter("queue", "The queue", NAME),
        Parameter("partition", "Partition of the queue by name, or without `queue` by its id", NAME),
        Parameter("namespace", "Queues of this namespace", NAME),
        Parameter("task", "Queues of this task", NAME),
        *_PARAMETERS,
    ),
)(_pop)
