"""TRANSACTION: pushes and acks of a request, all or none; requests that ack different messages share a call."""

from collections.abc import Mapping, Sequence
from functools import partial
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from queen.core import ids
from queen.core.errors import (
    DatabaseUnavailableError,
    DataRejectedError,
    NoEncryptionKeyError,
    QueenError,
    TooSlowError,
)
from queen.core.operations import AckItem, AckResult, Executed, Push, Pushed, Transaction
from queen.engine.context import Context
from queen.engine.flush import Flush
from queen.engine.handlers.ack import Cursor, Gathered, Stretch, lease_of, locate, unknown_outcome
from queen.engine.handlers.push import (
    CHANGES_TOO_OFTEN,
    LAYOUTS_MAX,
    announce,
    current_options,
    is_stale,
    lay_out,
    lay_out_in,
    places_of,
    seal,
)
from queen.engine.ports import NewPartitions, PushOptions, TransactionRows

#: Partition and group of a cursor.
_Place = tuple[int, int]


class Located(Struct, frozen=True):
    """A transaction whose acks have been located.

    Attributes:
        number: its place among the requests of the batch.
        required: leases of which one must be live on the cursor of each ack that names none; ``None``: no such demand.
    """

    number: int
    push: Push
    acks: Sequence[Stretch]
    required: Sequence[UUID] | None

    @property
    def messages(self) -> dict[_Place, frozenset[int | None]]:
        """The offsets that its acks name at each cursor; ``None``: one that only the database knows."""
        named: dict[_Place, frozenset[int | None]] = {}
        for stretch in self.acks:
            if isinstance(stretch.cursor, Cursor):
                place = stretch.cursor.part_id, stretch.cursor.grp_id
                named[place] = named.get(place, frozenset()).union(stretch.offsets)
        return named

    @property
    def problems(self) -> list[AckResult]:
        """What is known to be wrong with its acks before they are tried."""
        return [
            AckResult(stretch.cursor if isinstance(stretch.cursor, str) else None)
            for stretch in self.acks
            for _ in stretch.items
        ]


async def transaction(context: Context, requests: Sequence[Transaction]) -> list[Executed | QueenError]:
    """Executes all requests; one answer each, or the error of its call."""
    located = await context.harmlessly(partial(_locate, context, requests))
    results: dict[int, Executed | QueenError] = {}
    sound = []
    for each in located:
        if all(isinstance(stretch.cursor, Cursor) for stretch in each.acks):
            sound.append(each)
        else:
            results[each.number] = Executed(True, Pushed([]), each.problems)
    locked: TooSlowError | None = None
    for group in apart(sound):
        # Behind a call that has met a lock none is made: each would wait as long for the next one.
        answers = [locked] * len(group) if locked is not None else await _execute(context, group)
        locked = next((each for each in answers if isinstance(each, TooSlowError) and each.lock), locked)
        results |= zip([each.number for each in group], answers, strict=True)
    return [results[number] for number in range(len(requests))]


async def _locate(context: Context, requests: Sequence[Transaction]) -> list[Located]:
    return [
        Located(number, request.push, await locate(context, acks), required)
        for number, request in enumerate(requests)
        for acks, required in [_with_leases(request)]
    ]


def _with_leases(request: Transaction) -> tuple[Sequence[AckItem], Sequence[UUID] | None]:
    """Its acks with the one lease that it requires, or several that it requires beside those of the acks."""
    texts = request.required_leases
    if texts is None or all(item.lease for item in request.acks):
        return request.acks, None
    if len(texts) == 1:
        return [item if item.lease else replace(item, lease=texts[0]) for item in request.acks], None
    return request.acks, [lease for text in texts if (lease := lease_of(text)) is not None]


def apart(transactions: Sequence[Located]) -> list[list[Located]]:
    """Groups that may share a call: of two that may ack the same message, one has to see what the other did.

    Acks of other messages of a cursor are judged alike whichever comes first: each of them ends its message, or is
    refused, and then all are undone.
    """
    groups: list[tuple[list[Located], dict[_Place, set[int | None]]]] = []
    for each in transactions:
        messages = each.messages
        for group, taken in groups:
            if each.required is None and group[0].required is None and not _meet(messages, taken):
                break
        else:
            group, taken = [], {}
            groups.append((group, taken))
        group.append(each)
        for place, offsets in messages.items():
            taken.setdefault(place, set()).update(offsets)
    return [group for group, _ in groups]


