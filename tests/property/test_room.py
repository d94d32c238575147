"""Large requests wait for each other, and how many elements they have is known before these are made."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queen.core.errors import OverloadedError, TooManyItemsError
from queen.http.acks import AckBody
from queen.http.elements import count_elements
from queen.http.room import Room
from queen.operations.acknowledge import AckBatchBody
from queen.operations.commit_cycle import CycleBody
from queen.operations.push import PushBody
from queen.operations.read_stream_state import StateBody
from queen.operations.record_trace import TraceBody
from queen.operations.transaction_plan import OperationBody, TransactionBody
from queen.simple_mq.operations.acknowledge import AckBody as MessageIds

ROOM = 1_000_000
NEVER_S, AT_ONCE_S = 3600, 0
#: Bodies whose estimates are a quarter of the room, more than all of it, and too little to count.
QUARTER, GIANT, SMALL = b"x" * 60_000, b"x" * 500_000, b'{"items":[{}]}'

TEXTS = st.lists(st.text(), max_size=5)
#: What a message may hold is not the server's, and does not count.
PAYLOADS = st.recursive(
    st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)
ITEMS = st.lists(st.fixed_dictionaries({"queue": st.text(), "payload": PAYLOADS}), max_size=5)


def count(kind: Any, value: Any, most: int = 1_000_000) -> int:
    return count_elements(msgspec.json.Decoder(kind), json.dumps(value).encode(), most)


@given(ITEMS, TEXTS)
def test_elements_of_every_list_count_and_those_in_payloads_do_not(
    items: list[dict[str, Any]], texts: list[str]
) -> None:
    assert count(PushBody, {"items": items, "more": texts}) == len(items)
    operations = [{"type": "push", "items": items}, {"type": "ack", "payload": texts}]
    assert count(TransactionBody, {"operations": operations}) == 2 + len(items)
    assert count(list[OperationBody], operations) == 2 + len(items)
    ops = [{"type": "upsert", "key": "k", "value": texts}] * 3
    assert count(CycleBody, {"query_id": "q", "state_ops": ops, "push_items": items}) == 3 + len(items)
    assert count(AckBatchBody, {"acknowledgments": [{"transactionId": text} for text in texts]}) == len(texts)
    assert count(AckBody, {"transactionId": "t", "error": "e" * len(texts)}) == 0


@given(st.lists(ITEMS, max_size=5), st.integers(0, 20))
def test_beyond_the_limit_it_counts_no_further(inner: list[list[dict[str, Any]]], most: int) -> None:
    operations = [{"type": "push", "items": items} for items in inner]
    exact = len(operations) + sum(map(len, inner))
    counted = count(TransactionBody, {"operations": operations}, most)
    assert counted == exact or most < counted < exact


@given(TEXTS)
def test_the_number_of_error_texts_is_bounded(texts: list[str]) -> None:
    for kind, field in (
        (StateBody, "keys"), (TraceBody, "traceNames"), (MessageIds, "messageIds"), (MessageIds, "message_ids"),
        (TransactionBody, "requiredLeases"),
    ):  # fmt: skip
        assert count(kind, {field: texts}) >= len(texts)
    assert count(StateBody, {"keys": ["0190a0a0-0000-7000-8000-00000000dead"] * len(texts)}) <= max(len(texts), 1)


@pytest.mark.parametrize(("items", "fits"), [(1000, True), (1001, False)])
def test_a_request_with_more_elements_than_allowed_is_refused(items: int, fits: bool) -> None:
    room, decoder = Room(items_max=1000), msgspec.json.Decoder(PushBody)
    body = json.dumps({"items": [{"queue": "q"}] * items}).encode()
    if fits:
        room.check(decoder, body)
    else:
        with pytest.raises(TooManyItemsError, match="1001 elements, at most 1000"):
            room.check(decoder, body)


def test_invalid_bodies_are_left_to_the_decoder() -> None:
    for body in (b"[" * 5000, b'{"items":[' + b"1," * 5000, b'{"items":7}' + b" " * 5000, b"\xff" * 5000):
        Room(items_max=1000).check(msgspec.json.Decoder(PushBody), body)


async def enter_all(room: Room, bodies: list[bytes]) -> tuple[list["asyncio.Task[int]"], list[int]]:
    """A task for each body, when all have begun; and, as it comes, which of them are in."""
    entered: list[int] = []

    async def enter(number: int, body: bytes) -> int:
        size = await room.enter(body)
        entered.append(number)
        return size

    tasks = [asyncio.create_task(enter(number, body)) for number, body in enumerate(bodies)]
    await settled()
    return tasks, entered


async def settled() -> None:
    """Everything that can go on has gone on."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_large_requests_go_on_in_their_order_as_there_is_room() -> None:
    room = Room(bytes_max=ROOM, retry_timeout_s=NEVER_S)
    tasks, entered = await enter_all(room, [QUARTER] * 6)
    assert entered == [0, 1, 2, 3]
    for number in range(6):
        room.leave(await tasks[number])
        await settled()
        assert entered == list(range(min(5 + number, 6)))


async def test_one_that_is_larger_than_the_room_goes_alone_and_is_not_overtaken() -> None:
    room = Room(bytes_max=ROOM, retry_timeout_s=NEVER_S)
    tasks, entered = await enter_all(room, [QUARTER, GIANT, QUARTER])
    assert entered == [0]
    room.leave(await tasks[0])
    await settled()
    assert entered == [0, 1]
    room.leave(await tasks[1])
    await settled()
    assert entered == [0, 1, 2]


async def test_small_requests_do_not_wait_for_large_ones() -> None:
    room = Room(bytes_max=ROOM, retry_timeout_s=NEVER_S)
    tasks, entered = await enter_all(room, [GIANT, GIANT, SMALL])
    assert entered == [0, 2]
    assert await tasks[2] == 0
    tasks[1].cancel()


async def test_one_without_a_turn_in_time_is_told_to_come_later_and_leaves_its_place() -> None:
    room = Room(bytes_max=ROOM, retry_timeout_s=AT_ONCE_S)
    size = await room.enter(QUARTER)
    with pytest.raises(OverloadedError, match="Try again later"):
        await room.enter(GIANT)
    assert await room.enter(QUARTER) == size


@pytest.mark.parametrize("had_its_turn", [True, False])
async def test_one_that_is_cut_off_while_it_waits_leaves_its_place(had_its_turn: bool) -> None:
    room = Room(bytes_max=ROOM, retry_timeout_s=NEVER_S)
    size = await room.enter(GIANT)
    tasks, entered = await enter_all(room, [GIANT, GIANT])
    if had_its_turn:
        room.leave(size)
    tasks[0].cancel()
    await settled()
    if not had_its_turn:
        room.leave(size)
        await settled()
    assert entered == [1]


async def test_where_nothing_is_small_everything_counts_and_waits_as_long_as_it_takes() -> None:
    room = Room(bytes_max=2 * len(SMALL) * 4 + 3 * 2400, retry_timeout_s=None, small_bytes=0)
    sizes = [await room.enter(SMALL), await room.enter(SMALL)]
    third, fourth = asyncio.ensure_future(room.enter(SMALL)), asyncio.ensure_future(room.enter(SMALL))
    await asyncio.sleep(0)
    assert not third.done()
    room.leave(sizes[0])
    assert await third == sizes[0]
    assert not fourth.done()
    room.leave(sizes[1])
    assert await fourth == sizes[0]
