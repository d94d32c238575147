"""Which transactions share a call: those of which none has to see what another has done."""

from collections.abc import Sequence
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from queen.core.operations import AckItem, Push
from queen.engine.handlers.ack import Cursor, Stretch
from queen.engine.handlers.transaction import Located, apart
from queen.engine.ports import PartitionName
from queen_spec.guarantees import Level, checks

LEASE = UUID(int=1)
#: Acks of a transaction: partition, and the offset, unless only the database knows it.
Acks = Sequence[tuple[int, int | None]]


def located(number: int, acks: Acks, required: Sequence[UUID] | None = None) -> Located:
    stretches = []
    for part_id, offset in acks:
        cursor = Cursor(part_id, 1, PartitionName(part_id, 1, "q", str(part_id)))
        stretches.append(Stretch([AckItem("t", "p", "g", None, "completed")], cursor, [offset]))
    return Located(number, Push([], 0), stretches, required)


def groups(*transactions: Acks) -> list[list[int]]:
    return [[each.number for each in group] for group in apart([located(*each) for each in enumerate(transactions)])]


def test_acks_of_different_messages_share_a_call() -> None:
    assert groups([(1, 0)], [(1, 1)], [(2, 0)], []) == [[0, 1, 2, 3]]


@checks("G-TXN-2", level=Level.MODEL)
def test_of_those_with_one_input_each_has_a_call_of_its_own() -> None:
    assert groups([(1, 0)], [(1, 0)], [(2, 5)], [(1, 0), (1, 1)]) == [[0, 2], [1], [3]]


@checks("G-TXN-2", level=Level.MODEL)
def test_one_that_names_a_message_by_its_own_id_is_alone_at_its_cursor() -> None:
    assert groups([(1, None)], [(1, None)], [(1, 4)], [(2, 4)]) == [[0, 3], [1], [2]]


def test_one_that_needs_one_of_several_leases_is_alone() -> None:
    transactions = [located(0, [(1, 0)]), located(1, [(2, 0)], [LEASE]), located(2, [(3, 0)], [LEASE])]
    assert [[each.number for each in group] for group in apart(transactions)] == [[0], [1], [2]]


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
