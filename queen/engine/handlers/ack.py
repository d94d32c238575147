"""ACK: what consumers say of many messages, gathered by cursor, one call."""

from collections import Counter
from collections.abc import Iterator, Sequence
from uuid import UUID

from msgspec import Struct

from queen.core import ids
from queen.core.operations import Ack, Acked, AckItem, AckResult
from queen.engine.context import Context
from queen.engine.ports import AckColumns, AckRow, Notice, PartitionName

_KINDS = {"completed": "c", "success": "c", "acked": "c", "ok": "c", "failed": "f", "retry": "r", "dlq": "d"}
_NO_LEASE = UUID(int=0)


class Spot(Struct, frozen=True):
    """Where the message of an ack is: its cursor, and its offset unless only the database knows it."""

    part_id: int
    grp_id: int
    offset: int | None
    name: PartitionName


def lease_of(text: str | None) -> UUID | None:
    """The lease that a client names; a text that is no lease id is a lease that does not exist."""
    if not text:
        return None
    try:
        return UUID(text)
    except ValueError:
        return _NO_LEASE


async def locate(context: Context, items: Sequence[AckItem]) -> list[Spot | str]:
    """The spot of each item, or the problem with it."""
    part_ids = [ids.parse_partition_id(item.partition_id) for item in items]
    names = await context.directory.names(part_id for part_id in part_ids if part_id is not None)
    spots: list[Spot | str] = []
    for item, part_id in zip(items, part_ids, strict=True):
        name = names.get(part_id) if part_id is not None else None
        spots.append(await _spot(context, item, name) if name is not None else "Message not found")
    return spots


async def _spot(context: Context, item: AckItem, name: PartitionName) -> Spot | str:
    if item.status not in _KINDS:
        return f"Unknown status: {item.status}"
    grp_id = await context.directory.group(name, item.group)
    if grp_id is None:
        return "Consumer group not found" if context.directory.knows(name.part_id) else "Message not found"
    place = ids.parse_message_id(item.transaction_id)
    offset = place[1] if place is not None and place[0] == name.part_id else None
    return Spot(name.part_id, grp_id, offset, name)


class AckElement(Struct):
    """One element of an ack call and the items that it speaks for, as (offset or ``None``, number of the item)."""

    items: list[tuple[int | None, int]]


class Gathered:
    """Acks as the columns of one call.

    With ``fuse`` neighbouring completed messages of a cursor are one element. Not in transactions, which have to name
    the one that failed.
    """

    def __init__(self, items: Sequence[AckItem], spots: Sequence[Spot | str], *, fuse: bool) -> None:
        self.columns = AckColumns()
        self._items = items
        self._spots = {number: spot for number, spot in enumerate(spots) if isinstance(spot, Spot)}
        self._refused = {number: spot for number, spot in enumerate(spots) if isinstance(spot, str)}
        self._elements: list[AckElement] = []
        runs: dict[tuple[int, int, str | None], list[tuple[int, int]]] = {}
        for number, spot in self._spots.items():
            item = items[number]
            if fuse and spot.offset is not None and _KINDS[item.status] == "c":
                runs.setdefault((spot.part_id, spot.grp_id, item.lease), []).append((spot.offset, number))
            else:
                self._add(spot.offset, spot.offset, [(spot.offset, number)])
        for members in runs.values():
            for run in _neighbours(sorted(members)):
                self._add(run[0][0], run[-1][0], list(run))

    def _add(self, first: int | None, last: int | None, members: list[tuple[int | None, int]]) -> None:
        number = members[0][1]
        item, spot, c = self._items[number], self._spots[number], self.columns
        c.part.append(spot.part_id)
        c.grp.append(spot.grp_id)
        c.lease.append(lease_of(item.lease))
        c.kind.append(_KINDS[item.status])
        c.first.append(first)
        c.last.append(last)
        c.hash.append(ids.transaction_hash(item.transaction_id) if first is None else None)
        c.error.append(item.error)
        self._elements.append(AckElement(members))

    def results(self, rows: Sequence[AckRow]) -> list[AckResult]:
        """One result an item, from the rows of the call."""
        results = {number: AckResult(problem) for number, problem in self._refused.items()}
        for row in rows:
            for offset, number in self._elements[row.ord - 1].items:
                results[number] = self._result(row, offset if offset is not None else row.first, number)
        return [results.get(number, AckResult("Message not found")) for number in range(len(self._items))]

    def announce(self, context: Context, rows: Sequence[AckRow]) -> None:
        """Wakes who waits for partitions that these acks set free."""
        freed: Counter[tuple[str, str]] = Counter()
        for row in rows:
            if row.ready:
                number = self._elements[row.ord - 1].items[0][1]
                freed[self._spots[number].name.queue, self._items[number].group] += 1
        for (queue, group), partitions in freed.items():
            context.heard(Notice(queue, partitions, group))

    def _result(self, row: AckRow, offset: int | None, number: int) -> AckResult:
        name, problem, noop = self._spots[number].name, row.problem, False
        if offset is not None and row.exists_upto is not None and offset > row.exists_upto:
            problem = "Message not found"
        elif problem is None and offset is not None:
            if row.within is not None and offset > row.within:
                problem = "Message not delivered under this lease" if self._items[number].lease else "Message not found"
            elif row.done_upto is not None:
                noop = offset <= row.done_upto or offset in (row.also_done or ())
        return AckResult(problem, name.queue, name.partition, row.released and problem is None, row.dead, noop)


def _neighbours(members: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Cuts ascending (offset, number) pairs where an offset is missing."""
    run = [members[0]]
    for member in members[1:]:
        if member[0] > run[-1][0] + 1:
            yield run
            run = []
        run.append(member)
    yield run


async def ack(context: Context, acks: Sequence[Ack]) -> list[Acked]:
    """Applies the acks of all requests; one answer each."""
    items = [item for request in acks for item in request.items]
    spots = await context.patiently(lambda _again: locate(context, items))
    gathered = Gathered(items, spots, fuse=True)
    rows: list[AckRow] = []
    if gathered.columns.part:
        rows = await context.patiently(lambda _again: context.database.ack(gathered.columns))
    results = gathered.results(rows)
    gathered.announce(context, rows)
    answers, begin = [], 0
    for request in acks:
        answers.append(Acked(results[begin : begin + len(request.items)]))
        begin += len(request.items)
    return answers
