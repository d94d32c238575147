"""Waiting requests whose client disconnects: their messages are released."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from queen.core.errors import ShuttingDownError
from queen.core.job_type import JobType
from queen.engine.handle import EngineHandle
from queen.engine.job import Job
from queen.engine.job_specs import JOB_SPECS, JobSpec

log = logging.getLogger("queen.http")

T = TypeVar("T")


class Leaving(Protocol):
    """A request whose client may disconnect before the answer."""

    async def gone(self) -> None: ...  # noqa: D102


async def serve_or_abandon(
    req: Leaving, engine: EngineHandle, job: Job, nothing: T, specs: Mapping[JobType, JobSpec] = JOB_SPECS
) -> T:
    """The result of a job, or ``nothing`` if the client disconnects first: then the job is abandoned."""
    watch = asyncio.ensure_future(req.gone())
    try:
        await asyncio.wait({job.future, watch}, return_when=asyncio.FIRST_COMPLETED)
        if job.future.done():
            return job.future.result()  # type: ignore[no-any-return]
        return nothing
    finally:
        watch.cancel()
        if not job.future.done():
            abandon(engine, job, specs)


def abandon(engine: EngineHandle, job: Job, specs: Mapping[JobType, JobSpec] = JOB_SPECS) -> None:
    """Abandons a job whose client has disconnected: messages that it gets, or has got, are released."""
    waiting = specs[job.kind].waiting

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
            "Leased messages of a disconnected consumer could not be released; they are delivered again "
            "when the lease expires: %s",
            problem,
        )
