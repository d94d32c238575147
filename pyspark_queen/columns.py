"""The columns of the log, and how each is made of segments."""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Raw, Struct
from pyspark.sql.types import DataType, StructType

from .errors import OptionError, SourceError
from .options import nearest

DEFAULT = (
    "queue string, partition string, offset bigint, transactionId string, payload string, "
    "headers map<string, string>, createdAt timestamp, producerSub string, traceId string"
)
"""What is read unless a schema is given."""

TYPES = {
    "queue": "string",
    "partition": "string",
    "offset": "bigint",
    "transactionId": "string",
    "payload": "string",
    "headers": "map<string,string>",
    "createdAt": "timestamp",
    "producerSub": "string",
    "traceId": "string",
    # Those that only a schema names: the number of the partition, which distinguishes successive queues of one name;
    # 60 bits of the SHA-256 of a transaction id that its producer chose; and the stored JSON of the whole message.
    "partitionNumber": "bigint",
    "transactionHash": "bigint",
    "message": "string",
    # Why a segment cannot be read: its messages have only their place and time. Without this column it is an error.
    "damage": "string",
    # 52 bits of the SHA-256 of the payload, and of its JSON with sorted keys and no spaces if that differs; null if it
    # is encrypted. 60 bits of both halves of the stored hash of the transaction id, and whether that is the hash of
    # another one.
    "payloadHash": "bigint",
    "sortedHash": "bigint",
    "idKey": "bigint",
    "idDiffers": "boolean",
    # The name of the one of several databases.
    "database": "string",
}
_OF_IDS = frozenset({"transactionHash", "idKey", "idDiffers"})
_DECODED = frozenset(
    {"transactionId", "payload", "headers", "producerSub", "traceId", "payloadHash", "sortedHash", "idDiffers"}
)
_PLACED = frozenset({"queue", "partition", "offset", "createdAt", "partitionNumber", "database"})
_PLAIN = b'{"payload":'


class Stored(Struct, frozen=True, gc=False):
    """A message as segments have it."""

    payload: Raw
    transactionId: str | None = None  # noqa: N815 - the stored names
    traceId: str | None = None  # noqa: N815
    producerSub: str | None = None  # noqa: N815
    keyId: str | None = None  # noqa: N815
    headers: str | None = None
    """A text that holds JSON: so SQL finds the end of the fields."""


def stored(message: bytes) -> Stored:
    """A message, from its JSON."""
    return Stored(Raw(message[len(_PLAIN) : -1])) if message.startswith(_PLAIN) else _decoder.decode(message)


def headers_of(message: Stored) -> list[tuple[str, str]] | None:
    """Its headers, if it has some."""
    return list(_headers.decode(message.headers).items()) if message.headers else None


def id_of(part: int, offset: int) -> str:
    """The id of a message."""
    return f"{_prefix(part)}{offset:012x}"


_decoder = msgspec.json.Decoder(Stored)
_all = msgspec.json.Decoder(list[Stored])
_headers = msgspec.json.Decoder(dict[str, str])
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class Keys(Protocol):
    """Decrypts payloads (``queen.security.keyring.Keyring``)."""

    def __contains__(self, name: str) -> bool:
        """Whether there is the key of this id."""

    def open(self, name: str, sealed: bytes, queue: str, partition: str) -> bytes:
        """The payload; raises an error if it cannot be decrypted."""


def keys_of(keys: Sequence[str]) -> Keys | None:
    """The keys, from their hexadecimal digits."""
    if not keys:
        return None
    from queen.security.keyring import Keyring  # noqa: PLC0415 - only who decrypts needs the server's packages

    first, *others = map(bytes.fromhex, keys)
    return Keyring(first, others)


class Place(Struct, frozen=True):
    """A partition; ``database``: the name of the one of several that has it."""

    number: int
    queue: str
    partition: str
    database: str = ""


