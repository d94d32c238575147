"""A batch is bounded in jobs and in bytes, and no job is left behind or taken twice."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from queen.core.batch_policy import BatchPolicy
from queen.core.operations import JobType
from queen.engine.job import Job
from queen.engine.lane import Lane

POLICY = BatchPolicy(preferred=2, hold_ms=5, batch_max=4, in_flight_max=100, bytes_max=100)


@given(st.lists(st.tuples(st.sampled_from((None, "a", "b")), st.integers(0, 150)), min_size=1, max_size=30))
def test_batches_keep_their_bounds_and_take_every_job_once(arrivals: list[tuple[str | None, int]]) -> None:
    loop = asyncio.new_event_loop()
    lane, taken, jobs = Lane(POLICY), [], []
    for key, size in arrivals:
        job = Job(JobType.PUSH, None, loop.create_future(), key)
        job.size = size
        jobs.append(job)
        lane.put(job)
    while len(lane):
        batch = lane.take()
        assert 1 <= len(batch) <= POLICY.batch_max
        assert sum(job.size for job in batch[:-1]) < POLICY.bytes_max
        taken += batch
        lane.done(batch)
    assert sorted(map(id, taken)) == sorted(map(id, jobs))
    for key in (None, "a", "b"):
        assert [job for job in taken if job.key == key] == [job for job in jobs if job.key == key]
    loop.close()
