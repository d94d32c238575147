"""A synthetic database with a knee: up to this many calls in flight run at full speed, more share its capacity."""

import heapq
import random
from collections.abc import Callable

from queen.core.concurrency import Limiter


class Knee:
    """A database with ``base_ms`` of service time per call and ``knee`` calls at once.

    Beyond the knee all calls slow down in proportion, so that more calls in flight only add waiting time.
    """

    def __init__(self, knee: int, base_ms: float, scatter: float) -> None:
        self.knee, self.base_ms, self.scatter = knee, base_ms, scatter

    def rtt_ms(self, in_flight: int, choice: random.Random) -> float:
        """The duration of a call that is one of this many in flight."""
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
        limiter: to simulate.
        database: of the simulation.
        seconds: simulated duration.
        seed: makes a run repeatable.
        at: is called with the time before each call ends, to change the database.
        size: jobs per call; a call with twice as many takes 50 % longer.
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
