"""What many databases cost, by simulation: where partitions are placed, and which databases pops ask (docs/shards.md).

``python -m bench.shards`` prints the tables of docs/shards-at-scale.md. No database takes part. Placement is the real
code; pops follow the rules of ``queen.shards.router`` and ``queen.engine.waiters``.
"""

import heapq
import random
import time
from collections import Counter, deque
from itertools import count

from msgspec import structs

from queen.core.placement import ShardList, first_list, with_added
from queen.main import LINGER_S

#: Numbers of databases.
SIZES = (1, 3, 10, 30, 100)
_SEED = 20261126
_NAMES = 20_000
_MESSAGES = 20_000


def grown(size: int) -> ShardList:
    """A list that began with one database and got the others one by one."""
    known = first_list(["db0"], [])
    for number in range(1, size):
        added = with_added(known, f"db{number}")
        known = structs.replace(added, opened=added.version)
    return known


def placement(size: int) -> tuple[float, float, float, float]:
    """What the columns of the first table say, in their order."""
    fresh, old = first_list([f"db{number}" for number in range(size)], []), grown(size)
    names = [f"customer-{number}" for number in range(_NAMES)]
    began = time.perf_counter()
    homes = [fresh.home("orders", name) for name in names]
    took_us = (time.perf_counter() - began) / _NAMES * 1e6
    asked = sum(len(old.candidates("orders", name)) for name in names[:200]) / 200
    more = with_added(fresh, "new")
    moved = sum(more.home("orders", name) == "new" for name in names) / _NAMES
    return took_us, max(Counter(homes).values()) * size / _NAMES, asked, moved


class Pops:
    """Consumers of one worker that pop with a wait, one message at a time, from many databases.

    Args:
        size: the number of databases.
        consumers: each works for 1 second per message on average.
        load: the share of time for which they work.
    """

    def __init__(self, size: int, consumers: int, load: float) -> None:
        self._random = random.Random(f"{_SEED} {size} {consumers} {load}")
        self._size, self._rate, self._left = size, consumers * load, _MESSAGES
        self._ready: list[int] = [0] * size
        self._parked: list[deque[int]] = [deque() for _ in range(size)]
        #: Until when a database is known to have nothing, unless a notification comes.
        self._empty = [0.0] * size
        self._waits: set[int] = set()
        self._events: list[tuple[float, int, int]] = []
        self._serial = count()
        self._turn = 0
        self.calls = self.delivered = 0
        for consumer in range(consumers):
            self._plan(0.0, consumer)
        self._plan(0.0, -1)

    def _plan(self, at: float, who: int) -> None:
        heapq.heappush(self._events, (at, next(self._serial), who))

    def run(self) -> float:
        """Calls of the procedure of pops per message."""
        while self._left:
            now, _, who = heapq.heappop(self._events)
            if who < 0:
                self._arrive(now)
                self._plan(now + self._random.expovariate(self._rate), -1)
            else:
                self._pop(now, who)
        return self.calls / self.delivered

    def _deliver(self, now: float, consumer: int) -> None:
        self.delivered += 1
        self._left -= 1
        self._plan(now + self._random.expovariate(1.0), consumer)

    def _arrive(self, now: float) -> None:
        """A message is stored: the long poll that has waited longest on its database gets it, with one call."""
        slot = self._random.randrange(self._size)
        self._empty[slot] = 0.0
        while self._parked[slot]:
            consumer = self._parked[slot].popleft()
            if consumer in self._waits:
                self._end_wait(consumer)
                self.calls += 1
                self._deliver(now, consumer)
                return
        self._ready[slot] += 1

    def _end_wait(self, consumer: int) -> None:
        self._waits.discard(consumer)
        for parked in self._parked:
            if consumer in parked:
                parked.remove(consumer)

    def _pop(self, now: float, consumer: int) -> None:
        """Looks at one database after another, and waits on those without messages.

        Where others wait, or where nothing has come since a look, it waits without one.
        """
        self._turn += 1
        for number in range(self._size):
            slot = (self._turn + number) % self._size
            if not self._parked[slot] and self._empty[slot] <= now:
                self.calls += 1
                if self._ready[slot]:
                    self._ready[slot] -= 1
                    for parked in self._parked:
                        if consumer in parked:
                            parked.remove(consumer)
                    self._deliver(now, consumer)
                    return
                self._empty[slot] = now + LINGER_S
            self._parked[slot].append(consumer)
        self._waits.add(consumer)


def main() -> None:
    """Prints both tables."""
    print("| databases | µs per name | fullest / mean | asked after growth from 1 | share of one more |")
    print("|---|---|---|---|---|")
    for size in SIZES:
        took_us, fullest, asked, moved = placement(size)
        print(f"| {size} | {took_us:.1f} | {fullest:.2f} | {asked:.1f} | {moved:.3f} |")
    print("\n| databases | consumers of a worker | load 0.1 | load 0.5 | load 0.9 |\n|---|---|---|---|---|")
    for size in SIZES:
        for consumers in (1, 10, 100):
            rates = [Pops(size, consumers, load).run() for load in (0.1, 0.5, 0.9)]
            print(f"| {size} | {consumers} | {' | '.join(f'{rate:.1f}' for rate in rates)} |")


if __name__ == "__main__":
    main()
