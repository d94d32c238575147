"""The requests that the replay holds back: their partitions, their order, and when each is tried again.

Pure; times are arguments, in seconds.
"""

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush

import msgspec

from queen.core.errors import TooSlowError
from queen.engine.replay_lanes import Batch, Lane, Unit, batches_of
from queen.spool.format import Record
from queen.spool.held import BEHIND, Held, Partition

#: Time limits of a call: the first, which finds the slow requests; the next one; and the longest.
_QUICK_S, _LONG_S, _LIMIT_MAX_S = 1.0, 30.0, 3600.0
#: The pause after a failure: the first, and the longest.
_PAUSE_S, _PAUSE_MAX_S = 1.0, 60.0
#: Lanes under way at the same time: with the first limit, and with a longer one. Other lanes need connections, too.
_QUICK_AT_ONCE, _LONG_AT_ONCE = 2, 2


class HeldLane:
    """A lane that is held back, and how far it is stored.

    Attributes:
        lane: its units push to ``partitions``.
        done: the number of stored units.
        limit_s: the time limit of its next call.
        due_at: when that call may begin.
        failures: of its first unit that is not stored.
        before: the number of its partitions in which another lane is first.
    """

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.partitions = frozenset[Partition]().union(*[unit.partitions for unit in lane.units])
        self.done = 0
        self.limit_s = _QUICK_S
        self.due_at = 0.0
        self.failures = 0
        self.before = 0
        self._alone = self._certain = False

    @property
    def over(self) -> bool:
        """Whether all of it is stored."""
        return self.done >= len(self.lane.units)

    def next_batch(self, requests_max: int) -> Batch:
        """The next batch: a single request after a call of several has failed."""
        if self._certain:
            return Batch(self.done, self.lane.units[self.done : self.done + 1])
        return next(batches_of(self.lane.units, self.done, 1 if self._alone else requests_max))

    def try_alone(self, *, certain: bool) -> None:
        """Makes the next requests be stored one by one; ``certain``: no earlier call has stored any of them."""
        self._alone, self._certain = True, certain

    def advance(self, upto: int) -> None:
        """Notes that units are stored up to this number."""
        if upto > self.done:
            self.done, self.failures, self.limit_s = upto, 0, _QUICK_S
            self._alone = self._certain

    def fail(self, problem: Exception, now: float) -> None:
        """Notes that its first unit could not be stored. Only if it was too slow, without a lock, it gets more time."""
        self.failures += 1
        if isinstance(problem, TooSlowError) and not problem.lock:
            self.limit_s = min(max(2 * self.limit_s, _LONG_S), _LIMIT_MAX_S)
        self.rest(now)

    def rest(self, now: float) -> None:
        """Sets the pause before the next call."""
        self.due_at = now + min(_PAUSE_S * 2 ** min(self.failures, 10), _PAUSE_MAX_S)


