"""Which databases the router asks for a pop, one after another, and what it waits for."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from queen.core.job_type import JobType
from queen.core.placement import first_list
from queen.engine.job import Job
from queen.engine.job_specs import JOB_SPECS
from queen.log.requests import Claim, Pop, Popped
from queen.shards.homes import Homes
from queen.shards.router import Router, Shards

FOUND = Popped(UUID(int=1), [Claim(1, "q", "p", 0, frozenset(), -1, 1, [])])


class Engine:
    """Has messages or not; or does not answer at all, as one whose database has just failed."""

    def __init__(self, router: Router, behaviour: str) -> None:
        self.router, self.behaviour = router, behaviour
        self.asked: list[Job] = []

    def accept(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self.asked.append(job)
            if self.behaviour == "messages":
                self.router.answered(job, FOUND)
            elif self.behaviour == "empty" and not job.request.wait_ms:
                self.router.answered(job, Popped())
            elif self.behaviour == "empty" and job.on_park is not None:
                job.on_park()

    def abandon(self, job: Job) -> None:
        self.router.answered(job, Popped())


def context(*, unavailable: bool) -> SimpleNamespace:
    """Of a database on which the group has begun, unless it is down."""
    cache = SimpleNamespace(known_group=lambda *_names: None if unavailable else 1)
    return SimpleNamespace(unavailable=unavailable, cache=cache)


async def pop_over(behaviours: Sequence[str], wait_ms: int) -> tuple[Popped, list[Engine]]:
    """The answer to a pop, and the engines that were asked."""
    router = Router(lambda job, result: job.future.set_result(result))
    engines = {slot: Engine(router, each) for slot, each in enumerate(behaviours)}
    contexts: Any = {slot: context(unavailable=each == "down") for slot, each in enumerate(behaviours)}
    homes = Homes(first_list([f"db{slot}" for slot in engines], []), contexts, 10)
    router.begin(Shards(engines, contexts, homes, lambda work: work, JOB_SPECS))  # type: ignore[arg-type]
    job = Job(JobType.POP, Pop("q", wait_ms=wait_ms), asyncio.get_running_loop().create_future())
    router.accept([job])
    async with asyncio.timeout(30):
        asked = [engine for engine in engines.values() if engine.behaviour != "down"]
        while not all(engine.asked for engine in asked) and not job.future.done():
            await asyncio.sleep(0)
        if "messages" not in behaviours and wait_ms:
            for _ in range(100):  # in which it could ask others
                await asyncio.sleep(0)
            router.abandon(job)
            return Popped(), list(engines.values())
        return await job.future, list(engines.values())


@pytest.mark.parametrize("wait_ms", [0, 1000])
def test_a_pop_asks_each_database_once(wait_ms: int) -> None:
    popped, engines = asyncio.run(pop_over(["empty"] * 3, wait_ms))
    assert not popped.claims
    assert [len(engine.asked) for engine in engines] == [1, 1, 1]


@pytest.mark.parametrize("wait_ms", [0, 1000])
def test_a_pop_ends_at_the_first_messages(wait_ms: int) -> None:
    popped, engines = asyncio.run(pop_over(["empty", "messages", "empty"], wait_ms))
    assert popped.claims
    assert [len(engine.asked) for engine in engines] == [1, 1, 0]


def test_a_long_poll_goes_on_if_a_database_does_not_answer() -> None:
    popped, engines = asyncio.run(pop_over(["silent", "messages", "empty"], 1000))
    assert popped.claims
    assert [len(engine.asked) for engine in engines] == [1, 1, 0]


def test_a_long_poll_lets_no_group_begin_on_a_database_that_is_down() -> None:
    """It would begin there when the database is back, and miss what was pushed in the meantime."""
    _, engines = asyncio.run(pop_over(["empty", "down", "empty"], 1000))
    assert [len(engine.asked) for engine in engines] == [1, 0, 1]
