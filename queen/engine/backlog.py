"""What the replay holds back: which partitions, what waits in them, and when it is tried again.

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

#: Limits of a call: the first, which tells innocent requests from slow ones, and the longer ones, up to the longest.
_QUICK_S, _PATIENT_S, _LIMIT_MAX_S = 1.0, 30.0, 3600.0
#: How long a lane rests after a failure: at first, and at most.
_PAUSE_S, _PAUSE_MAX_S = 1.0, 60.0
#: Lanes under way at the same time: with a quick limit, and with a longer one. The other lanes need connections, too.
_QUICK_AT_ONCE, _PATIENT_AT_ONCE = 2, 2


class HeldLane:
    """A lane that is held back, and how it went so far.

    Attributes:
        lane: its units push to ``partitions``.
        done: units that are stored.
        limit_s: of its next call.
        due_at: when that may begin.
        failures: of its first unit that is not stored.
        before: in how many of its partitions other lanes wait before it.
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
        """What is to be stored next: one request where a call of several has failed."""
        if self._certain:
            return Batch(self.done, self.lane.units[self.done : self.done + 1])
        return next(batches_of(self.lane.units, self.done, 1 if self._alone else requests_max))

    def try_alone(self, *, certain: bool) -> None:
        """The next requests are stored one by one; ``certain``: none of them was stored when they were sent before."""
        self._alone, self._certain = True, certain

    def advance(self, upto: int) -> None:
        """So many units are stored."""
        if upto > self.done:
            self.done, self.failures, self.limit_s = upto, 0, _QUICK_S
            self._alone = self._certain

    def fail(self, problem: Exception, now: float) -> None:
        """Its first unit could not be stored. Only one that is too slow by itself gets more time."""
        self.failures += 1
        if isinstance(problem, TooSlowError) and not problem.lock:
            self.limit_s = min(max(2 * self.limit_s, _PATIENT_S), _LIMIT_MAX_S)
        self.rest(now)

    def rest(self, now: float) -> None:
        """Gives PostgreSQL a pause."""
        self.due_at = now + min(_PAUSE_S * 2 ** min(self.failures, 10), _PAUSE_MAX_S)


class Backlog:
    """All that one process holds back, while it replays.

    A partition is held back from the first request in it that is, until none is left.

    Attributes:
        released: whether a partition was let go of which workers have not been told.
        listed: by file that is being replayed, the numbers of its requests that are on the disk as held back.
    """

    def __init__(self) -> None:
        self.released = True
        self.listed: dict[str, set[int]] = {}
        self._moving: dict[str, set[Partition]] = {}
        #: The lanes of each partition, in order; how many are left of each file.
        self._lanes: dict[Partition, deque[HeldLane]] = {}
        self._left: Counter[str] = Counter()
        #: Lanes that have nothing before them, by when they are due; and those that are due, apart the patient ones, by
        #: their failures. With a number that no other has.
        self._resting: list[tuple[float, int, HeldLane]] = []
        self._due: dict[bool, list[tuple[int, int, HeldLane]]] = {False: [], True: []}
        self._number = 0
        #: Lanes under way, and whether as patient ones.
        self._running: dict[HeldLane, bool] = {}
        self._waits: Counter[Partition] = Counter()
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
        """The files of which something is held back and that are being replayed."""
        return list(self._moving)

    def behind(self, name: str, batch: Batch) -> list[Unit]:
        """Which units of a batch are held back: those on the disk, those to partitions that are, and what joins them.

        What was sent together stays together.
        """
        if not self._held:
            return []
        listed, joined = self.listed.get(name, set()), set[Partition]()
        waiting = []
        for unit in batch.units:
            partitions = unit.partitions
            if unit.place in listed or not joined.isdisjoint(partitions) or self._held.keys() & partitions:
                waiting.append(unit)
                joined |= partitions
        return list(batch.units) if waiting and batch.doubtful else waiting

    def hold(self, name: str, units: Collection[Unit], reason: str, since: float) -> None:
        """Requests of a file are held back from now on; ``since`` in seconds since 1970."""
        self.listed.setdefault(name, set()).update(unit.place for unit in units)
        moving = self._moving.setdefault(name, set())
        for partition in frozenset[Partition]().union(*[unit.partitions for unit in units]) - moving:
            moving.add(partition)
            self._waits[partition] += 1
            self._held.setdefault(partition, Held(*partition, since, reason))

    def knows(self, name: str) -> bool:
        """Whether the lanes of a file have been added, and the file is not gone yet."""
        return name in self._files

    def add(self, name: str, lanes: Sequence[Lane], known: Mapping[Partition, Held], since: float) -> None:
        """The lanes of a file that grows no more, behind all others."""
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
                self._waits[partition] += 1
                self._held.setdefault(partition, known.get(partition, Held(*partition, since, reason)))

    def moved(self, name: str) -> None:
        """A file has been replayed but for what is held back of it."""
        self.listed.pop(name, None)
        self._leave(self._moving.pop(name, set()))

    def start(self, now: float) -> list[HeldLane]:
        """The lanes that begin now: nothing of their partitions waits before them. Those that failed least first."""
        while self._resting and self._resting[0][0] <= now:
            _, number, lane = heappop(self._resting)
            heappush(self._due[lane.limit_s > _QUICK_S], (lane.failures, number, lane))
        started = []
        for patient, at_once in (False, _QUICK_AT_ONCE), (True, _PATIENT_AT_ONCE):
            free = at_once - sum(each is patient for each in self._running.values())
            while free > 0 and self._due[patient]:
                lane = heappop(self._due[patient])[2]
                self._running[lane] = patient
                started.append(lane)
                free -= 1
        return started

    def stop(self, lane: HeldLane) -> None:
        """A lane is no longer under way; if it is not finished, it is due again at its time."""
        if self._running.pop(lane, None) is not None:
            self._rest(lane)

    def _rest(self, lane: HeldLane) -> None:
        self._number += 1
        heappush(self._resting, (lane.due_at, self._number, lane))

    def explain(self, lane: HeldLane, reason: str) -> bool:
        """Why the partitions of a lane are held back now; whether that is news."""
        changed = False
        for partition in lane.partitions:
            held = self._held[partition]
            changed |= held.reason != reason
            self._held[partition] = msgspec.structs.replace(held, reason=reason)
        return changed

    def finish(self, lane: HeldLane) -> list[Lane] | None:
        """A lane is stored; all lanes of its file if none of them is left."""
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
        """A file of which all is stored was removed."""
        self._files.discard(name)

    def _leave(self, partitions: Collection[Partition]) -> None:
        for partition in partitions:
            self._waits[partition] -= 1
            if not self._waits[partition]:
                del self._waits[partition], self._held[partition]
                self.released = True