class HeldBack:
    """All held-back requests, as the process that replays knows them.

    A partition is held back from its first held-back request until none is left.

    Attributes:
        released: whether a partition is no longer held back, and workers do not know that yet.
        listed: by file that is being replayed, the numbers of its requests that are in the held-back file.
    """

    def __init__(self) -> None:
        self.released = True
        self.listed: dict[str, set[int]] = {}
        self._moving: dict[str, set[Partition]] = {}
        #: The lanes of each partition, in order; how many are left of each file.
        self._lanes: dict[Partition, deque[HeldLane]] = {}
        self._left: Counter[str] = Counter()
        #: Lanes that are first in all their partitions: by the time at which they are due; and those that are due, by
        #: failures, separately for long limits. A unique number breaks ties.
        self._resting: list[tuple[float, int, HeldLane]] = []
        self._due: dict[bool, list[tuple[int, int, HeldLane]]] = {False: [], True: []}
        self._number = 0
        #: Lanes under way, and whether with a long limit.
        self._running: dict[HeldLane, bool] = {}
        self._counts: Counter[Partition] = Counter()
        self._files: set[str] = set()
        self._held: dict[Partition, Held] = {}
        self._done: dict[str, list[Lane]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    @property
    def held(self) -> Mapping[Partition, Held]:
        """The partitions that are held back."""
        return dict(self._held)

    @property
    def moving(self) -> Sequence[str]:
        """The files that are being replayed and have held-back requests."""
        return list(self._moving)

    def behind(self, name: str, batch: Batch) -> list[Unit]:
        """The units of a batch that are held back: listed ones, those to held-back partitions, and those behind them.

        Requests of one earlier call stay together.
        """
        if not self._held:
            return []
        listed, joined = self.listed.get(name, set()), set[Partition]()
        waiting = []
        for unit in batch.units:
            partitions = unit.partitions
            if unit.number in listed or not joined.isdisjoint(partitions) or self._held.keys() & partitions:
                waiting.append(unit)
                joined |= partitions
        return list(batch.units) if waiting and batch.doubtful else waiting

    def hold(self, name: str, units: Collection[Unit], reason: str, since: float) -> None:
        """Holds back requests of a file; ``since`` is in seconds since 1970."""
        self.listed.setdefault(name, set()).update(unit.number for unit in units)
        moving = self._moving.setdefault(name, set())
        for partition in frozenset[Partition]().union(*[unit.partitions for unit in units]) - moving:
            moving.add(partition)
            self._counts[partition] += 1
            self._held.setdefault(partition, Held(*partition, since, reason))

    def knows(self, name: str) -> bool:
        """Whether the lanes of a file have been added, and the file is not removed yet."""
        return name in self._files

    def add(self, name: str, lanes: Sequence[Lane], known: Mapping[Partition, Held], since: float) -> None:
        """Adds the lanes of a file that is complete, behind all others."""
        self._files.add(name)
        for lane in lanes:
            held = HeldLane(lane)
            self._left[name] += 1
            for partition in held.partitions:
                queue = self._lanes.setdefault(partition, deque())
                held.before += bool(queue)
                queue.append(held)
            if not held.before:
                self._rest(held)
            reason = next((unit.record.reason for unit in lane.units if isinstance(unit.record, Record)), BEHIND)
            for partition in held.partitions:
                self._counts[partition] += 1
                self._held.setdefault(partition, known.get(partition, Held(*partition, since, reason)))

    def moved(self, name: str) -> None:
        """Notes that a file has been replayed except for its held-back requests."""
        self.listed.pop(name, None)
        self._leave(self._moving.pop(name, set()))

    def start(self, now: float) -> list[HeldLane]:
        """Starts lanes that are due and first in all their partitions; those with the fewest failures first."""
        while self._resting and self._resting[0][0] <= now:
            _, number, lane = heappop(self._resting)
            heappush(self._due[lane.limit_s > _QUICK_S], (lane.failures, number, lane))
        started = []
        for is_long, at_once in (False, _QUICK_AT_ONCE), (True, _LONG_AT_ONCE):
            free = at_once - sum(each is is_long for each in self._running.values())
            while free > 0 and self._due[is_long]:
                lane = heappop(self._due[is_long])[2]
                self._running[lane] = is_long
                started.append(lane)
                free -= 1
        return started

    def stop(self, lane: HeldLane) -> None:
        """Notes that a lane is no longer under way; if it is not finished, it is due again at ``due_at``."""
        if self._running.pop(lane, None) is not None:
            self._rest(lane)

    def _rest(self, lane: HeldLane) -> None:
        self._number += 1
        heappush(self._resting, (lane.due_at, self._number, lane))

    def explain(self, lane: HeldLane, reason: str) -> bool:
        """Sets the reason for which the partitions of a lane are held back; returns whether it has changed."""
        changed = False
        for partition in lane.partitions:
            held = self._held[partition]
            changed |= held.reason != reason
            self._held[partition] = msgspec.structs.replace(held, reason=reason)
        return changed

    def finish(self, lane: HeldLane) -> list[Lane] | None:
        """Notes that a lane is stored; returns all lanes of its file if that was the last one."""
        del self._running[lane]
        for partition in lane.partitions:
            queue = self._lanes[partition]
            queue.popleft()
            if not queue:
                del self._lanes[partition]
                continue
            queue[0].before -= 1
            if not queue[0].before:
                self._rest(queue[0])
        self._leave(lane.partitions)
        name = lane.lane.name
        self._done.setdefault(name, []).append(lane.lane)
        self._left[name] -= 1
        if self._left[name]:
            return None
        del self._left[name]
        return self._done.pop(name)

    def gone(self, name: str) -> None:
        """Notes that a file was removed because all of it is stored."""
        self._files.discard(name)

    def _leave(self, partitions: Collection[Partition]) -> None:
        for partition in partitions:
            self._counts[partition] -= 1
            if not self._counts[partition]:
                del self._counts[partition], self._held[partition]
                self.released = True
