"""Which databases the router asks for a pop."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from queen.core.job_type import JobType
from queen.core.placement import first_list
from queen.engine.job import Job
from queen.engine.job_specs import JOB_SPECS
from queen.log.requests import Pop, Popped
from queen.shards.homes import Homes
from queen.shards.router import Router, Shards


class Engine:
    """Finds no messages: a pop that waits is parked, others are answered at once."""

    def __init__(self, router: Router, *, empty: bool) -> None:
        self.router, self.empty = router, empty
        self.accepted: list[int] = []

    def accept(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self.accepted.append(job.request.wait_ms)
            if not job.request.wait_ms:
                self.router.answered(job, Popped())

    def abandon(self, job: Job) -> None:
        self.router.answered(job, Popped())

    def seems_empty(self, _pop: Pop) -> bool:
        return self.empty


async def pop_over(empty: Sequence[bool], wait_ms: int) -> list[list[int]]:
    """The times for which each engine was asked to wait, in the order of the engines."""
    router = Router(lambda job, result: job.future.set_result(result))
    engines = {slot: Engine(router, empty=each) for slot, each in enumerate(empty)}
    cache = SimpleNamespace(known_group=lambda *_names: 1)
    contexts: Any = {slot: SimpleNamespace(unavailable=False, cache=cache) for slot in engines}
    homes = Homes(first_list([f"db{slot}" for slot in engines], []), contexts, 10)
    router.begin(Shards(engines, contexts, homes, lambda work: work, JOB_SPECS))  # type: ignore[arg-type]
    job = Job(JobType.POP, Pop("q", wait_ms=wait_ms), asyncio.get_running_loop().create_future())
    router.accept([job])
    while not all(engine.accepted for engine in engines.values()):
        await asyncio.sleep(0)
    if wait_ms:
        router.abandon(job)
    else:
        await job.future
    return [engine.accepted for engine in engines.values()]


@pytest.mark.parametrize("wait_ms", [0, 1000])
def test_a_pop_asks_every_database_before_it_waits(wait_ms: int) -> None:
    asked = asyncio.run(pop_over([False, False, False], wait_ms))
    assert [times[0] for times in asked] == [0, 0, 0]


def test_a_long_poll_does_not_ask_where_others_wait() -> None:
    asked = asyncio.run(pop_over([True, False, True], 1000))
    assert [times[0] > 0 for times in asked] == [True, False, True]


def test_a_pop_without_a_wait_asks_everywhere() -> None:
    asked = asyncio.run(pop_over([True, True, True], 0))
    assert asked == [[0], [0], [0]]
