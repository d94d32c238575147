"""Lists the labels of queues: ``GET /api/v1/resources/namespaces`` and ``…/tasks``."""

import falcon.asgi
from msgspec import Struct

from queen.engine.context import Context
from queen.http import answers, parameters, queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.server import Server


class LabelMessages(Struct):
    """Message counts of the queues with a label."""

    total: int
    pending: int


class NamespaceElement(Struct):
    """A namespace."""

    namespace: str
    queues: int
    partitions: int
    messages: LabelMessages


class NamespaceList(Struct):
    """A page of namespaces; ``total`` counts all."""

    namespaces: list[NamespaceElement]
    total: int
    pagination: queries.Pagination


class TaskElement(Struct):
    """A task."""

    task: str
    queues: int
    partitions: int
    messages: LabelMessages


class TaskList(Struct):
    """A page of tasks; ``total`` counts all."""

    tasks: list[TaskElement]
    total: int
    pagination: queries.Pagination


@operation(
    "GET",
    "/api/v1/resources/namespaces",
    "listNamespaces",
    "List namespaces",
    access=READ_ONLY,
    answers=[Answer("A page, in alphabetical order", NamespaceList)],
    errors=(400, 503),
    parameters=parameters.page(queries.LIMIT),
)
async def list_namespaces(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Queues without a namespace are not counted."""
    page = queries.page(req, queries.LIMIT)

    async def look(context: Context) -> NamespaceList:
        await answers.refresh(context)
        catalogue = context.reads.catalogue
        rows = await catalogue.namespaces(page.limit, page.offset)
        elements = [NamespaceElement(r.label, r.queues, r.partitions, LabelMessages(r.total, r.pending)) for r in rows]
        return NamespaceList(elements, (await catalogue.summary()).namespaces, page)

    answer(resp, await server.ask(look))


@operation(
    "GET",
    "/api/v1/resources/tasks",
    "listTasks",
    "List tasks",
    access=READ_ONLY,
    answers=[Answer("A page, in alphabetical order", TaskList)],
    errors=(400, 503),
    parameters=parameters.page(queries.LIMIT),
)
async def list_tasks(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Queues without a task are not counted."""
    page = queries.page(req, queries.LIMIT)

    async def look(context: Context) -> TaskList:
        await answers.refresh(context)
        catalogue = context.reads.catalogue
        rows = await catalogue.tasks(page.limit, page.offset)
        elements = [TaskElement(r.label, r.queues, r.partitions, LabelMessages(r.total, r.pending)) for r in rows]
        return TaskList(elements, (await catalogue.summary()).tasks, page)

    answer(resp, await server.ask(look))
