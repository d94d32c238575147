"""Messages and dead letters of all databases."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import structs

from queen.core.administration import (
    DeadLetter,
    DeadLetterFilter,
    DeadLetterRow,
    ErrorRow,
    MessageDetail,
    MessageFilter,
    MessageKey,
    MessageRow,
    Period,
)
from queen.engine.context import Context
from queen.shards.merging import Rule, combined, cut, in_order, largest, merged, smallest, total
from queen.shards.reads.pages import first_of_each, within

#: How many errors a summary of dead letters names.
_COMMONEST = 5
_ERROR: dict[str, Rule] = {
    "number": total,
    "first_failed_at": smallest,
    "last_failed_at": largest,
    "counts": lambda rows, name: [sum(each) for each in zip(*[getattr(row, name) for row in rows], strict=True)],
}


def commonest(parts: Iterable[Sequence[tuple[str, int]]]) -> list[tuple[str, int]]:
    """The commonest errors, by the numbers of each database."""
    numbers: dict[str, int] = {}
    for part in parts:
        for error, number in part:
            numbers[error] = numbers.get(error, 0) + number
    return sorted(numbers.items(), key=lambda each: (-each[1], each[0]))[:_COMMONEST]


def respanned(row: ErrorRow, begun_at: datetime, ends_at: datetime) -> ErrorRow:
    """The counts over other spans of time: each old span counts where its middle is."""
    slots, length = len(row.counts), (row.ends_at - row.begun_at) / len(row.counts)
    counts = [0] * slots
    for place, number in enumerate(row.counts):
        middle = row.begun_at + length * (place + 0.5)
        counts[min(int((middle - begun_at) / (ends_at - begun_at) * slots), slots - 1)] += number
    return structs.replace(row, counts=counts, begun_at=begun_at, ends_at=ends_at)


def errors_of_all(parts: Sequence[Sequence[ErrorRow]], limit: int) -> list[ErrorRow]:
    """The commonest errors, with their numbers in common spans of time."""
    rows = merged(parts)
    if not rows:
        return []
    begun_at, ends_at = min(row.begun_at for row in rows), max(row.ends_at for row in rows)
    found = combined([[respanned(row, begun_at, ends_at) for row in rows]], ["error"], _ERROR)
    return cut(in_order(found, (lambda row: row.number, True), (lambda row: row.error, False)), limit, 0)


class MessagesOfAll:
    """Implements ``queen.engine.administration.MessageReads``."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def page(self, wanted: MessageFilter, period: Period, limit: int, offset: int) -> list[MessageRow]:
        """A page of messages, newest first."""
        rows = merged(
            await first_of_each(
                self._context,
                lambda each, number, begin: each.administration.messages.page(wanted, period, number, begin),
                limit + offset,
            )
        )
        newest = in_order(
            rows,
            (lambda row: row.created_at, True),
            (lambda row: row.part_id, True),
            (lambda row: row.off, True),
        )
        return within(cut(newest, limit, offset), lambda row: len(row.payload))

    async def get(self, key: MessageKey) -> MessageDetail | None:
        """A message, from the database that has it."""
        return await self._context.at_partition(key.part_id, lambda home: home.administration.messages.get(key))


class DeadLettersOfAll:
    """Implements ``queen.engine.administration.DeadLetterReads``."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def page(self, wanted: DeadLetterFilter, limit: int, offset: int) -> list[DeadLetterRow]:
        """A page of dead letters, newest failure first."""
        rows = merged(
            await first_of_each(
                self._context,
                lambda each, number, begin: each.administration.dead_letters.page(wanted, number, begin),
                limit + offset,
            )
        )
        newest = in_order(rows, (lambda row: row.failed_at, True), (lambda row: row.id, True))
        return within(cut(newest, limit, offset), lambda row: len(row.payload))

    async def count(self, wanted: DeadLetterFilter) -> int:
        """The number of dead letters that match."""
        return sum(await self._context.everywhere(lambda each: each.administration.dead_letters.count(wanted)))

    async def find(self, number: int) -> DeadLetter | None:
        """A dead letter, from the database that gave its number."""
        return await self._context.at(number).administration.dead_letters.find(number)

    async def find_newest(self, key: MessageKey) -> DeadLetter | None:
        """The newest dead letter of a message."""
        return await self._context.at_partition(
            key.part_id, lambda home: home.administration.dead_letters.find_newest(key)
        )

    async def summarize(self, queue: str | None) -> tuple[int, list[tuple[str, int]]]:
        """Partitions with dead letters, and the commonest errors of those that each database names."""
        found = await self._context.everywhere(lambda each: each.administration.dead_letters.summarize(queue))
        return sum([partitions for partitions, _ in found]), commonest([errors for _, errors in found])

    async def errors(self, wanted: DeadLetterFilter, slots: int, limit: int) -> list[ErrorRow]:
        """The dead letters by error, commonest first."""
        parts = await self._context.everywhere(
            lambda each: each.administration.dead_letters.errors(wanted, slots, limit)
        )
        return errors_of_all(parts, limit)
