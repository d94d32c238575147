"""A batch is bounded in jobs and in bytes, and no job is left behind or taken twice."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queen.core.batch_policy import BatchPolicy
from queen.core.job_type import JobType
from queen.engine.job import Job
from queen.engine.job_queue import JobQueue

POLICY = BatchPolicy(preferred=2, hold_ms=5, batch_max=4, in_flight_max=100, items_max=10, bytes_max=100)


@given(
    st.lists(
        st.tuples(st.sampled_from((None, "a", "b")), st.integers(0, 150), st.integers(0, 15)), min_size=1, max_size=30
    )
)
def test_batches_keep_their_bounds_and_take_every_job_once(arrivals: list[tuple[str | None, int, int]]) -> None:
    loop = asyncio.new_event_loop()
    job_queue, taken, jobs = JobQueue(POLICY), [], []
    for key, size, items in arrivals:
        job = Job(JobType.PUSH, None, loop.create_future(), key)
        job.size, job.items = size, items
        jobs.append(job)
        job_queue.put(job)
    while len(job_queue):
        batch = job_queue.take()
        assert 1 <= len(batch) <= POLICY.batch_max
        assert sum(job.size for job in batch[:-1]) < POLICY.bytes_max
        # One with more items is in a batch of its own.
        assert len(batch) == 1 or sum(job.items for job in batch) <= POLICY.items_max
        taken += batch
        job_queue.done({job.key for job in batch}, len(batch))
    assert sorted(map(id, taken)) == sorted(map(id, jobs))
    for key in (None, "a", "b"):
        assert [job for job in taken if job.key == key] == [job for job in jobs if job.key == key]
    loop.close()


def test_a_batch_is_filled_up_to_its_items_and_not_beyond() -> None:
    loop = asyncio.new_event_loop()
    job_queue = JobQueue(replace(POLICY, batch_max=100, items_max=1000, bytes_max=1 << 20))
    for items in (999, 2, 998, 1, 5000, 1):
        job = Job(JobType.PUSH, None, loop.create_future())
        job.items = items
        job_queue.put(job)
    batches = []
    while len(job_queue):
        batches.append(batch := job_queue.take())
        job_queue.done({job.key for job in batch}, len(batch))
    loop.close()
    assert [[job.items for job in batch] for batch in batches] == [[999], [2, 998], [1], [5000], [1]]


PIPELINES = BatchPolicy(preferred=50, hold_ms=20, batch_max=50, in_flight_max=4, linger_ms=2)


class Pipelines:
    """Clients that come again when they were answered, and a clock."""

    def __init__(self, policy: BatchPolicy = PIPELINES) -> None:
        self.loop = asyncio.new_event_loop()
        self.job_queue = JobQueue(policy)
        self.now = 100.0

    def come(self, number: int) -> None:
        for _ in range(number):
            job = Job(JobType.TRANSACTION, None, self.loop.create_future())
            job.since = self.now
            self.job_queue.put(job)

    def due_in_ms(self) -> float | None:
        return self.job_queue.due_in_ms(self.now)

    def call(self, *, beside: int = 0) -> int:
        """Takes what is due; so many come while the call is under way. How many shared it."""
        assert self.due_in_ms() == 0
        batch = self.job_queue.take()
        self.come(beside)
        self.job_queue.done({job.key for job in batch}, len(batch))
        return len(batch)


@pytest.fixture
def pipelines() -> Iterator[Pipelines]:
    made = Pipelines()
    yield made
    made.loop.close()


def test_a_lone_request_does_not_wait(pipelines: Pipelines) -> None:
    for _ in range(3):
        pipelines.come(1)
        assert pipelines.call() == 1


def test_clients_that_were_answered_are_waited_for_and_leave_together(pipelines: Pipelines) -> None:
    pipelines.come(1)
    assert pipelines.call(beside=3) == 1
    assert pipelines.due_in_ms() == 2, "the one that was answered may come again"
    pipelines.now += 0.001
    assert pipelines.due_in_ms() == pytest.approx(1)
    pipelines.come(1)
    assert pipelines.call() == 4
    pipelines.come(3)
    assert pipelines.due_in_ms() == 2
    pipelines.come(1)
    assert pipelines.call() == 4


def test_a_call_does_not_wait_for_requests_that_would_not_fit(pipelines: Pipelines) -> None:
    pipelines.come(50)
    assert pipelines.call(beside=50) == 50
    assert pipelines.call() == 50


def test_after_waiting_in_vain_more_and_more_calls_do_not_wait() -> None:
    pipelines, waited = Pipelines(replace(PIPELINES, preferred=1000, batch_max=1000)), []
    for call in range(200):
        pipelines.come(300 - call)  # fewer come each time than before
        if pipelines.due_in_ms():
            waited.append(call)
            pipelines.now += PIPELINES.linger_ms / 1000
        pipelines.call()
    pipelines.loop.close()
    assert waited == [1, 3, 7, 15, 31, 63, 127, 191]
