"""TRANSACTION: the pushes and acks of a request, all or none; requests without a conflict share a call."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import count
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from queen.core.errors import DataRejectedError, NoEncryptionKeyError, QueenError, TooSlowError
from queen.engine.context import Context
from queen.engine.handlers.ack import AckRange, Cursor, Gathered, lease_of, locate, unknown_outcome
from queen.engine.handlers.push import announce, current_options, is_stale, laid_out_anew, lay_out, seal
from queen.engine.handlers.timers import seal_changes
from queen.engine.ports import PushOptions, TransactionRows
from queen.log.append import AppendBatch
from queen.log.requests import AckItem, AckResult, Push, Pushed, TimerChange, Transaction, TransactionResult

#: A cursor, by partition and group, or a partition, by queue and name.
_Target = tuple[int, int] | tuple[str, str]
#: A message there: its offset, or its transaction id if only the database knows the offset.
_Name = int | str
#: By the number of the transaction.
_Answers = dict[int, TransactionResult | QueenError]


class Located(Struct, frozen=True):
    """A transaction whose acks have been located.

    Attributes:
        number: its index among the requests of the batch.
        required: one of these leases must be live on the cursor of each ack that names no lease; ``None``: not needed.
    """

    number: int
    push: Push
    acks: Sequence[AckRange]
    required: Sequence[UUID] | None
    timers: Sequence[TimerChange] = ()

    @property
    def messages(self) -> dict[_Target, set[_Name]]:
        """The messages that its acks name, by cursor, and the transaction ids of its pushes, by partition."""
        named: dict[_Target, set[_Name]] = {}
        for acks in self.acks:
            if isinstance(acks.cursor, Cursor):
                names = [
                    offset if offset is not None else item.transaction_id
                    for offset, item in zip(acks.offsets, acks.items, strict=True)
                ]
                named.setdefault((acks.cursor.part_id, acks.cursor.grp_id), set()).update(names)
        for batch in self.push.batches:
            if batch.ids is not None:
                named[batch.queue, batch.partition] = set(filter(None, batch.ids))
        return named

    @property
    def problems(self) -> list[AckResult]:
        """The results of its acks if one of them is known to be refused before the call; else empty."""
        if all([isinstance(acks.cursor, Cursor) for acks in self.acks]):
            return []
        return [
            AckResult(acks.cursor if isinstance(acks.cursor, str) else None) for acks in self.acks for _ in acks.items
        ]

    @property
    def accepted(self) -> list[AckResult]:
        """The results of its acks if all were executed without anything special."""
        results: list[AckResult] = []
        for acks in self.acks:
            if isinstance(acks.cursor, Cursor):
                name = acks.cursor.name
                results += [AckResult(None, name.queue, name.partition)] * len(acks.items)
        return results

    @property
    def first_cursor(self) -> tuple[int, int]:
        """The cursor of its first ack: calls lock cursors in this order."""
        cursor = self.acks[0].cursor if self.acks else None
        return (cursor.part_id, cursor.grp_id) if isinstance(cursor, Cursor) else (0, 0)


async def transaction(context: Context, requests: Sequence[Transaction]) -> list[TransactionResult | QueenError]:
    """Executes all requests; one answer each, or the error of its call."""
    located = await context.idempotently(partial(_locate, context, requests))
    answers: _Answers = {
        each.number: TransactionResult(True, Pushed([]), each.problems) for each in located if each.problems
    }
    for group in split_by_conflict([each for each in located if each.number not in answers]):
        executed = await _Call(context, group).answer()
        answers |= executed
        for problem in executed.values():
            if isinstance(problem, TooSlowError) and problem.lock:
                # Stops here: the next groups might have to wait as long.
                return [answers.get(number, problem) for number in range(len(requests))]
    return [answers[number] for number in range(len(requests))]


async def _locate(context: Context, requests: Sequence[Transaction]) -> list[Located]:
    return [
        Located(number, request.push, await locate(context, acks), required, request.timers)
        for number, request in enumerate(requests)
        for acks, required in [_with_leases(request)]
    ]


def _with_leases(request: Transaction) -> tuple[Sequence[AckItem], Sequence[UUID] | None]:
    """The acks of a request, with the lease that it requires if it is one; and the required leases if several."""
    texts = request.required_leases
    if texts is None or all([item.lease for item in request.acks]):
        return request.acks, None
    if len(texts) == 1:
        return [item if item.lease else replace(item, lease=texts[0]) for item in request.acks], None
    return request.acks, [lease for text in texts if (lease := lease_of(text)) is not None]


def split_by_conflict(transactions: Sequence[Located]) -> list[list[Located]]:
    """Groups that may share a call: of two that may ack the same message, one has to see the effect of the other.

    Acks of different messages of a cursor have the same outcome in any order: each ends its message, or its transaction
    is refused. The same holds for pushes with different transaction ids.
    """
    groups: list[tuple[list[Located], dict[_Target, set[_Name]]]] = []
    for each in transactions:
        messages = each.messages
        for group, taken in groups:
            if each.required is None and group[0].required is None and not _conflict(messages, taken):
                break
        else:
            group, taken = [], {}
            groups.append((group, taken))
        group.append(each)
        for target, names in messages.items():
            taken.setdefault(target, set()).update(names)
    return [group for group, _ in groups]


def _conflict(messages: Mapping[_Target, set[_Name]], taken: Mapping[_Target, set[_Name]]) -> bool:
    """Whether both may name the same message; an offset and a transaction id may be of the same one."""
    return any(
        not names.isdisjoint(taken[target]) or len(set(map(type, names | taken[target]))) > 1
        for target, names in messages.items()
        if target in taken
    )


class _Call:
    """Transactions that share a call. If some are refused, they are answered, and the others are called again."""

    def __init__(self, context: Context, group: Sequence[Located]) -> None:
        self._context = context
        self._waiting = sorted(group, key=lambda each: each.first_cursor)
        self._answers: _Answers = {}
        self._timers: dict[int, Sequence[TimerChange]] = {}

    async def answer(self) -> _Answers:
        """One answer each, or the error of the call for each of them."""
        try:
            return await laid_out_anew(self._attempt)
        except QueenError as problem:
            return self._answers | {each.number: problem for each in self._waiting}

    async def _attempt(self) -> _Answers | None:
        options = await current_options(self._context)
        pushes = self._seal(options)
        batch = await self._context.idempotently(partial(lay_out, self._context, pushes, options, make=False))
        if batch is None:
            return None
        if batch.has_repetitions:
            outcomes = zip(self._waiting, batch.answers(), strict=True)
            refused = {
                each.number: TransactionResult(True, pushed, []) for each, pushed in outcomes if _is_refused(pushed, [])
            }
            if refused:
                return self._end(refused)
        return await self._execute(batch, pushes) if self._waiting else self._answers

    def _seal(self, options: PushOptions) -> list[Push]:
        """The pushes with encrypted payloads, and timers as well; refuses transactions if there is no key."""
        pushes: dict[int, Push] = {}
        for each in self._waiting:
            try:
                self._timers[each.number] = seal_changes(self._context, each.timers, options)
                pushes[each.number] = seal(self._context, each.push, options)
            except NoEncryptionKeyError as problem:
                self._answers[each.number] = problem
        self._waiting = [each for each in self._waiting if each.number in pushes]
        return [*pushes.values()]

    async def _execute(self, batch: AppendBatch, pushes: Sequence[Push]) -> _Answers | None:
        gathered = Gathered((acks for each in self._waiting for acks in each.acks), fuse=False)
        rows, lost = await self._sent(batch, gathered)
        if self._is_outdated(batch, rows):
            return None
        if rows.undone and lost and not batch.part:
            # A transaction that pushes is found in the log. These have acks only, and may be refused now because the
            # first attempt has executed them.
            return self._end({each.number: unknown_outcome() for each in self._waiting})
        full = await self._full_queue(batch, rows)
        if not rows.undone:
            batch.name_partitions(rows.made)
            announce(self._context, pushes)
            gathered.announce(self._context, rows.acks)
        acked = self._acked(gathered, rows) if full is None else [[] for _ in self._waiting]
        results = zip(batch.answers(rows.appended), acked, self._due(rows), strict=True)
        return self._settle([TransactionResult(rows.undone, one, acks, full, due) for one, acks, due in results])

    async def _sent(self, batch: AppendBatch, gathered: Gathered) -> tuple[TransactionRows, bool]:
        required = self._waiting[0].required
        timers = [timer for each in self._waiting for timer in self._timers[each.number]]
        return await self._context.tried(
            lambda again: self._context.database.execute(batch, gathered.columns, required, timers, again=again)
        )

    def _is_outdated(self, batch: AppendBatch, rows: TransactionRows) -> bool:
        """Whether nothing was done because the cache was outdated; the outdated entries are forgotten."""
        if rows.stale:
            self._context.cache.forget_push_options()
        return rows.stale or (bool(batch.part) and is_stale(self._context, rows.appended))

    def _due(self, rows: TransactionRows) -> list[list[datetime | None]]:
        """When the timers of each transaction are due."""
        numbers = count(1)
        return [[rows.due.get(next(numbers)) for _ in each.timers] for each in self._waiting]

    def _settle(self, executed: Sequence[TransactionResult]) -> _Answers | None:
        """Answers the executed transactions or, if none was, those that are at fault.

        Raises:
            DataRejectedError: it is not known which ones are at fault.
        """
        outcomes = {each.number: result for each, result in zip(self._waiting, executed, strict=True)}
        if len(executed) > 1 and executed[0].undone:
            outcomes = {number: each for number, each in outcomes.items() if _is_refused(each.pushed, each.acked)}
            if not outcomes:
                raise DataRejectedError("One of the transactions that shared a call is refused")
        return self._end(outcomes)

    def _end(self, answers: Mapping[int, TransactionResult | QueenError]) -> _Answers | None:
        """Sets answers; returns all answers, or ``None`` if other transactions are to be called again."""
        self._answers |= answers
        self._waiting = [each for each in self._waiting if each.number not in answers]
        return None if self._waiting else self._answers

    def _acked(self, gathered: Gathered, rows: TransactionRows) -> list[list[AckResult]]:
        """The results of the acks of each transaction."""
        if not rows.undone and len(rows.acks) < len(gathered.columns.part):
            return [each.accepted for each in self._waiting]
        results = iter(gathered.results(rows.acks))
        return [[next(results) for acks in each.acks for _ in acks.items] for each in self._waiting]

    async def _full_queue(self, batch: AppendBatch, rows: TransactionRows) -> str | None:
        """The queue that had no room, if any. Its partition may have been created, and undone, with the transaction."""
        full = next((row.part_id for row in rows.appended if row.room is not None), None)
        if full is None:
            return None
        made = {part_id: batch.new[-number - 1][0] for number, part_id in rows.made.items()}
        return made[full] if full in made else (await self._context.cache.names([full]))[full].queue


def _is_refused(pushed: Pushed, acked: Sequence[AckResult]) -> bool:
    """Whether a transaction was refused: a problem with an ack, a duplicate, or a refused message."""
    if any([result.problem for result in acked]):
        return True
    return any([stored.duplicates or stored.refused for stored in pushed.stored])
