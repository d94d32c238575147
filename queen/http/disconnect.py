"""Requests that wait, and clients that do not: nothing is taken for one that has gone."""

import asyncio
from typing import TypeVar

from queen.core.operations import JobType, Popped
from queen.engine.handlers.give_back import give_back
from queen.engine.job import Job
from queen.engine.thread import EngineThread
from queen.http.request import QueenRequest

T = TypeVar("T")


async def serve_or_abandon(req: QueenRequest, engine: EngineThread, job: Job, nothing: T) -> T:
    """The result of a job, or ``nothing`` once the client has closed its connection: the job is then abandoned."""

    def abandon(watch: "asyncio.Future[None]") -> None:
        if not watch.cancelled() and not job.future.done():
            engine.abandon(job)
            job.future.set_result(nothing)

    watch = asyncio.ensure_future(req.gone())
    watch.add_done_callback(abandon)
    try:
        return await job.future  # type: ignore[no-any-return]
    finally:
        watch.cancel()


def abandon_pop(engine: EngineThread, job: Job) -> None:
    """Nobody wants the answer to a pop any more, which may be on its way, or there."""

    def return_late(answer: "asyncio.Future[Popped]") -> None:
        if not answer.cancelled() and answer.exception() is None and answer.result().claims:
            popped, group = answer.result(), job.request.group
            engine.submit(JobType.CUSTOM, lambda context: give_back(context, popped, group))

    engine.abandon(job)
    job.future.add_done_callback(return_late)
