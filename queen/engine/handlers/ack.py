"""ACK: what consumers say of many messages, gathered by cursor, one call."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf
from uuid import UUID

import msgspec
from msgspec import Struct

from queen.core import ids
from queen.core.errors import OutcomeUnknownError
from queen.core.operations import Ack, Acked, AckItem, AckResult
from queen.engine.context import Context
from queen.engine.ports import AckColumns, AckRow, Notice, PartitionName

_KINDS = {"completed": "c", "success": "c", "acked": "c", "ok": "c", "failed": "f", "retry": "r", "dlq": "d"}
_NO_LEASE = UUID(int=0)
MESSAGE_NOT_FOUND = "Message not found"
#: An ack waits longer than other calls for PostgreSQL to come back, and less than clients wait for an answer: their
#: consumers end when it fails a few times.
PATIENCE_S = 22.0
#: Refusals of ``sql/internal/050_ack.sql``, after which a message is no longer held.
INVALID_LEASE, ALREADY_COMPLETED = "Invalid or expired lease", "Message already completed"


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
    part_ids = {text: ids.parse_partition_id(text) for text in {item.partition_id for item in items}}
    names = await context.directory.names(part_id for part_id in part_ids.values() if part_id is not None)
    cursors: dict[tuple[str, str], Spot | str] = {}
    for key in {(item.partition_id, item.group) for item in items}:
        part_id = part_ids[key[0]]
        cursors[key] = await _cursor(context, names.get(part_id) if part_id is not None else None, key[1])
    return [_spot(item, cursors[item.partition_id, item.group]) for item in items]


async def _cursor(context: Context, name: PartitionName | None, group: str) -> Spot | str:
    """The spot of a message that only the database knows, or what is wrong with all acks of this cursor."""
    if name is None:
        return MESSAGE_NOT_FOUND
    grp_id = await context.directory.group(name, group)
    if grp_id is None:
        return "Consumer group not found" if context.directory.knows(name.part_id) else MESSAGE_NOT_FOUND
    return Spot(name.part_id, grp_id, None, name)


def _spot(item: AckItem, cursor: Spot | str) -> Spot | str:
    if cursor == MESSAGE_NOT_FOUND:
        return cursor
    if item.status not in _KINDS:
        return f"Unknown status: {item.status}"
    if isinstance(cursor, str):
        return cursor
    offset = ids.offset_of(item.transaction_id, cursor.part_id)
    return cursor if offset is None else Spot(cursor.part_id, cursor.grp_id, offset, cursor.name)


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
        results = [AckResult(self._refused.get(number, MESSAGE_NOT_FOUND)) for number in range(len(self._items))]
        for row in rows:
            members = self._elements[row.ord - 1].items
            name = self._spots[members[0][1]].name
            common = _result(row, row.problem, name)
            low, high = _uniform(row)
            for offset, number in members:
                place = offset if offset is not None else row.first
                if place is None or low < place <= high:
                    results[number] = common
                else:
                    results[number] = self._special(row, place, number)
        return results

    def announce(self, context: Context, rows: Sequence[AckRow]) -> None:
        """Wakes who waits for partitions that these acks set free."""
        freed: Counter[tuple[str, str]] = Counter()
        for row in rows:
            if row.ready:
                number = self._elements[row.ord - 1].items[0][1]
                freed[self._spots[number].name.queue, self._items[number].group] += 1
        for (queue, group), partitions in freed.items():
            context.heard(Notice(queue, partitions, group))

    def _special(self, row: AckRow, offset: int, number: int) -> AckResult:
        problem, noop = row.problem, False
        if row.exists_upto is not None and offset > row.exists_upto:
            problem = MESSAGE_NOT_FOUND
        elif problem in {None, INVALID_LEASE}:
            # A row may speak for neighbours: what is done of them is harmless, whatever is wrong with the others.
            done = row.done_upto is not None and (offset <= row.done_upto or offset in (row.also_done or ()))
            if done and _KINDS[self._items[number].status] == "c":
                problem, noop = None, True
            elif problem is None and row.within is not None and offset > row.within:
                problem = "Message not delivered under this lease" if self._items[number].lease else MESSAGE_NOT_FOUND
        return _result(row, problem, self._spots[number].name, noop=noop)


def _uniform(row: AckRow) -> tuple[float, float]:
    """Offsets above the one and up to the other have the same result."""
    if row.also_done:
        return 0, -1
    low = row.done_upto if row.done_upto is not None else -inf
    high = min(bound for bound in (row.within, row.exists_upto, inf) if bound is not None)
    return low, high


def _result(row: AckRow, problem: str | None, name: PartitionName, *, noop: bool = False) -> AckResult:
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


async def ack(context: Context, acks: Sequence[Ack]) -> list[Acked | OutcomeUnknownError]:
    """Applies the acks of all requests; one answer each, or an error where nobody can tell what was done already."""
    items = [item for request in acks for item in request.items]
    spots = await context.patiently(lambda _again: locate(context, items), patience_s=PATIENCE_S)
    gathered = Gathered(items, spots, fuse=True)
    rows: list[AckRow] = []
    lost = False
    if gathered.columns.part:
        rows, lost = await context.tried(
            lambda again: context.database.ack(_fenced(gathered.columns) if again else gathered.columns),
            patience_s=PATIENCE_S,
        )
    results = gathered.results(rows)
    gathered.announce(context, rows)
    answers: list[Acked | OutcomeUnknownError] = []
    begin = 0
    for request in acks:
        own = results[begin : begin + len(request.items)]
        begin += len(own)
        answers.append(unknown_outcome() if lost and _in_doubt(request.items, own) else Acked(own))
    return answers


def _fenced(columns: AckColumns) -> AckColumns:
    """The same, sent again: a failure that names no lease would count once more, so it gets one that never lived."""
    leases = [
        _NO_LEASE if lease is None and kind != "c" else lease
        for lease, kind in zip(columns.lease, columns.kind, strict=True)
    ]
    return msgspec.structs.replace(columns, lease=leases)


def _in_doubt(items: Sequence[AckItem], results: Sequence[AckResult]) -> bool:
    """Whether acks that were sent twice may be refused because of what they did the first time.

    Not those of completed messages: what is done stays done, and they find it so.
    """
    return any(
        result.problem in {INVALID_LEASE, ALREADY_COMPLETED} and _KINDS[item.status] != "c"
        for item, result in zip(items, results, strict=True)
    )


def unknown_outcome() -> OutcomeUnknownError:
    """The answer to acks of which nobody can tell whether they were carried out."""
    return OutcomeUnknownError("PostgreSQL went away during an ack, which it may have carried out")
