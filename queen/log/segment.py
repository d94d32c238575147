"""The format of a segment: converts messages to columns of ``queen.segments`` and back, without decoding payloads.

``data`` is a JSON array with one object per message,
``{"traceparent":…,"headers":…,"transactionId":…,"traceId":…,"producerSub":…,"keyId":…,"payload":…}``, where everything
but the payload may be missing and the payload comes last; a ``keyId`` says that it is encrypted, and ``traceparent`` is
the W3C trace context of its push. ``headers`` is a text that holds JSON: a reader finds the payload by the first quote
that nothing escapes, before ``,"payload":``, and a map may have a member of that name. ``ends`` holds the position in
``data`` after the object of each message, 4 bytes big-endian. ``sql/internal/025_segment.sql`` reads the same.
"""

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import msgspec
from msgspec import Raw, Struct, structs

_PLAIN = b'{"payload":'
# The second letter of the first name distinguishes a bare payload from all other names.
_MARK_PLACE, _PLAIN_MARK = 4, ord("a")
_MISSING = Raw()
_NATIVE_IS_BIG = sys.byteorder == "big"


class Entry(Struct, frozen=True, gc=False):
    """One message of a segment; texts are kept as JSON, as they were sent, and are empty if missing."""

    payload: Raw
    transactionId: Raw = _MISSING  # noqa: N815 - the names are those of the stored JSON
    traceId: Raw = _MISSING  # noqa: N815
    producerSub: Raw = _MISSING  # noqa: N815
    keyId: Raw = _MISSING  # noqa: N815
    traceparent: Raw = _MISSING
    headers: Raw = _MISSING

    def headers_json(self) -> bytes:
        """The headers as a JSON object; empty if there are none."""
        return _text.decode(self.headers).encode() if self.headers else b""

    def headers_map(self) -> dict[str, str]:
        """The headers; empty if there are none."""
        return _headers.decode(self.headers_json()) if self.headers else {}


_text = msgspec.json.Decoder(str)
_headers = msgspec.json.Decoder(dict[str, str])
_decoder = msgspec.json.Decoder(Entry)
_encode = msgspec.json.encode


def encode_entry(
    payload: bytes,
    transaction_id: str | None,
    trace_id: str | None,
    producer_sub: str | None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """The object of one message."""
    fields = (
        ("headers", _encode(headers).decode() if headers else None), ("transactionId", transaction_id),
        ("traceId", trace_id), ("producerSub", producer_sub),
    )  # fmt: skip
    head = b"".join(b'"%b":%b,' % (name.encode(), _encode(value)) for name, value in fields if value is not None)
    return b'{%b"payload":%b}' % (head, payload)


def decode_entry(message: bytes) -> Entry:
    """The fields of one object."""
    try:
        return _decoder.decode(message)
    except RecursionError:  # of the payload, which need not be decoded: it comes last, behind texts
        head, key, payload = message.partition(b'"payload":')
        return structs.replace(_decoder.decode(head + key + b"0}"), payload=Raw(payload[:-1]))


def encode_raw(entry: Entry) -> bytes:
    """The object of one message whose fields are already JSON."""
    fields = (
        (b"traceparent", entry.traceparent), (b"headers", entry.headers), (b"transactionId", entry.transactionId),
        (b"traceId", entry.traceId), (b"producerSub", entry.producerSub), (b"keyId", entry.keyId),
    )  # fmt: skip
    return b'{%b"payload":%b}' % (b"".join([b'"%b":%b,' % field for field in fields if field[1]]), entry.payload)


def encode_plain(payloads: Sequence[Raw | bytes]) -> bytes:
    """The objects of messages that have only a payload, joined by commas."""
    return _PLAIN + (b"}," + _PLAIN).join(payloads) + b"}"


def encode_identified(payloads: Sequence[Raw], transaction_ids: Sequence[str]) -> list[bytes]:
    """The objects of messages that have only a payload and a transaction id."""
    return [
        b'{"transactionId":%b,"payload":%b}' % (_encode(text), payload)
        for text, payload in zip(transaction_ids, payloads, strict=True)
    ]


def plain_length(payload: Raw | bytes) -> int:
    """Bytes of a message that has only a payload in a segment, comma included."""
    return len(payload) + len(_PLAIN) + 2


def encode_ends(lengths: Iterable[int]) -> bytes:
    """The column ``ends`` from the bytes of each message, comma included."""
    ends = array("I", accumulate(lengths))
    if not _NATIVE_IS_BIG:
        ends.byteswap()
    return ends.tobytes()


def decode_ends(column: bytes) -> "array[int]":
    """The position after each message."""
    ends = array("I", column)
    if not _NATIVE_IS_BIG:
        ends.byteswap()
    return ends


def decode_entries(data: bytes, ends: bytes, start: int) -> list[Entry | bytes]:
    """The messages of a part of a segment: an ``Entry``, or only the payload if a message has nothing else.

    Args:
        data: the bytes of the segment from position ``start`` on.
        ends: the positions after the messages of the part, counted from the start of the whole segment.
        start: position of the byte (a bracket or comma) before the first message.
    """
    entries: list[Entry | bytes] = []
    skip = len(_PLAIN) + 1
    begin = 0
    for end in decode_ends(ends):
        stop = end - start
        if data[begin + _MARK_PLACE] == _PLAIN_MARK:
            entries.append(data[begin + skip : stop - 1])
        else:
            entries.append(decode_entry(data[begin + 1 : stop]))
        begin = stop
    return entries
