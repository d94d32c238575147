"""How the replay divides a file: lanes, which are stored in parallel, and batches, each for one call. Pure."""

import time
from collections.abc import Hashable, Iterator, Sequence
from itertools import takewhile
from uuid import UUID, uuid5

from msgspec import Struct

from queen.core.limits import REPLAY_LANES
from queen.log.requests import Push
from queen.spool.format import Damage, Record, SpooledBatch, SpoolFile, request_of
from queen.spool.held import BEHIND, Partition

#: Small enough for the CPU caches of PostgreSQL and this process.
_CALL_BYTES = 1 << 20


class Unit(Struct, frozen=True):
    """One push request of a file, with its number in it; or damaged bytes, without batches."""

    number: int
    record: Record | Damage
    batches: list[SpooledBatch]

    @property
    def kind(self) -> str:
        """Whose request it is: that of all its batches."""
        return self.batches[0].kind if self.batches else ""

    @property
    def request(self) -> Push:
        """The request."""
        return request_of(self.batches)

    @property
    def partitions(self) -> frozenset[Partition]:
        """The partitions that it pushes to."""
        return frozenset([(batch.queue, batch.partition) for batch in self.batches])

    @property
    def written_at(self) -> float:
        """When it was written, in seconds since 1970; now, if that cannot be read."""
        return self.record.written_at if isinstance(self.record, Record) else time.time()

    @property
    def reason(self) -> str:
        """Why it is held back."""
        return self.record.reason if isinstance(self.record, Record) else BEHIND

    @property
    def messages(self) -> int:
        """How many messages it holds."""
        return sum(len(batch.lengths) // 4 for batch in self.batches)

    @property
    def bytes(self) -> int:
        """About how large it is."""
        return sum(len(batch.body) for batch in self.batches)


class Lane(Struct, frozen=True):
    """Requests of a file that are replayed one after another, in parallel with other lanes.

    Attributes:
        name: of the file, in the folder.
        file: the contents of the file.
        position: the id under which PostgreSQL keeps how far it is stored; ``None`` if the file has no header.
        units: in the order of the file.
    """

    name: str
    file: SpoolFile
    position: UUID | None
    units: Sequence[Unit]


class Batch(Struct, frozen=True):
    """Units of a lane that one call stores.

    Attributes:
        begin: the number of units before them in the lane.
        units: at least one.
        doubtful: their whole record, if it was sent to PostgreSQL before the outage, with an unknown outcome.
        fenced: whether earlier calls for this position of the lane can store nothing any more.
        held_back: the numbers of the units that the call skips because they are held back.
    """

    begin: int
    units: Sequence[Unit]
    doubtful: Record | None = None
    fenced: bool = False
    held_back: frozenset[int] = frozenset()

    @property
    def position(self) -> int:
        """The position of the lane in PostgreSQL: the number of stored units, or its one's complement if fenced."""
        return ~self.begin if self.fenced else self.begin

    @property
    def stored(self) -> Sequence[Unit]:
        """The units that the call stores."""
        return [unit for unit in self.units if unit.number not in self.held_back]

    @property
    def upto(self) -> int:
        """The number of units of the lane up to the end of this batch."""
        return self.begin + len(self.units)


def units_of(file: SpoolFile) -> list[Unit]:
    """The requests of a file; damage counts as one."""
    units: list[Unit] = []
    for record in file.records:
        requests: Sequence[list[SpooledBatch]] = [[]] if isinstance(record, Damage) else record.requests
        units += [Unit(len(units) + number, record, batches) for number, batches in enumerate(requests)]
    return units


def held_units_of(file: SpoolFile) -> list[Unit]:
    """The requests of a held-back file in the order in which they were pushed, each once; then damage."""
    units: dict[int, Unit] = {}
    for record in file.records:
        if isinstance(record, Damage):
            units[~record.start] = Unit(~record.start, record, [])
            continue
        for number, batches in enumerate(record.requests, record.number):
            units.setdefault(number, Unit(number, record, batches))
    return sorted(units.values(), key=lambda unit: (unit.number < 0, unit.number))


class _Groups:
    """Groups of members; members that were joined, directly or through others, share a group (disjoint-set forest)."""

    def __init__(self) -> None:
        self._above: dict[Hashable, Hashable] = {}

    def of(self, member: Hashable) -> Hashable:
        """The name of its group."""
        above = self._above
        while (upper := above.setdefault(member, member)) != member:
            above[member] = upper = above[upper]
            member = upper
        return member

    def join(self, members: Sequence[Hashable]) -> None:
        """Puts members into one group."""
        for member in members[1:]:
            self._above[self.of(member)] = self.of(members[0])


def _ties(unit: Unit) -> list[Hashable]:
    """What keeps units in one lane: their partitions, and an earlier call that had them."""
    record = unit.record
    sent = [record.flush] if isinstance(record, Record) and record.sent_at is not None else []
    return [*((batch.queue, batch.partition) for batch in unit.batches), *sent]


def _groups_of(units: Sequence[Unit]) -> list[Hashable]:
    """The group of each unit: units of different groups share no partition and no earlier call."""
    groups = _Groups()
    ties = [_ties(unit) for unit in units]
    for each in ties:
        groups.join(each)
    return [groups.of(each[0]) if each else None for each in ties]


def lanes_of(units: Sequence[Unit], number: int = REPLAY_LANES) -> list[list[Unit]]:
    """Divides units into lanes of about the same size, so that no partition and no earlier call is in two lanes.

    The same units are always divided in the same way. Pushes come first in a lane, because calls are of one kind.
    """
    names = _groups_of(units)
    sizes = dict.fromkeys(names, 0)
    for unit, name in zip(units, names, strict=True):
        sizes[name] += unit.bytes
    loads = [0] * number
    lanes: list[list[Unit]] = [[] for _ in loads]
    lane_of: dict[Hashable, list[Unit]] = {}
    for name, size in sizes.items():
        least = loads.index(min(loads))
        loads[least] += size
        lane_of[name] = lanes[least]
    for unit, name in zip(units, names, strict=True):
        lane_of[name].append(unit)
    for lane in lanes:
        lane.sort(key=lambda unit: bool(unit.kind))
    return lanes


def held_lanes_of(name: str, file: SpoolFile) -> list[Lane]:
    """The lanes of a held-back file: one per group of partitions, so that each is tried at its own time."""
    lanes: dict[Hashable, list[Unit]] = {}
    units = held_units_of(file)
    for unit, group in zip(units, _groups_of(units), strict=True):
        lanes.setdefault(group, []).append(unit)
    return [
        Lane(name, file, uuid5(file.header.file, f"held from {units[0].number}") if file.header else None, units)
        for units in lanes.values()
    ]


def batches_of(units: Sequence[Unit], begin: int, requests_max: int) -> Iterator[Batch]:
    """The batches of a lane from ``begin`` on.

    Damage is a batch of its own, and so is a record with an unknown outcome, or of another interface than pushes: its
    requests were sent at the same time.
    """
    gathered: list[Unit] = []
    size, number = 0, begin
    while number < len(units):
        alone = _alone(units, number)
        full = len(gathered) >= requests_max or size >= _CALL_BYTES
        if gathered and (alone is not None or full):
            yield Batch(number - len(gathered), gathered)
            gathered, size = [], 0
        if alone is not None:
            yield alone
            number = alone.upto
            continue
        gathered.append(units[number])
        size += units[number].bytes
        number += 1
    if gathered:
        yield Batch(number - len(gathered), gathered)


def _alone(units: Sequence[Unit], number: int) -> Batch | None:
    """The batch that begins with this unit, if the unit must not share a call with others."""
    record = units[number].record
    if isinstance(record, Damage):
        return Batch(number, [units[number]])
    if units[number].kind:
        return Batch(number, list(takewhile(lambda each: each.record is record, units[number:])))
    if record.sent_at is None:
        return None
    members = [each for each in units[number:] if each.record is record]
    # If some members are stored already, PostgreSQL refused the whole record, and it is stored one by one.
    return Batch(number, members, record if len(members) == len(record.requests) else None)
