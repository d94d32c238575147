"""ACK: what consumers say of many messages, gathered by cursor, one call."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from math import inf
from operator import attrgetter
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
_SAME = attrgetter("partition_id", "group", "lease", "status")
MESSAGE_NOT_FOUND = "Message not found"
#: Refusals of ``sql/internal/050_ack.sql``, after which a message is no longer held.
INVALID_LEASE, ALREADY_COMPLETED = "Invalid or expired lease", "Message already completed"


class Cursor(Struct, frozen=True):
    """A group's place in a partition."""

    part_id: int
    grp_id: int
    name: PartitionName


class Stretch(Struct, frozen=True):
    """Neighbouring acks that say the same of messages of one cursor, under one lease.

    Attributes:
        cursor: or what is wrong with all of them.
        offsets: of their messages, ``None`` where only the database knows it.
    """

    items: Sequence[AckItem]
    cursor: Cursor | str
    offsets: Sequence[int | None] = ()


def lease_of(text: str | None) -> UUID | None:
    """The lease that a client names; a text that is no lease id is a lease that does not exist."""
    if not text:
        return None
    try:
        return UUID(text)
    except ValueError:
        return _NO_LEASE


async def locate(context: Context, items: Sequence[AckItem]) -> list[Stretch]:
    """Where the messages of these items are, in their order."""
    part_ids = {text: ids.parse_partition_id(text) for text in {item.partition_id for item in items}}
    names = await context.directory.names(part_id for part_id in part_ids.values() if part_id is not None)
    cursors: dict[tuple[str, str], Cursor | str] = {}
    stretches = []
    for (partition_id, group, _, status), run in groupby(items, _SAME):
        if (partition_id, group) not in cursors:
            part_id = part_ids[partition_id]
            name = names.get(part_id) if part_id is not None else None
            cursors[partition_id, group] = await _cursor(context, name, group)
        stretches.append(_stretch(list(run), cursors[partition_id, group], status))
    return stretches


async def _cursor(context: Context, name: PartitionName | None, group: str) -> Cursor | str:
    """The cursor, or what is wrong with all acks of it."""
    if name is None:
        return MESSAGE_NOT_FOUND
    grp_id = await context.directory.group(name, group)
    if grp_id is None:
        return "Consumer group not found" if context.directory.knows(name.part_id) else MESSAGE_NOT_FOUND
    return Cursor(name.part_id, grp_id, name)


def _stretch(items: Sequence[AckItem], cursor: Cursor | str, status: str) -> Stretch:
    if cursor != MESSAGE_NOT_FOUND and status not in _KINDS:
        cursor = f"Unknown status: {status}"
    if isinstance(cursor, str):
        return Stretch(items, cursor)
    return Stretch(items, cursor, ids.offsets_of([item.transaction_id for item in items], cursor.part_id))


class AckElement(Struct, frozen=True):
    """One element of an ack call: offsets, ascending, and the numbers of the items that they stand for."""

    cursor: Cursor
    offsets: Sequence[int | None]
    numbers: Sequence[int]


class _Run(Struct, frozen=True):
    """Completed messages of a cursor, under one lease."""

    cursor: Cursor
    offsets: list[int]
    numbers: list[int]

    def elements(self) -> Iterator[AckElement]:
        """Cuts where an offset is missing."""
        first = self.offsets[0]
        if self.offsets == list(range(first, first + len(self.offsets))):  # whoever acks a batch as it came
            yield AckElement(self.cursor, self.offsets, self.numbers)
            return
        members = sorted(zip(self.offsets, self.numbers, strict=True))
        cuts = [place for place in range(1, len(members)) if members[place][0] > members[place - 1][0] + 1]
        for begin, end in pairwise([0, *cuts, len(members)]):
            offsets, numbers = zip(*members[begin:end], strict=True)
            yield AckElement(self.cursor, offsets, numbers)


