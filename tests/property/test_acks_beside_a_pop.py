"""Acks and a pop in one request, over an engine whose answers come when the test says."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import falcon.asgi
import httpx
import pytest

from queen.catalogue import metrics_of
from queen.config import Settings
from queen.core.errors import DatabaseUnavailableError, OverloadedError, QueenError
from queen.core.job_type import JobType
from queen.engine.job import Job
from queen.http import problems
from queen.http.request import QueenRequest
from queen.http.room import Room
from queen.http.socket.sockets import Sockets
from queen.log.requests import Acked, AckResult, Claim, Popped
from queen.operations.acknowledge import acknowledge_batch
from queen.operations.server import server_of
from spec.guarantees import Level, checks

DONE = Acked([AckResult(None, "q", "Default")])
FOUND = Popped(UUID(int=1), [Claim(1, "q", "Default", 0, frozenset(), -1, 1, [])])


class Script:
    """Stands for the engine: takes jobs, and forgets none that was abandoned."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.abandoned: list[Job] = []

    def submit(self, kind: JobType, request: Any) -> Job:
        job = Job(kind, request, asyncio.get_running_loop().create_future())
        self.jobs.append(job)
        return job

    def abandon(self, job: Job) -> None:
        self.abandoned.append(job)

    async def job(self, number: int, kind: JobType) -> Job:
        """The job of this number, when it is there."""
        async with asyncio.timeout(60):
            while len(self.jobs) <= number:
                await asyncio.sleep(0)
        assert self.jobs[number].kind is kind
        return self.jobs[number]


@pytest.fixture
def engine() -> Script:
    return Script()


@pytest.fixture
def room() -> Room:
    return Room(bytes_max=1)


@pytest.fixture
async def http(engine: Script, room: Room) -> AsyncIterator[httpx.AsyncClient]:
    metrics = metrics_of(Settings(), engine)  # type: ignore[arg-type]
    server = server_of(Settings(), engine, Sockets(0), metrics, ())  # type: ignore[arg-type]
    app = falcon.asgi.App(request_type=lambda *given, **more: QueenRequest(*given, **more, room=room))  # type: ignore[arg-type]
    app.add_error_handler(Exception, problems.on_unexpected)
    app.add_error_handler(QueenError, problems.on_queen_error)
    app.add_route("/ack", SimpleNamespace(on_post=partial(acknowledge_batch.handler, server)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://queen") as client:
        yield client


def asked(http: httpx.AsyncClient, *, error: str = "", **pop: Any) -> "asyncio.Task[httpx.Response]":
    ack = {"transactionId": "t", "partitionId": "p", "error": error}
    return asyncio.create_task(http.post("/ack", json={"acknowledgments": [ack], "pop": {"queue": "q", **pop}}))


@checks("G-ACK-8", level=Level.MODEL)
async def test_acks_and_pop_leave_in_one_turn_and_are_answered_together(
    http: httpx.AsyncClient, engine: Script
) -> None:
    asking = asked(http)
    (await engine.job(0, JobType.ACK)).future.set_result(DONE)
    (await engine.job(1, JobType.POP)).future.set_result(FOUND)
    answer = (await asking).json()
    assert [result["success"] for result in answer["acknowledgments"]] == [True]
    assert answer["pop"]["leaseId"] == str(FOUND.lease)
    assert "problem" not in answer


@checks("G-ACK-8", level=Level.MODEL)
async def test_a_pop_that_found_nothing_before_the_acks_were_done_looks_again(
    http: httpx.AsyncClient, engine: Script
) -> None:
    asking = asked(http, wait=True, timeout=1000)
    (await engine.job(1, JobType.POP)).future.set_result(Popped())
    (await engine.job(0, JobType.ACK)).future.set_result(DONE)
    again = await engine.job(2, JobType.POP)
    assert again.request.wait_ms == 0  # its time is over
    again.future.set_result(FOUND)
    assert (await asking).json()["pop"]["leaseId"] == str(FOUND.lease)


@checks("G-ACK-8", level=Level.MODEL)
@pytest.mark.parametrize("problem", [OverloadedError("full"), RuntimeError("bug")])
@pytest.mark.parametrize("first", [0, 1], ids=["acks first", "pop first"])
async def test_the_results_of_acks_are_told_although_the_pop_fails(
    http: httpx.AsyncClient, engine: Script, problem: Exception, first: int
) -> None:
    asking = asked(http)
    jobs = [await engine.job(0, JobType.ACK), await engine.job(1, JobType.POP)]
    for number in (first, 1 - first):
        if number:
            jobs[1].future.set_exception(problem)
        else:
            jobs[0].future.set_result(DONE)
        await asyncio.sleep(0)
    response = await asking
    answer = response.json()
    assert (response.status_code, answer["pop"]) == (200, None)
    assert [result["success"] for result in answer["acknowledgments"]] == [True]
    assert answer["problem"]["status"] == (503 if isinstance(problem, QueenError) else 500)


@checks("G-ACK-8", level=Level.MODEL)
@pytest.mark.parametrize("late", [True, False])
async def test_acks_that_fail_are_an_error_and_what_the_pop_found_is_released(
    http: httpx.AsyncClient, engine: Script, late: bool
) -> None:
    asking = asked(http)
    popping = await engine.job(1, JobType.POP)
    if not late:
        popping.future.set_result(FOUND)
    engine.jobs[0].future.set_exception(DatabaseUnavailableError("down"))
    assert (await asking).status_code == 503
    assert engine.abandoned == [popping]
    if late:
        popping.future.set_result(FOUND)
    await engine.job(2, JobType.CUSTOM)


async def test_an_auto_ack_pop_is_made_when_the_acks_are_done(http: httpx.AsyncClient, engine: Script) -> None:
    asking = asked(http, autoAck=True)
    acking = await engine.job(0, JobType.ACK)
    await asyncio.sleep(0)
    assert len(engine.jobs) == 1
    acking.future.set_result(DONE)
    (await engine.job(1, JobType.POP)).future.set_result(Popped())
    assert (await asking).json()["pop"] is None


async def test_long_polls_hold_no_memory(http: httpx.AsyncClient, engine: Script, room: Room) -> None:
    text = "x" * 10_000  # so that it takes all the room
    first = asked(http, wait=True, error=text)
    (await engine.job(0, JobType.ACK)).future.set_result(DONE)
    second = asked(http, wait=True, error=text)
    (await engine.job(2, JobType.ACK)).future.set_result(DONE)
    for number in (1, 3):
        (await engine.job(number, JobType.POP)).future.set_result(FOUND)
    assert [(await each).status_code for each in (first, second)] == [200, 200]
    assert await asyncio.wait_for(room.enter(b"x" * 10_000), 60)


async def test_without_a_group_of_its_own_the_pop_has_that_of_the_acks(http: httpx.AsyncClient, engine: Script) -> None:
    groups = []
    for number, own in enumerate([{}, {"consumerGroup": "other"}, {"consumerGroup": ""}]):
        body = {"acknowledgments": [], "consumerGroup": "g", "pop": {"queue": "q", **own}}
        asking = asyncio.create_task(http.post("/ack", json=body))
        popping = await engine.job(number, JobType.POP)
        groups.append(popping.request.group)
        popping.future.set_result(Popped())
        assert (await asking).json() == {"acknowledgments": [], "pop": None}
    assert groups == ["g", "other", "__QUEUE_MODE__"]
