"""``POST /api/v1/configure`` and ``DELETE /api/v1/resources/queues/:queue``."""

from functools import partial
from typing import Annotated, Any

import falcon
import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core import ids, limits
from queen.core.errors import BadRequestError, NotFoundError
from queen.core.operations import ConfiguredQueue, JobType, QueueConfiguration
from queen.engine.handlers.configuration import configure
from queen.engine.handlers.removal import delete_queue
from queen.engine.thread import EngineThread
from queen.http import queries
from queen.http.answers import Administrative, answer
from queen.http.fields import Label, Name, between
from queen.http.parsing import check_name, decode
from queen.http.paths import cut
from queen.http.request import QueenRequest, read_body
from queen.http.resources.catalogue import QUEUE_NOT_FOUND, QueueInspector

_YEAR_SECONDS = 366 * 24 * 3600
_INT_MAX = 2**31 - 1


#: Lowest and highest value of each number.
_BOUNDS = {
    "leaseTime": (0, limits.LEASE_SECONDS_MAX),
    "retryLimit": (0, 10_000),
    "retryDelay": (0, 7 * 24 * 3600 * 1000),
    "delayedProcessing": (0, _YEAR_SECONDS),
    "windowBuffer": (0, _YEAR_SECONDS),
    "priority": (-_INT_MAX, _INT_MAX),
    "retentionSeconds": (0, _INT_MAX),
    "completedRetentionSeconds": (0, _INT_MAX),
    "maxWaitTimeSeconds": (0, _INT_MAX),
    "maxSize": (0, _INT_MAX),
    "ttl": (0, _INT_MAX),
}


class Options(Struct):
    """Options of a queue as they come; one that is not sent, or `null`, has its default.

    Attributes:
        leaseTime: seconds that a lease lasts; 0 and by default 60.
        retryLimit: failures of a message before it goes to the dead letters; 3 by default.
        retryDelay: milliseconds before a failed message is delivered again.
        delayedProcessing: seconds before a message may be delivered.
        windowBuffer: seconds without a push before messages of a partition may be delivered.
        priority: among queues of a namespace or task; higher ones first.
        deadLetterQueue: whether messages are kept that were given up.
        dlqAfterMaxRetries: the same under its other name.
        namespace: counts if the body names none.
        task: counts if the body names none.
        retentionSeconds: age at which messages are removed, if `retentionEnabled`; 0 is never.
        completedRetentionSeconds: the same for messages that every group has done.
        retentionEnabled: whether the two above count.
        maxWaitTimeSeconds: age at which messages that nobody has done are given up; 0 is never.
        maxSize: most messages that are not done; beyond it a push is answered 429. 0 is any number.
        ttl: age in seconds at which messages are removed, whoever still needs them; 0 is never.
        encryptionEnabled: whether payloads are stored encrypted; needs `QUEEN_ENCRYPTION_KEY`.
    """

    leaseTime: Annotated[int, between(*_BOUNDS["leaseTime"])] | None = None  # noqa: N815 - the interface's names
    retryLimit: Annotated[int, between(*_BOUNDS["retryLimit"])] | None = None  # noqa: N815
    retryDelay: Annotated[int, between(*_BOUNDS["retryDelay"])] | None = None  # noqa: N815
    delayedProcessing: Annotated[int, between(*_BOUNDS["delayedProcessing"])] | None = None  # noqa: N815
    windowBuffer: Annotated[int, between(*_BOUNDS["windowBuffer"])] | None = None  # noqa: N815
    priority: Annotated[int, between(*_BOUNDS["priority"])] | None = None
    deadLetterQueue: bool | None = None  # noqa: N815
    dlqAfterMaxRetries: bool | None = None  # noqa: N815
    namespace: str | None = None
    task: str | None = None
    retentionSeconds: Annotated[int, between(*_BOUNDS["retentionSeconds"])] | None = None  # noqa: N815
    completedRetentionSeconds: Annotated[int, between(*_BOUNDS["completedRetentionSeconds"])] | None = None  # noqa: N815
    retentionEnabled: bool | None = None  # noqa: N815
    maxWaitTimeSeconds: Annotated[int, between(*_BOUNDS["maxWaitTimeSeconds"])] | None = None  # noqa: N815
    maxSize: Annotated[int, between(*_BOUNDS["maxSize"])] | None = None  # noqa: N815
    ttl: Annotated[int, between(*_BOUNDS["ttl"])] | None = None
    encryptionEnabled: bool | None = None  # noqa: N815


class ConfigureBody(Struct):
    """A queue with its labels and options.

    Attributes:
        namespace: label by which queues are listed and popped.
        task: the same.
    """

    queue: Name
    namespace: Label | None = None
    task: Label | None = None
    options: Options | None = None


_decoder = msgspec.json.Decoder(ConfigureBody)


def _check_options(options: Options, *, encrypts: bool) -> None:
    for name, (low, high) in _BOUNDS.items():
        value = getattr(options, name)
        if value is not None and not low <= value <= high:
            raise BadRequestError(f"options.{name} must be from {low} to {high}, not {value}", f"options.{name}")
    if options.encryptionEnabled and not encrypts:
        raise BadRequestError(
            "options.encryptionEnabled needs a key, and this server has none: set QUEEN_ENCRYPTION_KEY",
            "options.encryptionEnabled",
        )