class Gathered:
    """Acks as the columns of one call.

    With ``fuse`` neighbouring completed messages of a cursor are one element. Not in transactions, which have to name
    the one that failed.
    """

    def __init__(self, stretches: Iterable[Stretch], *, fuse: bool) -> None:
        self.columns = AckColumns()
        self._items: list[AckItem] = []
        self._refused: list[tuple[int, str]] = []
        self._elements: list[AckElement] = []
        runs: dict[tuple[int, int, str | None], _Run] = {}
        for stretch in stretches:
            numbers = range(len(self._items), len(self._items) + len(stretch.items))
            self._items.extend(stretch.items)
            cursor, head = stretch.cursor, stretch.items[0]
            if isinstance(cursor, str):
                self._refused.extend([(number, cursor) for number in numbers])
                continue
            known = [offset for offset in stretch.offsets if offset is not None]
            if fuse and _KINDS[head.status] == "c" and len(known) == len(numbers):
                run = runs.setdefault((cursor.part_id, cursor.grp_id, head.lease), _Run(cursor, [], []))
                run.offsets.extend(known)
                run.numbers.extend(numbers)
            else:
                for offset, number in zip(stretch.offsets, numbers, strict=True):
                    self._add(AckElement(cursor, [offset], [number]))
        for run in runs.values():
            for element in run.elements():
                self._add(element)

    def _add(self, element: AckElement) -> None:
        item, cursor, c = self._items[element.numbers[0]], element.cursor, self.columns
        first = element.offsets[0]
        c.part.append(cursor.part_id)
        c.grp.append(cursor.grp_id)
        c.lease.append(lease_of(item.lease))
        c.kind.append(_KINDS[item.status])
        c.first.append(first)
        c.last.append(element.offsets[-1])
        c.hash.append(ids.transaction_hash(item.transaction_id) if first is None else None)
        c.error.append(item.error)
        self._elements.append(element)

    def results(self, rows: Sequence[AckRow]) -> list[AckResult]:
        """One result an item, from the rows of the call."""
        results = [AckResult(MESSAGE_NOT_FOUND)] * len(self._items)
        for number, problem in self._refused:
            results[number] = AckResult(problem)
        for row in rows:
            element = self._elements[row.ord - 1]
            common = _result(row, row.problem, element.cursor.name)
            low, high = _uniform(row)
            for offset, number in zip(element.offsets, element.numbers, strict=True):
                place = offset if offset is not None else row.first
                if place is None or low < place <= high:
                    results[number] = common
                else:
                    results[number] = self._special(row, place, number, element.cursor.name)
        return results

    def announce(self, context: Context, rows: Sequence[AckRow]) -> None:
        """Wakes who waits for partitions that these acks set free."""
        freed: Counter[tuple[str, str]] = Counter()
        for row in rows:
            if row.ready:
                element = self._elements[row.ord - 1]
                freed[element.cursor.name.queue, self._items[element.numbers[0]].group] += 1
        for (queue, group), partitions in freed.items():
            context.heard(Notice(queue, partitions, group))

    def _special(self, row: AckRow, offset: int, number: int, name: PartitionName) -> AckResult:
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
        return _result(row, problem, name, noop=noop)


def _uniform(row: AckRow) -> tuple[float, float]:
    """Offsets above the one and up to the other have the same result."""
    if row.also_done:
        return 0, -1
    low = row.done_upto if row.done_upto is not None else -inf
    high = min(bound for bound in (row.within, row.exists_upto, inf) if bound is not None)
    return low, high


def _result(row: AckRow, problem: str | None, name: PartitionName, *, noop: bool = False) -> AckResult:
    return AckResult(problem, name.queue, name.partition, row.released and problem is None, row.dead, noop)


async def ack(context: Context, acks: Sequence[Ack]) -> list[Acked | OutcomeUnknownError]:
    """Applies the acks of all requests; one answer each, or an error where nobody can tell what was done already."""
    items = [item for request in acks for item in request.items]
    stretches = await context.harmlessly(lambda: locate(context, items))
    gathered = Gathered(stretches, fuse=True)
    rows: list[AckRow] = []
    lost = False
    if gathered.columns.part:
        rows, lost = await context.tried(
            lambda again: context.database.ack(_fenced(gathered.columns) if again else gathered.columns)
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
