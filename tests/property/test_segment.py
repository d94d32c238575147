"""The segment format: what goes in comes out, whole or in part, payload bytes untouched."""

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from queen.log.requests import Claim, PartitionBatch, Popped, Push, Slice
from queen.log.segment import Entry, decode_entries, encode_ends, encode_entry, encode_plain, encode_raw, plain_length
from queen.log.trace_context import delivered, stamp

texts = st.text(min_size=1, max_size=20).filter(lambda text: "\0" not in text and text.isprintable())
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
messages = st.lists(st.tuples(values, st.none() | texts, st.none() | texts, st.none() | texts), min_size=1, max_size=8)


def read(entry: Entry | bytes) -> tuple[object, ...]:
    if isinstance(entry, bytes):
        return json.loads(entry), None, None, None
    fields = (entry.transactionId, entry.traceId, entry.producerSub)
    return json.loads(bytes(entry.payload)), *(json.loads(bytes(field)) if field else None for field in fields)


@given(messages, st.data())
def test_any_part_of_a_segment_reads_back(
    written: list[tuple[object, str | None, str | None, str | None]], data: st.DataObject
) -> None:
    entries = [encode_entry(json.dumps(payload).encode(), *ids) for payload, *ids in written]
    segment = b"[" + b",".join(entries) + b"]"
    ends = encode_ends([len(entry) + 1 for entry in entries])
    assert len(json.loads(segment)) == len(written)
    first = data.draw(st.integers(0, len(written) - 1))
    last = data.draw(st.integers(first, len(written) - 1))
    start = int.from_bytes(ends[4 * first - 4 : 4 * first]) if first else 0
    stop = int.from_bytes(ends[4 * last : 4 * last + 4])
    part = decode_entries(segment[start:stop], ends[4 * first : 4 * last + 4], start)
    assert [read(entry) for entry in part] == written[first : last + 1]


@given(st.lists(values, min_size=1, max_size=8))
def test_plain_messages_are_written_as_entries_are(payloads: list[object]) -> None:
    raws = [Raw(json.dumps(payload).encode()) for payload in payloads]
    entries = [encode_entry(bytes(raw), None, None, None) for raw in raws]
    assert encode_plain(raws) == b",".join(entries)
    assert [plain_length(raw) for raw in raws] == [len(entry) + 1 for entry in entries]


@given(st.dictionaries(st.text(min_size=1), st.text(), min_size=1, max_size=5), values, st.none() | texts)
def test_headers_read_back_and_leave_the_payload_alone(
    headers: dict[str, str], payload: object, chosen: str | None
) -> None:
    entry = encode_entry(json.dumps(payload).encode(), chosen, None, None, {"payload": "1", **headers})
    [found] = decode_entries(b"[" + entry + b"]", encode_ends([len(entry) + 1]), 0)
    assert isinstance(found, Entry)
    assert json.loads(found.headers_json()) == {"payload": "1", **headers}
    assert read(found) == (payload, chosen, None, None)
    assert encode_raw(found) == entry
    # As queen.message_fields finds the payload.
    text = entry.decode()
    assert json.loads(text[text.index('","payload":') + len('","payload":') : -1]) == payload


def test_a_producer_alone_is_not_taken_for_a_bare_payload() -> None:
    entry = encode_entry(b"1", None, None, "somebody")
    [read_back] = decode_entries(b"[" + entry + b"]", encode_ends([len(entry) + 1]), 0)
    assert read(read_back) == (1, None, None, "somebody")


CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@given(messages, st.booleans())
def test_a_context_stands_beside_whatever_a_message_holds(
    written: list[tuple[object, str | None, str | None, str | None]], plain: bool
) -> None:
    written = [(payload, None, None, None) for payload, *_ in written] if plain else written
    entries = [encode_entry(json.dumps(payload).encode(), *ids) for payload, *ids in written]
    batch = PartitionBatch(
        "q", "p", range(len(entries)), b",".join(entries), [len(entry) + 1 for entry in entries], None
    )
    [stamped] = stamp(Push([batch], len(entries)), CONTEXT).batches
    ends = encode_ends(stamped.lengths)
    found = decode_entries(b"[" + stamped.body + b"]", ends, 0)
    assert [read(entry) for entry in found] == written
    assert all(isinstance(entry, Entry) and bytes(entry.traceparent) == b'"%b"' % CONTEXT.encode() for entry in found)
    assert b",".join(encode_raw(entry) for entry in found if isinstance(entry, Entry)) == stamped.body
    # Of a run that begins at offset 10, the first is done already and the last is not delivered.
    claim = Claim(
        1, "q", "p", 10 + len(entries) - 2, frozenset([10]), 0, 1,
        [Slice(10, datetime(2026, 1, 1, tzinfo=UTC), ends, 0, b"[" + stamped.body)],
    )  # fmt: skip
    number = max(0, len(entries) - 2)
    told = delivered(Popped(None, [claim]))
    assert (told.messages, dict(told.contexts)) == (number, {CONTEXT: number} if number else {})


def test_a_payload_that_is_nested_too_deeply_to_be_decoded_is_read() -> None:
    """SQL stores such a payload. Its neighbours are read, too."""
    payload = b"[" * 50_000 + b"]" * 50_000
    headers = {"a": '","payload":1'}
    entries = [encode_entry(payload, "x", None, None, headers), encode_entry(b"1", "y", None, None)]
    found = decode_entries(b"[" + b",".join(entries) + b"]", encode_ends([len(entry) + 1 for entry in entries]), 0)
    [deep, other] = [entry for entry in found if isinstance(entry, Entry)]
    assert (bytes(deep.payload), bytes(deep.transactionId), deep.headers_json()) == (
        payload, b'"x"', json.dumps(headers, separators=(",", ":")).encode(),
    )  # fmt: skip
    assert (bytes(other.payload), bytes(other.transactionId)) == (b"1", b'"y"')