def _label(body: ConfigureBody, options: Options, name: str) -> str:
    label = getattr(body, name) or getattr(options, name) or ""
    return check_name(label, name) if label else ""


def _configuration(body: ConfigureBody, options: Options) -> QueueConfiguration:
    def chosen(value: int | None, default: int) -> int:
        return default if value is None else value

    return QueueConfiguration(
        queue=body.queue,
        namespace=_label(body, options, "namespace"),
        task=_label(body, options, "task"),
        priority=chosen(options.priority, 0),
        lease_time=chosen(options.leaseTime, 60),
        retry_limit=chosen(options.retryLimit, 3),
        retry_delay=options.retryDelay,
        delayed_processing=chosen(options.delayedProcessing, 0),
        window_buffer=chosen(options.windowBuffer, 0),
        dead_letter_queue=options.deadLetterQueue,
        dlq_after_max_retries=options.dlqAfterMaxRetries,
        retention_enabled=bool(options.retentionEnabled),
        retention_seconds=chosen(options.retentionSeconds, 0),
        completed_retention_seconds=chosen(options.completedRetentionSeconds, 0),
        ttl=chosen(options.ttl, 0),
        max_wait_time_seconds=chosen(options.maxWaitTimeSeconds, 0),
        max_size=chosen(options.maxSize, 0),
        encryption_enabled=bool(options.encryptionEnabled),
    )


def _shown(configuration: QueueConfiguration) -> dict[str, Any]:
    c = configuration
    buries = c.dead_letter_queue is not False or c.dlq_after_max_retries is not False
    return {
        "leaseTime": c.lease_time or 60,
        "retryLimit": c.retry_limit,
        "retryDelay": c.retry_delay or 0,
        "delayedProcessing": c.delayed_processing,
        "windowBuffer": c.window_buffer,
        "priority": c.priority,
        "deadLetterQueue": buries if c.dead_letter_queue is None else c.dead_letter_queue,
        "dlqAfterMaxRetries": buries if c.dlq_after_max_retries is None else c.dlq_after_max_retries,
        "retentionEnabled": c.retention_enabled,
        "retentionSeconds": c.retention_seconds,
        "completedRetentionSeconds": c.completed_retention_seconds,
        "maxWaitTimeSeconds": c.max_wait_time_seconds,
        "maxSize": c.max_size,
        "ttl": c.ttl,
        "encryptionEnabled": c.encryption_enabled,
    }


class ConfigureResource(Administrative):
    """Makes a queue, or replaces the options of one: what is not sent goes back to its default."""

    def __init__(self, engine: EngineThread, body_bytes_max: int, *, encrypts: bool) -> None:
        super().__init__(engine)
        self._body_bytes_max, self._encrypts = body_bytes_max, encrypts

    async def on_get(self, req: QueenRequest, resp: falcon.asgi.Response) -> None:
        """Answers what holds, defaults included."""
        queue = queries.name(req, "queue")
        if queue is None:
            raise BadRequestError("queue is required", "queue")
        found = await self.ask(lambda context: context.administration.catalogue.configuration(queue))
        if found is None:
            raise NotFoundError(QUEUE_NOT_FOUND)
        labels = {"namespace": found.configuration.namespace, "task": found.configuration.task}
        queue_id = ids.queue_id(found.queue_id)
        answer(resp, {"queueId": queue_id, "queue": queue, **labels, "options": _shown(found.configuration)})

    async def on_post(self, req: QueenRequest, resp: falcon.asgi.Response) -> None:
        """Answers what holds now, defaults included."""
        body = decode(_decoder, await read_body(req, self._body_bytes_max), {"queue": "queue is required"})
        check_name(body.queue, "queue")
        options = body.options or Options()
        _check_options(options, encrypts=self._encrypts)
        configuration = _configuration(body, options)

        configured: ConfiguredQueue = await self._engine.submit(
            JobType.CUSTOM, partial(configure, configuration=configuration)
        ).future
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(
            {
                "configured": True, "queueId": ids.queue_id(configured.queue_id),
                "partitionId": ids.partition_id(configured.part_id),
                "queue": body.queue, "namespace": configuration.namespace, "task": configuration.task,
                "options": _shown(configuration),
            }
        )  # fmt: skip


class QueueResource:
    """One queue."""

    def __init__(self, engine: EngineThread) -> None:
        self._engine = engine
        self._inspector = QueueInspector(engine)

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, queue: str) -> None:
        """The queue with a page of its partitions; with ``/depth`` after it, what a group has still to do."""
        if names := cut(req, "/api/v1/resources/queues", (), "/depth"):
            answer(resp, await self._inspector.depth(req, check_name(names[0], "queue")))
        else:
            answer(resp, await self._inspector.describe(req, check_name(queue, "queue")))

    async def on_delete(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response, queue: str) -> None:
        """Deletes the queue; an unknown one is an answer too, because clients delete before they create."""
        check_name(queue, "queue")
        work = partial(delete_queue, queue=queue)
        existed: bool = await self._engine.submit(JobType.CUSTOM, work).future
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode({"deleted": existed, "queue": queue, "existed": existed})
