"""Configures a queue, and shows its configuration: ``/api/v1/configure``."""

from functools import partial

import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core.administration import ConfiguredQueue
from queen.core.errors import BadRequestError, NotFoundError
from queen.engine.handlers.configuration import configure
from queen.http import parameters, queries
from queen.http.access import READ_ONLY, READ_WRITE
from queen.http.answers import answer
from queen.http.fields import Label, Name
from queen.http.operation import Answer, Parameter, operation
from queen.http.parsing import check_name, decode
from queen.http.request import QueenRequest, read_body
from queen.log import ids
from queen.operations.queue_options import Options, OptionsInForce, check_options, configuration_of, in_force
from queen.operations.queue_rows import QUEUE_NOT_FOUND
from queen.operations.server import Server


class ConfigureBody(Struct):
    """A queue with its labels and options.

    Attributes:
        namespace: label by which queues can be listed and popped.
        task: a second label of this kind.
    """

    queue: Name
    namespace: Label | None = None
    task: Label | None = None
    options: Options | None = None


class ConfiguredAnswer(Struct, rename="camel"):
    """The configuration of a queue; `partitionId` is that of its partition `Default`."""

    configured: bool
    queue_id: str
    partition_id: str
    queue: str
    namespace: str
    task: str
    options: OptionsInForce


class ConfigurationAnswer(Struct, rename="camel"):
    """The configuration of a queue."""

    queue_id: str
    queue: str
    namespace: str
    task: str
    options: OptionsInForce


_decoder = msgspec.json.Decoder(ConfigureBody)


def _label(body: ConfigureBody, options: Options, name: str) -> str:
    label = getattr(body, name) or getattr(options, name) or ""
    return check_name(label, name) if label else ""


@operation(
    "POST",
    "/api/v1/configure",
    "configureQueue",
    "Create a queue, or replace its options",
    access=READ_WRITE,
    answers=[Answer("The options now in force", ConfiguredAnswer)],
    errors=(400, 413, 503),
    description="An option that is not given is reset to its default. `namespace` and `task` may also be given "
    "among the options.",
    body=ConfigureBody,
    audited=True,
)
async def configure_queue(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """When it is answered, the new options hold in all partitions."""
    body = decode(_decoder, await read_body(req, server.body_bytes_max), {"queue": "queue is required"})
    check_name(body.queue, "queue")
    options = body.options or Options()
    check_options(options, encrypts=server.keys is not None)
    labels = _label(body, options, "namespace"), _label(body, options, "task")
    configuration = configuration_of(body.queue, *labels, options)
    configured: ConfiguredQueue = await server.run(partial(configure, configuration=configuration))
    queue_id, partition_id = ids.queue_id(configured.queue_id), ids.partition_id(configured.part_id)
    answer(resp, ConfiguredAnswer(True, queue_id, partition_id, body.queue, *labels, in_force(configuration)))


@operation(
    "GET",
    "/api/v1/configure",
    "getConfiguration",
    "Show the options of a queue",
    access=READ_ONLY,
    answers=[Answer("All options, with defaults, in the form of `configure`", ConfigurationAnswer)],
    errors=(400, 404, 503),
    parameters=[Parameter("queue", "Name of the queue", parameters.NAME, required=True)],
)
async def get_configuration(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """The options in force, also those that were never given."""
    queue = queries.name(req, "queue")
    if queue is None:
        raise BadRequestError("queue is required", "queue")
    found = await server.ask(lambda context: context.reads.catalogue.configuration(queue))
    if found is None:
        raise NotFoundError(QUEUE_NOT_FOUND)
    c = found.configuration
    answer(resp, ConfigurationAnswer(ids.queue_id(found.queue_id), queue, c.namespace, c.task, in_force(c)))
