"""A client that leaves before its request is answered, over an engine whose answers come when the test says."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from queen.core.errors import DatabaseUnavailableError
from queen.core.job_type import JobType
from queen.engine.job import Job
from queen.engine.job_specs import JOB_SPECS
from queen.http.disconnect import serve_or_abandon
from queen.log.requests import Claim, Pop, Popped
from queen.simple_mq.job_specs import SIMPLE_MQ_SPECS
from queen.simple_mq.requests import Dequeue, Dequeued
from spec.guarantees import Level, checks

FOUND = Popped(UUID(int=1), [Claim(1, "q", "Default", 0, frozenset(), -1, 1, [])])


class Client:
    """Leaves when the test says."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def gone(self) -> None:
        await self.left.wait()


class Recorder:
    """Stands for the engine."""

    def __init__(self) -> None:
        self.abandoned: list[Job] = []
        self.submitted: list[Job] = []

    def submit(self, kind: JobType, request: Any) -> Job:
        self.submitted.append(job := Job(kind, request, asyncio.get_running_loop().create_future()))
        return job

    def abandon(self, job: Job) -> None:
        self.abandoned.append(job)


def polling(kind: JobType, request: Any, found: Any) -> tuple[Client, Recorder, Job, "asyncio.Task[Any]"]:
    client, engine = Client(), Recorder()
    job = Job(kind, request, asyncio.get_running_loop().create_future())
    specs = {**JOB_SPECS, **SIMPLE_MQ_SPECS}
    serving = serve_or_abandon(client, engine, job, found, specs)  # type: ignore[arg-type]
    return client, engine, job, asyncio.ensure_future(serving)


KINDS = pytest.mark.parametrize(
    ("kind", "request_", "found"),
    [(JobType.POP, Pop("q"), FOUND), (JobType.DEQUEUE, Dequeue(UUID(int=2)), Dequeued())],
    ids=["pop", "poll of simple-mq"],
)


@checks("G-WAIT-4", level=Level.MODEL)
@KINDS
@pytest.mark.parametrize("leaves", ["client", "server"])
async def test_messages_for_a_disconnected_client_are_released(
    kind: JobType, request_: Any, found: Any, leaves: str, caplog: pytest.LogCaptureFixture
) -> None:
    client, engine, job, serving = polling(kind, request_, "nothing")
    await asyncio.sleep(0)
    if leaves == "client":
        client.left.set()
        assert await serving == "nothing"
    else:
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
    assert engine.abandoned == [job]
    assert engine.submitted == []
    job.future.set_result(found)
    await asyncio.sleep(0)
    [giving_back] = engine.submitted
    assert giving_back.kind is JobType.CUSTOM
    giving_back.future.set_exception(DatabaseUnavailableError("PostgreSQL is down"))
    await asyncio.sleep(0)
    assert "could not be released; they are delivered again when the lease expires: PostgreSQL is down" in caplog.text


@checks("G-WAIT-4", level=Level.MODEL)
@KINDS
async def test_an_answer_that_is_there_is_the_clients(kind: JobType, request_: Any, found: Any) -> None:
    client, engine, job, serving = polling(kind, request_, "nothing")
    job.future.set_result(found)
    client.left.set()
    assert await serving is found
    assert (engine.abandoned, engine.submitted) == ([], [])
