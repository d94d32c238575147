"""Acks of many messages at once: their ids, the columns of their call, and their answer, each beside one by one."""

from collections.abc import Sequence

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from queen.engine.handlers.ack import AckRange, Cursor, Gathered
from queen.engine.ports import AckRow, PartitionName
from queen.http.rendering import render_ack
from queen.log import ids
from queen.log.requests import AckItem, AckResult
from spec.guarantees import Level, checks

OWN = 7
OFFSETS = st.integers(0, 12) | st.integers(0, 2**48 - 1)
message_ids = st.builds(ids.message_id, st.just(OWN), OFFSETS)
others = (
    st.builds(ids.message_id, st.integers(1, 9), OFFSETS)
    | message_ids.map(str.upper)
    | message_ids.map(lambda text: text[:-1])
    | st.tuples(message_ids, st.sampled_from(["", "\n", " "]), message_ids).map("".join)
    | message_ids.map(lambda text: text[:24] + " " + text[25:])
    | message_ids.map(lambda text: text[:24] + "_" + text[25:])
    | st.text(max_size=40)
)


@checks("G-ISO-2", level=Level.MODEL)
@given(st.lists(message_ids) | st.lists(message_ids | others))
@example([ids.message_id(OWN, 1) + "\n", ids.message_id(OWN, 2)])
@example([ids.message_id(OWN, 1) + "\n" + ids.message_id(OWN, 2), ""])
@example([ids.message_id(OWN, 1)[:-1], "0" + ids.message_id(OWN, 2)])
def test_ids_that_are_read_together_are_those_that_are_read_one_by_one(texts: list[str]) -> None:
    parsed = [ids.parse_message_id(text) for text in texts]
    assert ids.offsets_of(texts, OWN) == [place[1] if place and place[0] == OWN else None for place in parsed]


def cursor(part_id: int) -> Cursor:
    return Cursor(part_id, part_id + 100, PartitionName(part_id, 1, "q", f"p{part_id}"))


@st.composite
def ranges(draw: st.DrawFn) -> AckRange:
    if draw(st.integers(0, 5)) == 0:
        items = [AckItem("t", "?", "g", None, "completed")] * draw(st.integers(1, 3))
        return AckRange(items, "Message not found")
    place = cursor(draw(st.integers(1, 2)))
    status, lease = draw(st.sampled_from(["completed", "failed"])), draw(st.none() | st.just("a lease"))
    offsets: Sequence[int | None] = draw(st.lists(st.integers(0, 9), min_size=1, max_size=8))
    if draw(st.booleans()):
        offsets = sorted({offset for offset in offsets if offset is not None})
    if draw(st.integers(0, 5)) == 0:
        offsets = [*offsets, None]
    return AckRange([AckItem(f"{offset}", "p", "g", lease, status) for offset in offsets], place, offsets)


@checks("G-ISO-2", level=Level.MODEL)
@given(st.lists(ranges(), max_size=6), st.booleans())
def test_each_ack_is_in_one_element_of_the_call_and_gets_its_result(given: list[AckRange], fuse: bool) -> None:
    gathered = Gathered(given, fuse=fuse)
    columns = gathered.columns
    rows = [
        AckRow(number, f"result {number}", first, None, None, None, None, released=False, dead=False, ready=False)
        for number, first in enumerate(columns.first, 1)
    ]
    results = iter(gathered.results(rows))
    covered: dict[int, set[int]] = {}
    for acks in given:
        for item, offset in zip(acks.items, acks.offsets or [None] * len(acks.items), strict=True):
            result = next(results)
            if isinstance(acks.cursor, str):
                assert result == AckResult(acks.cursor)
                continue
            assert result.problem is not None
            element = int(result.problem.removeprefix("result ")) - 1
            assert (columns.part[element], columns.grp[element]) == (acks.cursor.part_id, acks.cursor.grp_id)
            assert columns.kind[element] == item.status[0]
            assert (columns.lease[element] is None) == (item.lease is None)
            first, last = columns.first[element], columns.last[element]
            if offset is None or first is None or last is None:
                assert (first, last) == (None, None) == (offset, offset)
                assert columns.hash[element] == ids.transaction_hash(item.transaction_id)
            else:
                assert first <= offset <= last
                assert fuse or first == last
                covered.setdefault(element, set()).add(offset)
    assert next(results, None) is None
    for element, offsets in covered.items():
        assert sorted(offsets) == list(range(columns.first[element] or 0, (columns.last[element] or 0) + 1))


results = st.builds(
    AckResult,
    st.none() | st.text(),
    st.none() | st.text(),
    st.none() | st.text(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


@checks("G-ISO-2", level=Level.MODEL)
@given(st.lists(st.tuples(st.text(), results, st.integers(1, 3))))
def test_the_answer_names_each_ack_and_its_result(given: list[tuple[str, AckResult, int]]) -> None:
    pairs = [(name, result) for name, result, times in given for _ in range(times)]
    items = [AckItem(name, "p", "g", None, "completed") for name, _ in pairs]
    answer = msgspec.json.decode(render_ack(items, [result for _, result in pairs]))
    assert answer == [
        {
            "index": index, "transactionId": name, "success": result.problem is None, "error": result.problem,
            "queueName": result.queue, "partitionName": result.partition, "leaseReleased": result.released,
            "dlq": result.dead, **({"noop": True} if result.noop else {}),
        }
        for index, (name, result) in enumerate(pairs)
    ]  # fmt: skip
