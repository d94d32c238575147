"""What the replay stores side by side and in one call: units, lanes, batches. Pure."""

from collections.abc import Hashable, Iterator, Sequence
from uuid import UUID, uuid5

from msgspec import Struct

from queen.core.limits import REPLAY_LANES
from queen.core.operations import Push
from queen.spool.format import Damage, Record, SpooledLot, SpoolFile, request_of
from queen.spool.held import Partition

#: So that PostgreSQL and this process find what they copy in their caches.
_CALL_BYTES = 1 << 20


class Unit(Struct, frozen=True):
    """One push request of a file, by its number in it; ``request`` is ``None`` where the file is damaged."""

    place: int
    record: Record | Damage
    lots: list[SpooledLot]

    @property
    def request(self) -> Push:
        """The request."""
        return request_of(self.lots)

    @property
    def partitions(self) -> frozenset[Partition]:
        """The partitions that it pushes to."""
        return frozenset([(lot.queue, lot.partition) for lot in self.lots])

    @property
    def messages(self) -> int:
        """How many messages it holds."""
        return sum(len(lot.lengths) // 4 for lot in self.lots)

    @property
    def bytes(self) -> int:
        """About how large it is."""
        return sum(len(lot.body) for lot in self.lots)


class Lane(Struct, frozen=True):
    """Requests of a file that are replayed one after the other, beside those of other lanes.

    Attributes:
        name: of the file, in the folder.
        file: what it is a part of.
        position: by which PostgreSQL knows how far it is stored; ``None`` if the file has no header.
        units: in the order of the file.
    """

    name: str
    file: SpoolFile
    position: UUID | None
    units: Sequence[Unit]


class Batch(Struct, frozen=True):
    """Units of a lane that one call stores.

    Attributes:
        begin: how many units of the lane come before them.
        units: at least one.
        doubtful: their record was sent to PostgreSQL before, all of it.
        fenced: whether nothing can be stored any more that was sent for this place of the lane before.
        held_back: the numbers in the file of those that are not stored but held back.
    """

    begin: int
    units: Sequence[Unit]
    doubtful: Record | None = None
    fenced: bool = False
    held_back: frozenset[int] = frozenset()

    @property
    def position(self) -> int:
        """Where the lane is in PostgreSQL: so many units are stored, or the one's complement of that when fenced."""
        return ~self.begin if self.fenced else self.begin

    @property
    def stored(self) -> Sequence[Unit]:
        """Those that the call stores."""
        return [unit for unit in self.units if unit.place not in self.held_back]

    @property
    def upto(self) -> int:
        """How many units of the lane are stored with it."""
        return self.begin + len(self.units)


def units_of(file: SpoolFile) -> list[Unit]:
    """The requests of a file; damage counts as one."""
    units: list[Unit] = []
    for record in file.records:
        requests: Sequence[list[SpooledLot]] = [[]] if isinstance(record, Damage) else record.requests
        units += [Unit(len(units) + number, record, lots) for number, lots in enumerate(requests)]
    return units


def held_units_of(file: SpoolFile) -> list[Unit]:
    """The requests of a file of what is held back, in the order in which they were pushed, each once; then damage."""
    units: dict[int, Unit] = {}
    for record in file.records:
        if isinstance(record, Damage):
            units[~record.start] = Unit(~record.start, record, [])
            continue
        for place, lots in enumerate(record.requests, record.place):
            units.setdefault(place, Unit(place, record, lots))
    return sorted(units.values(), key=lambda unit: (unit.place < 0, unit.place))


class _Groups:
    """What belongs together, because something else belongs to both (a disjoint-set forest)."""

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
        """These are in one group from now on."""
        for member in members[1:]:
            self._above[self.of(member)] = self.of(members[0])


def _ties(unit: Unit) -> list[Hashable]:
    """What a unit shares with others of its lane: partitions, and the call in which they were sent before."""
    record = unit.record
    sent = [record.flush] if isinstance(record, Record) and record.sent_at is not None else []
    return [*((lot.queue, lot.partition) for lot in unit.lots), *sent]


def _groups_of(units: Sequence[Unit]) -> list[Hashable]:
    """The name of the group of each unit: none shares a partition with another group, or a call that was sent."""
    groups = _Groups()
    ties = [_ties(unit) for unit in units]
    for each in ties:
        groups.join(each)
    return [groups.of(each[0]) if each else None for each in ties]


def lanes_of(units: Sequence[Unit], number: int = REPLAY_LANES) -> list[list[Unit]]:
    """Deals units out to lanes of about the same size: no partition is in two, and no call that was sent before.

    The same units are always dealt out the same way.
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
    return lanes


def held_lanes_of(name: str, file: SpoolFile) -> list[Lane]:
    """The lanes of a file of what is held back: each group of partitions has its own, and so its own time."""
    lanes: dict[Hashable, list[Unit]] = {}
    units = held_units_of(file)
    for unit, group in zip(units, _groups_of(units), strict=True):
        lanes.setdefault(group, []).append(unit)
    return [
        Lane(name, file, uuid5(file.header.file, f"held from {units[0].place}") if file.header else None, units)
        for units in lanes.values()
    ]


def batches_of(units: Sequence[Unit], begin: int, requests_max: int) -> Iterator[Batch]:
    """The units of a lane from one on, in their order; a record of unknown outcome alone, damage alone."""
    gathered: list[Unit] = []
    size = 0
    number = begin
    while number < len(units):
        unit = units[number]
        record = unit.record
        whole = isinstance(record, Record) and record.sent_at is not None
        alone = whole or isinstance(record, Damage)
        if gathered and (alone or len(gathered) >= requests_max or size >= _CALL_BYTES):
            yield Batch(number - len(gathered), gathered)
            gathered, size = [], 0
        if alone:
            members = [each for each in units[number:] if each.record is record] if whole else [unit]
            # Not all of it is left: the others were stored one by one, because the whole was refused.
            complete = isinstance(record, Record) and len(members) == len(record.requests)
            yield Batch(number, members, record if isinstance(record, Record) and complete else None)
            number += len(members)
            continue
        gathered.append(unit)
        size += unit.bytes
        number += 1
    if gathered:
        yield Batch(number - len(gathered), gathered)
