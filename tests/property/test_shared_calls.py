"""Which transactions share a call: those that do not see what another one has done; and which are called again."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from queen.engine.context import Context, ignore_notification
from queen.engine.handlers.ack import AckRange, Cursor
from queen.engine.handlers.transaction import Located, split_by_conflict, transaction
from queen.engine.metadata_cache import MetadataCache
from queen.engine.ports import AckColumns, AckRow, PartitionName, PushOptions, Subscription, TransactionRows
from queen.http.parsing import PushItem, to_push
from queen.log import ids
from queen.log.append import AppendBatch
from queen.log.requests import AckItem, AckResult, Push, Transaction, TransactionResult
from spec.guarantees import Level, checks

LEASE = UUID(int=1)
#: Acks of a transaction: partition, and the offset, unless only the database knows it.
Acks = Sequence[tuple[int, int | None]]


def located(number: int, acks: Acks, required: Sequence[UUID] | None = None) -> Located:
    ranges = []
    for part_id, offset in acks:
        cursor = Cursor(part_id, 1, PartitionName(part_id, 1, "q", str(part_id)))
        ranges.append(AckRange([AckItem("t", "p", "g", None, "completed")], cursor, [offset]))
    return Located(number, Push([], 0), ranges, required)


def groups(*transactions: Acks) -> list[list[int]]:
    return [
        [each.number for each in group]
        for group in split_by_conflict([located(*each) for each in enumerate(transactions)])
    ]


def test_acks_of_different_messages_share_a_call() -> None:
    assert groups([(1, 0)], [(1, 1)], [(2, 0)], []) == [[0, 1, 2, 3]]


@checks("G-TXN-2", level=Level.MODEL)
def test_transactions_with_the_same_input_do_not_share_a_call() -> None:
    assert groups([(1, 0)], [(1, 0)], [(2, 5)], [(1, 0), (1, 1)]) == [[0, 2], [1], [3]]


@checks("G-TXN-2", level=Level.MODEL)
def test_one_that_names_a_message_by_its_own_id_is_alone_at_its_cursor() -> None:
    assert groups([(1, None)], [(1, None)], [(1, 4)], [(2, 4)]) == [[0, 3], [1], [2]]


def test_chosen_ids_that_differ_are_different_messages() -> None:
    item = AckItem("t", "p", "g", None, "completed")
    cursor = Cursor(1, 1, PartitionName(1, 1, "q", "p"))
    first, same, other = (
        Located(number, Push([], 0), [AckRange([replace(item, transaction_id=text)], cursor, [None])], None)
        for number, text in enumerate("ttu")
    )
    assert split_by_conflict([first, same, other]) == [[first, other], [same]]


@checks("G-IDEM-1", level=Level.MODEL)
def test_those_that_push_under_the_same_id_are_apart() -> None:
    pushes = [to_push([PushItem("q", partition, transactionId=text)]) for partition, text in ("at", "au", "at", "bt")]
    located = [Located(number, push, [], None) for number, push in enumerate(pushes)]
    assert [[each.number for each in group] for group in split_by_conflict(located)] == [[0, 1, 3], [2]]


class Refusing:
    """A database that refuses the acks of some partitions, and with them the whole call."""

    def __init__(self, refused: set[int]) -> None:
        self.refused, self.calls = refused, list[list[int]]()

    async def read_push_options(self) -> PushOptions:
        return PushOptions(1, frozenset(), {})

    async def describe_partitions(self, part_ids: Sequence[int]) -> list[PartitionName]:
        return [PartitionName(number, 1, "q", str(number)) for number in part_ids]

    async def subscribe(self, *_: Any, **__: Any) -> Subscription:
        return Subscription(1, 1, True, None)

    async def execute(self, _push: AppendBatch, ack: AckColumns, *_: Any, again: bool) -> TransactionRows:
        assert not again
        self.calls.append(ack.part)
        if self.refused.isdisjoint(ack.part):
            return TransactionRows(False, {}, [], [])
        rows = [
            AckRow(place, "no" if part in self.refused else None, 0, -1, None, None, None, False, False, False)
            for place, part in enumerate(ack.part, 1)
        ]
        return TransactionRows(True, {}, [], rows)


@checks("G-TXN-1", level=Level.MODEL)
@given(st.sets(st.integers(1, 8)))
async def test_only_those_that_are_at_fault_fail_and_the_others_are_executed_once(refused: set[int]) -> None:
    database = Refusing(refused)
    context = Context(database, database, MetadataCache(database, 100), ignore_notification, 0)  # type: ignore[arg-type]
    requests = [
        Transaction(
            Push([], 0),
            [AckItem(ids.message_id(part, 0), ids.partition_id(part), "g", None, "completed")],
            None,
        )
        for part in range(1, 9)
    ]  # fmt: skip
    answers = await transaction(context, requests)
    for part, answer in enumerate(answers, 1):
        assert isinstance(answer, TransactionResult)
        assert answer.undone == (part in refused)
        assert answer.acked == [AckResult("no" if answer.undone else None, "q", str(part))]
    assert len(database.calls) == (2 if 0 < len(refused) < 8 else 1)
    assert database.calls[-1] == [part for part in range(1, 9) if part not in refused or len(refused) == 8]


def test_one_that_needs_one_of_several_leases_is_alone() -> None:
    transactions = [located(0, [(1, 0)]), located(1, [(2, 0)], [LEASE]), located(2, [(3, 0)], [LEASE])]
    assert [[each.number for each in group] for group in split_by_conflict(transactions)] == [[0], [1], [2]]


@given(st.lists(st.lists(st.tuples(st.integers(1, 3), st.none() | st.integers(0, 5)), max_size=4), max_size=12))
def test_no_call_may_ack_a_message_twice_and_every_transaction_has_one(transactions: list[Acks]) -> None:
    called = groups(*transactions)
    assert sorted(number for group in called for number in group) == list(range(len(transactions)))
    for group in called:
        by_cursor: dict[int, list[set[int | None]]] = {}
        for number in group:
            for part_id in {part_id for part_id, _ in transactions[number]}:
                by_cursor.setdefault(part_id, []).append({o for p, o in transactions[number] if p == part_id})
        for named in by_cursor.values():
            offsets = [offset for each in named for offset in each]
            assert len(offsets) == len(set(offsets))
            assert len(named) == 1 or None not in offsets
