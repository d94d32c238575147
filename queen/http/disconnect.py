"""Requests that wait, and clients that do not: nothing is taken for one that has gone."""

import asyncio
import contextlib
import logging
from typing import Any, Protocol, TypeVar

from queen.core.errors import ShuttingDownError
from queen.core.operations import JobType
from queen.engine.job import Job
from queen.engine.operations import OPERATIONS
from queen.engine.thread import EngineThread

log = logging.getLogger("queen.http")

T = TypeVar("T")


class Leaving(Protocol):
    """A request whose client may leave before it is answered."""

    async def gone(self) -> None: ...  # noqa: D102


async def serve_or_abandon(req: Leaving, engine: EngineThread, job: Job, nothing: T) -> T:
    """The result of a job, or ``nothing`` once the client has closed its connection: the job is then abandoned."""
    watch = asyncio.ensure_future(req.gone())
    try:
        await asyncio.wait({job.future, watch}, return_when=asyncio.FIRST_COMPLETED)
        if job.future.done():
            return job.future.result()  # type: ignore[no-any-return]
        return nothing
    finally:
        watch.cancel()
        if not job.future.done():
            abandon(engine, job)


def abandon(engine: EngineThread, job: Job) -> None:
    """Nobody wants the messages of a job any more, which may be on their way, or there: they are given back."""
    waiting = OPERATIONS[job.kind].waiting

    def return_late(answer: "asyncio.Future[Any]") -> None:
        if waiting is not None and not answer.cancelled() and answer.exception() is None:
            found = answer.result()
            with contextlib.suppress(ShuttingDownError):
                giving = engine.submit(JobType.CUSTOM, lambda context: waiting.give_back(context, job.request, found))
                giving.future.add_done_callback(_tell_failure)

    engine.abandon(job)
    job.future.add_done_callback(return_late)


def _tell_failure(given: "asyncio.Future[Any]") -> None:
    if not given.cancelled() and (problem := given.exception()) is not None:
        log.warning(
            "Messages whose consumer had gone could not be given back; they come again by themselves: %s", problem
        )
