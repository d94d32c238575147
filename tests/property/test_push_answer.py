"""Pushes as bytes: what is stored, and what is answered, is the same JSON whichever way it was made."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from queen.core.errors import BadRequestError
from queen.http.parsing import PushItem, to_push
from queen.http.rendering import render_push
from queen.log import ids
from queen.log.requests import Pushed, Stored

PART, TRACE = 7, "0190d9f6-7a4e-7c2b-9a66-6a1f0f0e2d11"
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8) | st.just(
    '100 %d "%b"\\'
)
queues = st.sampled_from(["q", 'quote"%s'])
items = st.lists(
    st.builds(
        PushItem,
        queue=queues,
        partition=st.just("p"),
        payload=st.sampled_from([Raw(b"1"), Raw(b'{"a":"%"}'), Raw(b"null")]),
        transactionId=st.none() | st.just("") | texts,
        traceId=st.none() | st.just(TRACE),
    ),
    min_size=1,
    max_size=6,
) | st.lists(
    st.builds(PushItem, queue=queues, partition=st.just("p"), payload=st.just(Raw(b"1")), transactionId=texts),
    min_size=1,
    max_size=6,
)  # fmt: skip


@given(items, st.none() | st.just("somebody"))
def test_a_batch_has_the_messages_of_its_items(items: list[PushItem], producer: str | None) -> None:
    for batch in to_push(items, producer).batches:
        stored = json.loads(b"[" + batch.body + b"]")
        wanted = []
        for item in (items[place] for place in batch.places):
            optional = {"transactionId": item.transactionId, "traceId": item.traceId, "producerSub": producer}
            wanted.append(
                {name: text for name, text in optional.items() if text} | {"payload": json.loads(bytes(item.payload))}
            )
        assert stored == wanted
        begin = 0
        for length, message in zip(batch.lengths, stored, strict=True):
            assert json.loads(batch.body[begin : begin + length - 1]) == message
            begin += length
        chosen = [items[place].transactionId or "" for place in batch.places]
        assert batch.ids == (chosen if any(chosen) else None)


@given(items, st.booleans())
def test_an_answer_names_what_was_stored_where(items: list[PushItem], dense: bool) -> None:
    batches = to_push(items).batches
    stored = [
        Stored(PART, 40)
        if dense
        else Stored(PART, None, range(40, 40 + len(batch.places)), frozenset({0}), frozenset({1}))
        for batch in batches
    ]
    answer = json.loads(render_push(items, batches, Pushed(stored)))
    assert [each["index"] for each in answer] == list(range(len(items)))
    for batch in batches:
        for number, place in enumerate(batch.places):
            item, told = items[place], answer[place]
            message_id = ids.message_id(PART, 40 + number)
            status = "queued" if dense or number > 1 else ("duplicate", "failed")[number]
            assert (told["status"], told["queueName"]) == (status, item.queue)
            if status == "failed":
                assert told["transaction_id"] == item.transactionId
                continue
            assert (told["transaction_id"], told["message_id"]) == (item.transactionId or message_id, message_id)
            if status == "queued":
                assert (told["partition_id"], told["trace_id"]) == (ids.partition_id(PART), item.traceId)


@pytest.mark.parametrize(
    ("odd", "said"), [("a\0b", "must not contain NUL"), ("x" * 256, "has 256 characters, more than 255")]
)
@pytest.mark.parametrize("place", [0, 2])
def test_the_item_with_an_id_out_of_its_limits_is_named(odd: str, said: str, place: int) -> None:
    items = [PushItem("q", "p", Raw(b"1"), "x" * 255 if n != place else odd) for n in range(3)]
    with pytest.raises(BadRequestError, match=rf"^items\[{place}\]\.transactionId {said}"):
        to_push(items)
