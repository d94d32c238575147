"""A synthetic database with a knee: up to so many calls at a time cost nothing, more share what there is."""

import heapq
import random
from collections.abc import Callable

from queen.core.concurrency import Limiter


class Knee:
    """A database that gives each call ``base_ms`` of service, ``knee`` calls at a time.

    Beyond the knee all calls slow down in proportion, so that more in flight buys time in the queue and nothing else.
    """

    def __init__(self, knee: int, base_ms: float, scatter: float) -> None:
        self.knee, self.base_ms, self.scatter = knee, base_ms, scatter

    def rtt_ms(self, in_flight: int, choice: random.Random) -> float:
        """The time of a call that is one of so many."""
        noise = choice.lognormvariate(0.0, self.scatter) if self.scatter else 1.0
        return self.base_ms * max(1.0, in_flight / self.knee) * noise


def simulate(
    limiter: Limiter,
    database: Knee,
    seconds: float,
    seed: int,
    at: Callable[[float], None] = lambda _now: None,
    size: Callable[[random.Random], int] = lambda _choice: 50,
) -> list[tuple[float, int]]:
    """The limit over time, under a load that always uses all of it: (second, limit) after each call.

    Args:
        limiter: what is tried out.
        database: what it is tried out on.
        seconds: how long, in simulated time.
        seed: repeats a run.
        at: is called with the time before each call ends, to change the database.
        size: jobs in a call; a call of twice as many takes half as long again.
    """
    choice = random.Random(seed)
    now, started = 0.0, 0
    under_way: list[tuple[float, int, float, int, int]] = []
    trace: list[tuple[float, int]] = []
    while now < seconds:
        while len(under_way) < limiter.limit:
            jobs = size(choice)
            in_flight = len(under_way) + 1
            rtt_ms = database.rtt_ms(in_flight, choice) * (jobs / 50) ** 0.585
            started += 1
            heapq.heappush(under_way, (now + rtt_ms / 1000, started, rtt_ms, jobs, in_flight))
        now, _, rtt_ms, jobs, in_flight = heapq.heappop(under_way)
        at(now)
        limiter.sample(rtt_ms, jobs, in_flight, now)
        trace.append((now, limiter.limit))
    return trace
