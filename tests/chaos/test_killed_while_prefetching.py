"""Workers that are killed or stopped while they hold what they have prefetched."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, Popped, open_client
from tests.support.clock import eventually
from tests.support.processes import Server, serving_workers

TRIES = 3


@pytest.fixture(scope="module")
def alone() -> Iterator[Server]:
    """A server with one worker: whatever is prefetched is there."""
    with serving_workers(1) as server:
        yield server


async def _next(server: Server, queue: str) -> Popped:
    """A pop of whichever worker there is, over a connection of its own."""
    async with open_client(server.port) as http:
        return await Api(http).pop(queue)


@checks("G-LEASE-7", "G-LEASE-5", level=Level.FAULTS)
async def test_the_next_worker_gives_back_what_a_killed_one_had_prefetched(alone: Server) -> None:
    for number in range(TRIES):
        queue = f"killed-{number}"
        async with open_client(alone.port) as http:
            api = Api(http)
            await api.configure(queue, leaseTime=3600)
            await api.push(queue, 0, 1)
            first = await api.pop(queue)
            await api.ack(first.messages)
            (worker,) = alone.workers()
            os.kill(worker, signal.SIGKILL)

        async def second() -> Popped | None:
            try:
                popped = await _next(alone, queue)  # noqa: B023 - awaited in the same turn
            except OSError:
                return None
            return popped if popped.messages else None

        (message,) = (await eventually(second, "the message comes, long before its lease ends")).messages
        assert (message["data"], message["deliveryAttempt"]) == (1, 1)


@checks("G-LEASE-1", "G-LEASE-3", level=Level.FAULTS)
async def test_a_worker_that_was_stopped_hands_out_nothing_whose_lease_is_over(alone: Server) -> None:
    async with open_client(alone.port) as http:
        api = Api(http)
        for number in range(TRIES):
            queue = f"stopped-{number}"
            await api.configure(queue, leaseTime=3)
            await api.push(queue, 0, 1)
            await api.ack((await api.pop(queue)).messages)
            (worker,) = alone.workers()
            os.kill(worker, signal.SIGSTOP)
            # The length of the fault: longer than the lease.
            await asyncio.sleep(3.5)
            os.kill(worker, signal.SIGCONT)
            (message,) = (await api.pop(queue)).messages
            assert message["data"] == 1
            assert (await api.ack([message]))[0]["success"], "it was handed out under a lease that was over"