class Some(Struct):
    """Segments of a task: by segment, its partition's position in ``places``, first offset, messages, and time."""

    places: Sequence[Place]
    place: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    n: npt.NDArray[np.int64]
    created: npt.NDArray[np.int64]
    ids: list[bytes | None]
    ends: list[bytes]
    data: list[bytes]
    keys: Keys | None
    _decoded: list[Stored] | None = None

    def offsets(self) -> npt.NDArray[np.int64]:
        """The offset of each message."""
        ends = np.cumsum(self.n)
        return np.arange(ends[-1]) - np.repeat(ends - self.n - self.first, self.n)

    def each(self, of_segment: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """A value of each segment, for each message."""
        return np.repeat(of_segment, self.n)

    def messages(self) -> list[bytes]:
        """The stored JSON of each message."""
        return [message for ends, data in zip(self.ends, self.data, strict=True) for message in _messages(ends, data)]

    def stored(self) -> list[Stored]:
        """Each message."""
        if self._decoded is None:
            self._decoded = [stored(message) for message in self.messages()]
        return self._decoded

    def payloads(self) -> list[bytes]:
        """The payload of each message, decrypted."""
        return [
            bytes(message.payload) if message.keyId is None else self._opened(message, number)
            for number, message in enumerate(self.stored())
        ]

    def _opened(self, message: Stored, number: int) -> bytes:
        place = self.places[self.each(self.place)[number]]
        where = f"the payload of {place.queue}/{place.partition}, offset {self.offsets()[number]}, is encrypted"
        if self.keys is None:
            raise SourceError(f"{where}: give its key, option encryptionKeys")
        key = message.keyId or ""
        if key not in self.keys:
            raise SourceError(f"{where}, and cannot be decrypted: its key {key[:16]} is not among encryptionKeys")
        try:
            return self.keys.open(key, bytes(message.payload), place.queue, place.partition)
        except Exception as problem:
            raise SourceError(f"{where}, and cannot be decrypted with encryptionKeys: {problem}") from problem

    def transaction_ids(self) -> list[str]:
        """Those that producers chose, and message ids of the others."""
        prefixes = [_prefix(place.number) for place in self.places]
        places, offsets = self.each(self.place).tolist(), self.offsets().tolist()
        return [
            f"{prefixes[place]}{offset:012x}" if message.transactionId is None else message.transactionId
            for message, place, offset in zip(self.stored(), places, offsets, strict=True)
        ]

    def names(self, of: Callable[[Place], str]) -> pa.Array:
        """A name of each message's partition."""
        return pa.array([of(place) for place in self.places], pa.string()).take(pa.array(self.each(self.place)))

    def hashes(self) -> pa.Array:
        """The first 60 bits of the hash of each transaction id; null if the server assigned it."""
        whole = b"".join(self._ids())
        first = np.frombuffer(whole, ">u8")[::2].astype(np.uint64) >> np.uint64(4)
        return pa.array(first.astype(np.int64), mask=first == 0)

    def id_keys(self) -> pa.Array:
        """Bits of both halves of the hash of each transaction id; null if the server assigned it."""
        whole = np.frombuffer(b"".join(self._ids()), ">u8").astype(np.uint64)
        high, low = whole[::2], whole[1::2]
        keys = (high >> np.uint64(4)) ^ (low & np.uint64((1 << 60) - 1))
        return pa.array(keys.astype(np.int64), mask=high == 0)

    def _ids(self) -> list[bytes]:
        """The stored hashes of each segment."""
        return [bytes(16 * n) if ids is None else ids for ids, n in zip(self.ids, self.n.tolist(), strict=True)]

    def ids_that_differ(self) -> list[bool]:
        """Whether the stored hash is not that of the transaction id."""
        whole = b"".join(self._ids())
        return [
            whole[16 * place : 16 * place + 16] != (bytes(16) if name is None else _digest(name.encode())[:16])
            for place, name in enumerate(message.transactionId for message in self.stored())
        ]

    def payload_hashes(self, form: Callable[[bytes], bytes | None]) -> list[int | None]:
        """The hash of each payload in this form; null if it is encrypted, or has no such form."""
        texts = (None if message.keyId else form(bytes(message.payload)) for message in self.stored())
        return [None if text is None else int.from_bytes(_digest(text)[:7], "big") >> 4 for text in texts]


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def _sorted(payload: bytes) -> bytes | None:
    """JSON with sorted keys and without spaces; none if the payload is in this form, or has none."""
    try:
        if _encode_sorted(msgspec.json.decode(payload)) == payload:
            return None
        value = json.loads(payload)
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None


def _prefix(part: int) -> str:
    """The ids of a partition's messages begin so; the offset follows."""
    high = f"{part:012x}"
    return f"{high[:8]}-{high[8:]}-8001-8000-"


def _messages(ends: bytes, data: bytes) -> list[bytes]:
    """The JSON objects of a segment: its data is their array, and ``ends`` has the end of each."""
    stops = np.frombuffer(ends, ">u4").tolist()
    return [data[begin + 1 : end] for begin, end in zip([0, *stops[:-1]], stops, strict=True)]


_MAKERS: dict[str, Callable[[Some], object]] = {
    "queue": lambda some: some.names(lambda place: place.queue),
    "partition": lambda some: some.names(lambda place: place.partition),
    "offset": Some.offsets,
    "transactionId": Some.transaction_ids,
    "payload": Some.payloads,
    "headers": lambda some: [headers_of(m) for m in some.stored()],
    "createdAt": lambda some: some.each(some.created),
    "producerSub": lambda some: [m.producerSub for m in some.stored()],
    "traceId": lambda some: [m.traceId for m in some.stored()],
    "database": lambda some: some.names(lambda place: place.database),
    "partitionNumber": lambda some: np.array([place.number for place in some.places])[some.each(some.place)],
    "transactionHash": Some.hashes,
    "message": Some.messages,
    "payloadHash": lambda some: some.payload_hashes(lambda payload: payload),
    "sortedHash": lambda some: some.payload_hashes(_sorted),
    "idKey": Some.id_keys,
    "idDiffers": Some.ids_that_differ,
    "damage": lambda some: [None] * int(some.n.sum()),
}


def flaw(n: int, ids: bytes | None, ends_bytes: int, ends: bytes | None, data: bytes | None) -> str | None:
    """Why a segment cannot be read; its data is looked at if it is given."""
    if ids is not None and len(ids) != 16 * n:
        return f"it has {n} messages, and {len(ids)} bytes of hashes, not {16 * n}"
    if ends_bytes != 4 * n:
        return f"it has {n} messages, and {ends_bytes} bytes of their ends, not {4 * n}"
    if ends is None or data is None:
        return None
    return _flaw_of_data(n, np.frombuffer(ends, ">u4").astype(np.int64), data)


def _flaw_of_data(n: int, stops: npt.NDArray[np.int64], data: bytes) -> str | None:
    if stops[-1] + 1 != len(data) or (np.diff(stops, prepend=0) < 1).any():
        return f"the ends of its messages do not fit its data of {len(data)} bytes"
    marks = np.frombuffer(data, np.uint8)[stops]
    if data[:1] != b"[" or (marks[:-1] != ord(",")).any() or marks[-1] != ord("]"):
        return "its messages do not end where they should"
    try:
        data.decode()
        number = len(_all.decode(data))
    except (UnicodeDecodeError, msgspec.DecodeError) as problem:
        return f"its data is not JSON: {problem}"
    return None if number == n else f"it has {n} messages, and its data has {number}"


class Wanted(Struct, frozen=True):
    """The columns that a query names."""

    names: tuple[str, ...]
    schema: Any
    """Of Arrow."""

    @property
    def ids(self) -> bool:
        """Whether hashes are needed."""
        return not _OF_IDS.isdisjoint(self.names)

    @property
    def data(self) -> bool:
        """Whether the messages are needed."""
        return "message" in self.names or not _DECODED.isdisjoint(self.names)

    @property
    def damage(self) -> bool:
        """Whether it is told what cannot be read."""
        return "damage" in self.names

    def batch(self, some: Some) -> pa.RecordBatch:
        """One row per message."""
        if not self.names:
            return _without_columns(int(some.n.sum()))
        columns = []
        for name, field in zip(self.names, self.schema, strict=True):
            made = _MAKERS[name](some)
            if not isinstance(made, pa.Array):
                made = pa.array(made) if isinstance(made, np.ndarray) else pa.array(made, field.type)
            columns.append(made if made.type == field.type else made.cast(field.type))
        return pa.record_batch(columns, schema=self.schema)

    def damaged(self, some: Some, why: str) -> pa.RecordBatch:
        """The places and times of messages that cannot be read."""
        rows = int(some.n.sum())
        if not self.names:
            return _without_columns(rows)
        columns = []
        for name, field in zip(self.names, self.schema, strict=True):
            if name in _PLACED:
                made = _MAKERS[name](some)
                made = made if isinstance(made, pa.Array) else pa.array(made)
                columns.append(made if made.type == field.type else made.cast(field.type))
            else:
                columns.append(pa.array([why if name == "damage" else None] * rows, field.type))
        return pa.record_batch(columns, schema=self.schema)


def _without_columns(rows: int) -> pa.RecordBatch:
    """Only a struct can have rows without columns."""
    nothing = pa.StructArray.from_buffers(pa.struct([]), rows, [None], children=[])
    return pa.RecordBatch.from_struct_array(nothing)


def wanted(schema: StructType) -> Wanted:
    """The columns of a schema.

    Raises:
        OptionError: the log has no such column, or of another type.
    """
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - imports pandas

    for field in schema.fields:
        known = TYPES.get(field.name)
        if known is None:
            raise OptionError(f"the log has no column {field.name}{nearest(field.name, TYPES)}")
        check_type(field.name, field.dataType, known)
    return Wanted(tuple(field.name for field in schema.fields), to_arrow_schema(schema, timezone="UTC"))


def check_type(name: str, given: DataType, known: str) -> None:
    """Raises OptionError if a column has another type than it must have."""
    if given.simpleString() != known:
        raise OptionError(f"the column {name} is of type {known}, not {given.simpleString()}")