def _meet(messages: Mapping[_Place, frozenset[int | None]], taken: Mapping[_Place, set[int | None]]) -> bool:
    """Whether both may ack the same message."""
    return any(
        None in offsets or None in taken[place] or not offsets.isdisjoint(taken[place])
        for place, offsets in messages.items()
        if place in taken
    )


async def _execute(context: Context, group: Sequence[Located]) -> Sequence[Executed | QueenError]:
    """One answer each, or the error of the call for each of them: groups before this one may have been executed."""
    try:
        return await _call(context, group)
    except QueenError as problem:
        return [problem] * len(group)


async def _call(context: Context, group: Sequence[Located]) -> Sequence[Executed | QueenError]:
    """One answer each.

    Raises:
        DataRejectedError: one of several is refused, and so all were undone.
    """
    pushes = [each.push for each in group]
    gathered = Gathered((stretch for each in group for stretch in each.acks), fuse=False)
    required = list(group[0].required) if group[0].required is not None else None
    for _ in range(LAYOUTS_MAX):
        options = await current_options(context)
        try:
            sealed = [seal(context, push, options) for push in pushes]
        except NoEncryptionKeyError as problem:
            if len(group) > 1:
                raise _one_refused() from problem
            return [problem]
        flush, new = await context.harmlessly(partial(_lay_out, context, sealed, options))
        planned = flush.answers(())
        if any(stored.duplicates or stored.refused for pushed in planned for stored in pushed.stored):
            if len(group) > 1:
                raise _one_refused()
            return [Executed(True, planned[0], [])]
        rows, lost = await context.tried(
            lambda again, f=flush, n=new: context.database.execute(  # type: ignore[misc]
                f.columns, gathered.columns, required, n, again=again
            )
        )
        if flush.columns.part and is_stale(context, rows.appended):
            continue
        if rows.undone and lost and not flush.columns.part:
            # One that pushes is found in the log again. Of these the first sending may have done what refuses them now.
            return [unknown_outcome() for _ in group]
        if rows.undone and len(group) > 1:
            raise _one_refused()
        if (full := await _full_queue(context, rows, new)) is not None:
            return [Executed(True, planned[0], [], full)]
        flush.name_partitions({place: part_id for place, part_id in rows.made.items() if part_id is not None})
        acked = gathered.results(rows.acks)
        if not rows.undone:
            announce(context, pushes)
            gathered.announce(context, rows.acks)
        answers, begin = [], 0
        for each, pushed in zip(group, flush.answers(rows.appended), strict=True):
            end = begin + sum([len(stretch.items) for stretch in each.acks])
            answers.append(Executed(rows.undone, pushed, acked[begin:end]))
            begin = end
        return answers
    raise DatabaseUnavailableError(CHANGES_TOO_OFTEN)


def _one_refused() -> DataRejectedError:
    return DataRejectedError("One of the transactions that shared a call is refused")


async def _full_queue(context: Context, rows: TransactionRows, new: NewPartitions) -> str | None:
    """A queue that had no room; its partition may have been made, and undone, with the transaction."""
    full = next((row.part_id for row in rows.appended if row.room is not None), None)
    if full is None:
        return None
    made = {part_id: new.queue[-number - 1] for number, part_id in rows.made.items()}
    return made[full] if full in made else (await context.directory.names([full]))[full].queue


async def _lay_out(context: Context, pushes: Sequence[Push], options: PushOptions) -> tuple[Flush, NewPartitions]:
    """The segments, and the partitions that are to be made with them: what is undone leaves none behind."""
    keys = places_of(pushes)
    part_ids = await context.directory.partitions(keys, create=False)
    missing = sorted(keys - part_ids.keys())
    new = NewPartitions()
    if missing and any(ids.parse_message_id(text) for push in pushes for lot in push.lots for text in lot.ids or ()):
        # Whether such a transaction id is one that the server gives out depends on the partition's number.
        return await lay_out(context, pushes, options), new
    for number, (queue, name) in enumerate(missing, 1):
        part_ids[queue, name] = -number
        new.part.append(-number)
        new.queue.append(queue)
        new.name.append(name)
    return await lay_out_in(context, pushes, part_ids, options), new
