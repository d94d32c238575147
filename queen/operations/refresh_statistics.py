"""Refreshes the statistics of all queues and groups: ``POST /api/v1/stats/refresh``."""

import falcon.asgi
from msgspec import Struct

from queen.engine.context import Context
from queen.engine.handlers.statistics import refresh_all
from queen.http import answers
from queen.http.access import ADMIN
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.server import Server


class PartitionsRefreshed(Struct, rename="camel"):
    """Partitions whose statistics were computed; they are stored with those of their queue."""

    partitions_updated: int


class QueuesRefreshed(Struct, rename="camel"):
    """Queues whose statistics were computed."""

    queues_updated: int


class GroupsRefreshed(Struct, rename="camel"):
    """Groups whose statistics were computed."""

    groups_updated: int


class NamespacesRefreshed(Struct, rename="camel"):
    """Namespaces whose statistics were computed, with those of their queues."""

    namespaces_updated: int


class TasksRefreshed(Struct, rename="camel"):
    """Tasks whose statistics were computed, with those of their queues."""

    tasks_updated: int


class SystemRefreshed(Struct, rename="camel"):
    """Whether the totals were computed."""

    system_updated: int


class CleanUp(Struct, rename="camel"):
    """Removed statistics of deleted queues."""

    orphaned_deleted: int


class RefreshAnswer(Struct):
    """The result of a refresh of the statistics."""

    partition: PartitionsRefreshed
    queue: QueuesRefreshed
    group: GroupsRefreshed
    namespace: NamespacesRefreshed
    task: TasksRefreshed
    system: SystemRefreshed
    cleanup: CleanUp


@operation(
    "POST",
    "/api/v1/stats/refresh",
    "refreshStatistics",
    "Refresh all statistics",
    access=ADMIN,
    answers=[Answer("The number of refreshed rows", RefreshAnswer)],
    errors=(503,),
)
async def refresh_statistics(server: Server, _req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Waits if another server is computing them."""

    async def refresh(context: Context) -> RefreshAnswer:
        await context.with_retries(lambda _again: answers.record(context))
        done = await refresh_all(context)
        all_ = await context.with_retries(lambda _again: context.reads.catalogue.summary())
        return RefreshAnswer(
            PartitionsRefreshed(all_.partitions), QueuesRefreshed(done.queues or 0),
            GroupsRefreshed(done.groups or 0), NamespacesRefreshed(all_.namespaces), TasksRefreshed(all_.tasks),
            SystemRefreshed(1), CleanUp(done.removed or 0),
        )  # fmt: skip

    answer(resp, await server.run(refresh))
