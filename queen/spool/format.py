"""The format of a spool file: a header, then records, each with its length and a checksum. Pure.

::

    file   = frame(header) frame(record) frame(record) …
    frame  = length of the body, 4 bytes big-endian | CRC-32 of length and body, 4 bytes big-endian | body (MessagePack)

A file ends where a frame is cut short or its checksum is wrong: the *torn* end of a write that a crash interrupted. The
checksum covers the length, so that a run of zeros, which some file systems leave behind, is no frame.
"""

import zlib
from array import array
from collections.abc import Iterator, Sequence
from uuid import UUID

import msgspec
from msgspec import Struct

from queen.core.operations import Lot, Push

_PREFIX_BYTES = 8
#: A length beyond this is no length: the largest body of a request, many times.
_BODY_BYTES_MAX = 1 << 31


class Header(Struct, frozen=True, array_like=True):
    """The first frame of a file.

    Attributes:
        file: by which PostgreSQL knows how far the file has been replayed.
        installation: the database that the messages are for.
        created_at: seconds since 1970.
    """

    file: UUID
    installation: UUID
    created_at: float
    format: str = "queen spool 1"


class SpooledLot(Struct, frozen=True, array_like=True):
    """A ``Lot`` without its places; ``lengths`` are 4 bytes each, in the byte order of this machine."""

    queue: str
    partition: str
    body: bytes
    lengths: bytes
    ids: list[str] | None


class Record(Struct, frozen=True, array_like=True):
    """The pushes that one flush of the engine would have stored.

    Attributes:
        flush: the id under which the flush was sent to PostgreSQL, if it was.
        sent_at: when that was, in seconds since 1970, if it was and its outcome is not known; else ``None``.
        written_at: seconds since 1970.
        requests: the lots of each push request.
        reason: why PostgreSQL refused it, in a record that was set aside; why it is not stored yet, in one that is
            held back.
        place: the number of its first request in the file that it comes from, in a record that is held back.
    """

    flush: UUID
    sent_at: float | None
    written_at: float
    requests: list[list[SpooledLot]]
    reason: str = ""
    place: int = 0

    @property
    def messages(self) -> int:
        """How many messages it holds."""
        return sum(len(lot.lengths) // 4 for lots in self.requests for lot in lots)


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
    """The lengths of a lot as they stand in a record."""
    return array("I", lengths).tobytes()


def spool_request(push: Push) -> list[SpooledLot]:
    """What a record keeps of a request."""
    return [
        SpooledLot(
            lot.queue, lot.partition, lot.body, packed(lot.lengths), list(lot.ids) if lot.ids is not None else None
        )
        for lot in push.lots
    ]


def request_of(lots: Sequence[SpooledLot]) -> Push:
    """The request again; its items are numbered lot by lot."""
    restored, items = [], 0
    for lot in lots:
        lengths = array("I", lot.lengths)
        places = range(items, items + len(lengths))
        restored.append(Lot(lot.queue, lot.partition, places, lot.body, lengths, lot.ids))
        items += len(lengths)
    return Push(restored, items)


class Damage(Struct, frozen=True):
    """Bytes of a file that are no record; ``torn``: nothing that could be read comes after them."""

    start: int
    end: int
    torn: bool


class SpoolFile(Struct, frozen=True):
    """A file as it was read.

    Attributes:
        records: in order; ``Damage`` where bytes stand that are none.
        end: where the readable part ends.
    """

    header: Header | None
    records: list[Record | Damage]
    end: int

    @property
    def requests(self) -> int:
        """How many push requests it holds."""
        return sum(len(record.requests) for record in self.records if isinstance(record, Record))

    @property
    def messages(self) -> int:
        """How many messages it holds."""
        return sum(record.messages for record in self.records if isinstance(record, Record))


def _body_at(data: memoryview, start: int) -> tuple[memoryview | None, int | None]:
    """The body of the frame at ``start``, ``None`` if it is damaged, and where the next begins, if that is known."""
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
    """Start, end and body of each frame up to the first torn one, which is not among them."""
    start = 0
    while start < len(data):
        body, end = _body_at(data, start)
        if end is None or (body is None and _body_at(data, end)[0] is None):
            return
        yield start, end, body
        start = end


def read_file(content: bytes) -> SpoolFile:
    """The header and records of a file; ``header`` is ``None`` if not even that is whole.

    A damaged frame between two whole ones is damage of the disk, and only that frame is lost.
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
