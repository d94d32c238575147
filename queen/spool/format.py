"""The format of a spool file: a header, then records, each with its length and a checksum. Pure.

::

    file   = frame(header) frame(record) frame(record) …
    frame  = length of the body, 4 bytes big-endian | CRC-32 of length and body, 4 bytes big-endian | body (MessagePack)

A file ends where a frame is incomplete or its checksum is wrong: the *torn* end of a write that a crash interrupted.
The checksum covers the length, so that zeros, which some file systems leave behind, are not a valid frame.
"""

import zlib
from array import array
from collections.abc import Iterator, Sequence
from uuid import UUID

import msgspec
from msgspec import Struct

from queen.log.requests import PartitionBatch, Push

_PREFIX_BYTES = 8
#: Greater lengths are invalid: many times the largest request body.
_BODY_BYTES_MAX = 1 << 31


class Header(Struct, frozen=True, array_like=True):
    """The first frame of a file.

    Attributes:
        file: the id under which PostgreSQL stores the replay position of the file.
        installation: the database of the messages.
        created_at: seconds since 1970.
    """

    file: UUID
    installation: UUID
    created_at: float
    format: str = "queen spool 1"


class SpooledBatch(Struct, frozen=True, array_like=True):
    """A ``PartitionBatch`` without item indexes; ``lengths`` are 4 bytes each, in the byte order of this machine.

    Attributes:
        kind: empty: a push. Otherwise a request of another interface; ``ids`` are those that its sender was told.
    """

    queue: str
    partition: str
    body: bytes
    lengths: bytes
    ids: list[str] | None
    kind: str = ""


class Record(Struct, frozen=True, array_like=True):
    """The pushes of one batch of the engine.

    Attributes:
        flush: the id of the append to PostgreSQL, if the batch was sent.
        sent_at: when it was sent, in seconds since 1970, if its outcome is unknown; else ``None``.
        written_at: seconds since 1970.
        requests: the batches of each push request.
        reason: in a record that was set aside, why PostgreSQL refused it; in one that is held back, why it is not
            stored yet.
        number: in a record that is held back, the number of its first request in the original file.
    """

    flush: UUID
    sent_at: float | None
    written_at: float
    requests: list[list[SpooledBatch]]
    reason: str = ""
    number: int = 0

    @property
    def messages(self) -> int:
        """The number of messages."""
        return sum(len(batch.lengths) // 4 for batches in self.requests for batch in batches)


_encode = msgspec.msgpack.encode
_header_decoder = msgspec.msgpack.Decoder(Header)
_record_decoder = msgspec.msgpack.Decoder(Record)


def frame(body: bytes) -> bytes:
    """A body with its length and checksum."""
    length = len(body).to_bytes(4, "big")
    return length + zlib.crc32(body, zlib.crc32(length)).to_bytes(4, "big") + body


def encode_header(header: Header) -> bytes:
    """The frame of a header."""
    return frame(_encode(header))


def encode_record(record: Record) -> bytes:
    """The frame of a record."""
    return frame(_encode(record))


def packed(lengths: Sequence[int]) -> bytes:
    """The lengths of a batch in the form of a record."""
    return array("I", lengths).tobytes()


def spool_request(push: Push) -> list[SpooledBatch]:
    """The form of a request in a record."""
    return [
        SpooledBatch(
            batch.queue,
            batch.partition,
            batch.body,
            packed(batch.lengths),
            list(batch.ids) if batch.ids is not None else None,
        )
        for batch in push.batches
    ]


def request_of(batches: Sequence[SpooledBatch]) -> Push:
    """The request of a record; its items are numbered batch by batch."""
    restored, items = [], 0
    for batch in batches:
        lengths = array("I", batch.lengths)
        indexes = range(items, items + len(lengths))
        restored.append(PartitionBatch(batch.queue, batch.partition, indexes, batch.body, lengths, batch.ids))
        items += len(lengths)
    return Push(restored, items)


def pick(batch: SpooledBatch, indexes: Sequence[int]) -> SpooledBatch:
    """A batch with only the messages of these indexes."""
    [whole] = request_of([batch]).batches
    bodies, lengths, ids = [], [], []
    begin = 0
    for index, length in enumerate(whole.lengths):
        if index in indexes:
            bodies.append(whole.body[begin : begin + length - 1])
            lengths.append(length)
            ids.append((whole.ids or [])[index])
        begin += length
    picked = msgspec.structs.replace(whole, body=b",".join(bodies), lengths=lengths, ids=ids)
    return SpooledBatch(batch.queue, batch.partition, picked.body, packed(lengths), ids)


class Damage(Struct, frozen=True):
    """Bytes of a file that are not a record; ``torn``: nothing readable follows."""

    start: int
    end: int
    torn: bool


class SpoolFile(Struct, frozen=True):
    """The contents of a file.

    Attributes:
        records: in order, with ``Damage`` for unreadable bytes.
        end: the end of the readable part.
    """

    header: Header | None
    records: list[Record | Damage]
    end: int

    @property
    def requests(self) -> int:
        """The number of push requests."""
        return sum(len(record.requests) for record in self.records if isinstance(record, Record))

    @property
    def messages(self) -> int:
        """The number of messages."""
        return sum(record.messages for record in self.records if isinstance(record, Record))


def _body_at(data: memoryview, start: int) -> tuple[memoryview | None, int | None]:
    """The body of the frame at ``start`` (``None`` if it is damaged), and the start of the next one, if known."""
    prefix = data[start : start + _PREFIX_BYTES]
    if len(prefix) < _PREFIX_BYTES:
        return None, None
    length = int.from_bytes(prefix[:4], "big")
    end = start + _PREFIX_BYTES + length
    if not 0 < length <= _BODY_BYTES_MAX or end > len(data):
        return None, None
    body = data[start + _PREFIX_BYTES : end]
    intact = zlib.crc32(body, zlib.crc32(prefix[:4])) == int.from_bytes(prefix[4:], "big")
    return (body if intact else None), end


def _frames(data: memoryview) -> Iterator[tuple[int, int, memoryview | None]]:
    """Start, end and body of each frame before the first torn one."""
    start = 0
    while start < len(data):
        body, end = _body_at(data, start)
        if end is None or (body is None and _body_at(data, end)[0] is None):
            return
        yield start, end, body
        start = end


def read_file(content: bytes) -> SpoolFile:
    """The header and records of a file; ``header`` is ``None`` if it is damaged.

    A damaged frame between two good ones is a disk error; only that frame is lost.
    """
    header: Header | None = None
    records: list[Record | Damage] = []
    end = 0
    for start, stop, body in _frames(memoryview(content)):
        try:
            if start == 0:
                header = _header_decoder.decode(body or b"")
            else:
                records.append(_record_decoder.decode(body) if body is not None else Damage(start, stop, torn=False))
        except msgspec.MsgspecError:
            if start == 0:
                break
            records.append(Damage(start, stop, torn=False))
        end = stop
    if end < len(content):
        records.append(Damage(end, len(content), torn=True))
    return SpoolFile(header, records, end)
