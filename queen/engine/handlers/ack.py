"""ACK: acknowledgements of many requests, grouped by cursor, in one call."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from math import inf
from operator import attrgetter
from uuid import UUID

from msgspec import Struct, structs

from queen.core.errors import OutcomeUnknownError
from queen.engine.completion import Completion
from queen.engine.context import Context
from queen.engine.ports import AckColumns, AckRow, CompletedRow, Notification, PartitionName
from queen.log import ids
from queen.log.requests import Ack, Acked, AckItem, AckResult

_KINDS = {"completed": "c", "success": "c", "acked": "c", "ok": "c", "failed": "f", "retry": "r", "dlq": "d"}
_NO_LEASE = UUID(int=0)
_SAME = attrgetter("partition_id", "group", "lease", "status")
MESSAGE_NOT_FOUND = "Message not found"
#: Refusals of ``sql/internal/050_ack.sql`` that mean that the message is not in flight under the lease any more.
INVALID_LEASE, ALREADY_COMPLETED = "Invalid or expired lease", "Message already completed"


class Cursor(Struct, frozen=True):
    """The cursor of a group in a partition."""

    part_id: int
    grp_id: int
    name: PartitionName


class AckRange(Struct, frozen=True):
    """Adjacent acks with the same status for messages of one cursor, under one lease.

    Attributes:
        cursor: the cursor, or the problem with all of the acks.
        offsets: of their messages; ``None`` if only the database knows an offset.
    """

    items: Sequence[AckItem]
    cursor: Cursor | str
    offsets: Sequence[int | None] = ()

    def completed(self) -> list[int]:
        """The offsets, if all are known and the messages are completed under a lease; otherwise none."""
        first = self.items[0]
        if not first.lease or _KINDS[first.status] != "c":
            return []
        known = [offset for offset in self.offsets if offset is not None]
        return known if len(known) == len(self.items) else []


@lru_cache(maxsize=1000)  # each is looked at several times, by one call
def lease_of(text: str | None) -> UUID | None:
    """The lease that a client names; an invalid lease id becomes a lease that does not exist."""
    if not text:
        return None
    try:
        return UUID(text)
    except ValueError:
        return _NO_LEASE


async def locate(context: Context, items: Sequence[AckItem]) -> list[AckRange]:
    """The cursors and offsets of the messages of these items, in their order."""
    part_ids = {text: ids.parse_partition_id(text) for text in {item.partition_id for item in items}}
    names = await context.cache.names(part_id for part_id in part_ids.values() if part_id is not None)
    cursors: dict[tuple[str, str], Cursor | str] = {}
    ranges = []
    for (partition_id, group, _, status), run in groupby(items, _SAME):
        if (partition_id, group) not in cursors:
            part_id = part_ids[partition_id]
            name = names.get(part_id) if part_id is not None else None
            cursors[partition_id, group] = await _cursor(context, name, group)
        ranges.append(_ack_range(list(run), cursors[partition_id, group], status))
    return ranges


async def _cursor(context: Context, name: PartitionName | None, group: str) -> Cursor | str:
    """The cursor, or the problem with all acks for it."""
    if name is None:
        return MESSAGE_NOT_FOUND
    grp_id = await context.cache.group(name, group)
    if grp_id is None:
        return "Consumer group not found" if context.cache.knows(name.part_id) else MESSAGE_NOT_FOUND
    return Cursor(name.part_id, grp_id, name)


def _ack_range(items: Sequence[AckItem], cursor: Cursor | str, status: str) -> AckRange:
    if cursor != MESSAGE_NOT_FOUND and status not in _KINDS:
        cursor = f"Unknown status: {status}"
    if isinstance(cursor, str):
        return AckRange(items, cursor)
    return AckRange(items, cursor, ids.offsets_of([item.transaction_id for item in items], cursor.part_id))


class AckElement(Struct, frozen=True):
    """One element of an ack call: ascending offsets, and the numbers of their items."""

    cursor: Cursor
    offsets: Sequence[int | None]
    numbers: Sequence[int]


class _Run(Struct, frozen=True):
    """Completed messages of a cursor, under one lease."""

    cursor: Cursor
    offsets: list[int]
    numbers: list[int]

    def elements(self) -> Iterator[AckElement]:
        """Splits where an offset is missing."""
        first = self.offsets[0]
        if self.offsets == list(range(first, first + len(self.offsets))):  # a batch that is acked as it was delivered
            yield AckElement(self.cursor, self.offsets, self.numbers)
            return
        members = sorted(zip(self.offsets, self.numbers, strict=True))
        cuts = [index for index in range(1, len(members)) if members[index][0] > members[index - 1][0] + 1]
        for begin, end in pairwise([0, *cuts, len(members)]):
            offsets, numbers = zip(*members[begin:end], strict=True)
            yield AckElement(self.cursor, offsets, numbers)


class Gathered:
    """Acks as the arguments of one call.

    With ``fuse``, adjacent messages of a cursor that are completed under one lease are one element. Without a lease
    they may have different outcomes. Transactions cannot do that, because they have to name the ack that failed.
    """

    def __init__(self, ranges: Iterable[AckRange], *, fuse: bool) -> None:
        self.columns = AckColumns()
        self._items: list[AckItem] = []
        self._refused: list[tuple[int, str]] = []
        self._elements: list[AckElement] = []
        runs: dict[tuple[int, int, str | None], _Run] = {}
        for acks in ranges:
            numbers = range(len(self._items), len(self._items) + len(acks.items))
            self._items.extend(acks.items)
            cursor = acks.cursor
            if isinstance(cursor, str):
                self._refused.extend([(number, cursor) for number in numbers])
                continue
            completed = acks.completed() if fuse else []
            if completed:
                run = runs.setdefault((cursor.part_id, cursor.grp_id, acks.items[0].lease), _Run(cursor, [], []))
                run.offsets.extend(completed)
                run.numbers.extend(numbers)
            else:
                for offset, number in zip(acks.offsets, numbers, strict=True):
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

    def name_of(self, element: int) -> PartitionName:
        """The partition of an element."""
        return self._elements[element].cursor.name

    def columns_of(self, elements: Sequence[int]) -> AckColumns:
        """The columns of some elements."""
        if len(elements) == len(self._elements):
            return self.columns
        return AckColumns(**{
            field: [getattr(self.columns, field)[number] for number in elements]
            for field in AckColumns.__struct_fields__
        })  # fmt: skip

    def results(self, rows: Sequence[AckRow]) -> list[AckResult]:
        """One result per item, from the rows of the call."""
        results = [AckResult(MESSAGE_NOT_FOUND)] * len(self._items)
        for number, problem in self._refused:
            results[number] = AckResult(problem)
        for row in rows:
            element = self._elements[row.ord - 1]
            common = _result(row, row.problem, element.cursor.name)
            low, high = _uniform(row)
            for offset, number in zip(element.offsets, element.numbers, strict=True):
                known = offset if offset is not None else row.first
                if known is None or low < known <= high:
                    results[number] = common
                else:
                    results[number] = self._special(row, known, number, element.cursor.name)
        return results

    def announce(self, context: Context, rows: Sequence[AckRow]) -> None:
        """Notifies long polls of partitions that these acks have released."""
        freed: Counter[tuple[str, str]] = Counter()
        for row in rows:
            if row.ready:
                element = self._elements[row.ord - 1]
                freed[element.cursor.name.queue, self._items[element.numbers[0]].group] += 1
        for (queue, group), partitions in freed.items():
            context.notify(Notification(queue, partitions, group))

    def _special(self, row: AckRow, offset: int, number: int, name: PartitionName) -> AckResult:
        problem, noop = row.problem, False
        if row.exists_upto is not None and offset > row.exists_upto:
            problem = MESSAGE_NOT_FOUND
        elif problem in {None, INVALID_LEASE}:
            # A row may be for several messages: those that are done already are no problem, whatever the others are.
            if _is_done(row, offset) and _KINDS[self._items[number].status] == "c":
                problem, noop = None, True
            elif problem is None and row.within is not None and offset > row.within:
                problem = "Message not delivered under this lease" if self._items[number].lease else MESSAGE_NOT_FOUND
        return _result(row, problem, name, noop=noop)


def _is_done(row: AckRow, offset: int) -> bool:
    """Whether a message was done before the call."""
    return row.done_upto is not None and (offset <= row.done_upto or offset in (row.also_done or ()))


def _uniform(row: AckRow) -> tuple[float, float]:
    """Bounds: offsets above the first and up to the second have the same result."""
    if row.also_done:
        return 0, -1
    low = row.done_upto if row.done_upto is not None else -inf
    high = min(bound for bound in (row.within, row.exists_upto, inf) if bound is not None)
    return low, high


def _result(row: AckRow, problem: str | None, name: PartitionName, *, noop: bool = False) -> AckResult:
    return AckResult(problem, name.queue, name.partition, row.released and problem is None, row.dead, noop)


async def ack(context: Context, acks: Sequence[Ack]) -> list[Acked | OutcomeUnknownError]:
    """Applies the acks of all requests; one answer each, or an error where the outcome is unknown."""
    items = [item for request in acks for item in request.items]
    ranges = await context.idempotently(lambda: locate(context, items))
    gathered = Gathered(ranges, fuse=True)
    context.prefetch.unfollow(
        lease for request in acks if not request.alone for item in request.items if (lease := lease_of(item.lease))
    )
    rows: list[AckRow] = []
    lost = False
    if gathered.columns.part:
        rows, lost = await _call(context, gathered)
    results = gathered.results(rows)
    gathered.announce(context, rows)
    answers: list[Acked | OutcomeUnknownError] = []
    begin = 0
    for request in acks:
        own = results[begin : begin + len(request.items)]
        begin += len(own)
        answers.append(unknown_outcome() if lost and _in_doubt(request.items, own) else Acked(own))
    return answers


async def _call(context: Context, gathered: Gathered) -> tuple[list[AckRow], bool]:
    """The rows, and whether an earlier attempt may have been committed."""
    completion = Completion(gathered.columns, context.prefetch)
    rows: list[AckRow] = []
    lost, rest = False, list(range(len(gathered.columns.part)))
    if completion.columns.part:
        done, lost = await _complete(context, completion)
        rows, rest = completion.rows(done), completion.rest(done)
        for batch in completion.batches(done, gathered.name_of):
            context.prefetch.put(batch)
    if rest:
        columns = gathered.columns_of(rest)
        judged, lost_too = await context.tried(
            lambda again: context.database.ack(_fenced(columns) if again else columns)
        )
        rows += [structs.replace(row, ord=rest[row.ord - 1] + 1) for row in judged]
        lost = lost or lost_too
    return rows, lost


async def _complete(context: Context, completion: Completion) -> tuple[list[CompletedRow], bool]:
    """Executes the common case. A repetition does nothing twice; messages that the first attempt completed are done."""
    done: list[CompletedRow] = []
    lost = True
    try:
        done, lost = await context.tried(lambda _again: context.database.complete(completion.columns))
        return done, lost
    finally:
        context.prefetch.forget(completion.not_taken(done))
        if lost:
            context.orphans.add(completion.orphans(done))


def _fenced(columns: AckColumns) -> AckColumns:
    """The arguments of a repetition: a failure without a lease must not count twice, so it gets an unknown one."""
    leases = [
        _NO_LEASE if lease is None and kind != "c" else lease
        for lease, kind in zip(columns.lease, columns.kind, strict=True)
    ]
    return structs.replace(columns, lease=leases)


def _in_doubt(items: Sequence[AckItem], results: Sequence[AckResult]) -> bool:
    """Whether acks that were sent twice may be refused because of what the first attempt did.

    Acks of completed messages are not: they find the messages done.
    """
    return any(
        result.problem in {INVALID_LEASE, ALREADY_COMPLETED} and _KINDS[item.status] != "c"
        for item, result in zip(items, results, strict=True)
    )


def unknown_outcome() -> OutcomeUnknownError:
    """The answer to acks with an unknown outcome."""
    return OutcomeUnknownError("PostgreSQL became unavailable during an ack; the ack may have been stored")
