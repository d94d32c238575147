"""Writes rows as messages. Each has a transaction id, so what a repeated task writes again is dropped."""

from collections.abc import Callable, Iterator
from hashlib import blake2b
from uuid import uuid4

import msgspec
import pyarrow as pa
from msgspec import Raw, Struct
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from .batches import batches
from .columns import TYPES, check_type
from .errors import OptionError, SourceError
from .options import WriteOptions, nearest

_COLUMNS = ("queue", "partition", "payload", "transactionId", "traceId", "headers")
_ONLY_BY_HTTP = ("traceId", "headers")
_BYTES_A_CALL = 4 << 20
_DIGEST_BYTES = 12
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_json = msgspec.json.Decoder(Raw)


class Message(Struct, frozen=True, omit_defaults=True):
    """An item of a push."""

    queue: str
    partition: str
    payload: Raw
    transactionId: str  # noqa: N815 - the interface's names
    traceId: str | None = None  # noqa: N815
    headers: dict[str, str] | None = None


def check(schema: StructType, options: WriteOptions, *, overwrite: bool) -> None:
    """Checks what can be known before anything is written.

    Raises:
        OptionError: columns or mode are wrong, or no queue is named.
    """
    if overwrite:
        raise OptionError("messages of a queue cannot be overwritten: use the mode append")
    for field in schema.fields:
        if field.name not in _COLUMNS:
            raise OptionError(
                f"a message has no column {field.name}{nearest(field.name, dict.fromkeys(_COLUMNS))}. Other columns "
                "belong into payload: to_json(struct(…)) AS payload"
            )
        check_type(field.name, field.dataType, TYPES[field.name])
    names = schema.fieldNames()
    if "payload" not in names:
        raise OptionError(
            "the column payload is missing: the JSON of the messages, such as to_json(struct(*)) AS payload"
        )
    if "queue" not in names and options.queue is None:
        raise OptionError("name the queue: the option queue, or a column queue")
    if options.dsn is not None and (here := [name for name in _ONLY_BY_HTTP if name in names]):
        raise OptionError(f"queen.push_many takes no {here[0]}: write with url, or without this column")


class _Ids:
    """Makes transaction ids: of the write, its epoch, Spark's partition, and the row itself.

    Not of the row's position: Spark may repeat a task with its rows in another order. Equal rows of a task are counted.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix, self._seen = prefix, dict[bytes, int]()

    def of(self, queue: str, partition: str, payload: bytes, headers: dict[str, str] | None) -> str:
        """The id of the next row."""
        place = msgspec.json.encode((queue, partition))
        beside = msgspec.json.encode(headers, order="sorted") if headers else b""
        digest = blake2b(place + payload + beside, digest_size=_DIGEST_BYTES).digest()
        before = self._seen.get(digest, 0)
        self._seen[digest] = before + 1
        return f"{self._prefix}:{digest.hex()}" + (f":{before}" if before else "")


def messages(
    rows: Iterator[pa.RecordBatch], options: WriteOptions, ids: Callable[[str, str, bytes, dict[str, str] | None], str]
) -> Iterator[Message]:
    """The rows as messages.

    Raises:
        SourceError: a row is none.
    """
    for batch in rows:
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        nothing = [None] * batch.num_rows
        each = (columns.get(name, nothing) for name in _COLUMNS)
        for queue, partition, payload, transaction_id, trace_id, pairs in zip(*each, strict=True):
            queue = queue or options.queue  # noqa: PLW2901 - the option is for rows without one
            if queue is None:
                raise SourceError("a row has no queue: name one in the option queue, or fill the column")
            if payload is None:
                raise SourceError("a row has no payload; JSON's null is the text null")
            partition = partition or options.partition or "Default"  # noqa: PLW2901 - as above
            text = payload.encode()
            raw = _raw(payload, text)
            headers = _headers(pairs)
            yield Message(
                queue, partition, raw, transaction_id or ids(queue, partition, text, headers), trace_id, headers
            )


def _raw(payload: str, text: bytes) -> Raw:
    try:
        return _json.decode(text)
    except msgspec.DecodeError as problem:
        raise SourceError(f"a payload is not JSON ({problem}): {payload[:80]!r}. Text needs to_json") from None
    except RecursionError:
        raise SourceError(f"a payload is nested too deeply: {payload[:80]!r}") from None


def _headers(pairs: list[tuple[str, str | None]] | None) -> dict[str, str] | None:
    """The headers of a row; none if it has none."""
    headers = {name: value for name, value in pairs or () if value is not None}
    if len(headers) < len(pairs or ()):
        raise SourceError(f"a row has a header without a value, {dict(pairs or ())}: leave it out, or give a text")
    return headers or None


def push(rows: Iterator[pa.RecordBatch], options: WriteOptions, write_id: str) -> WriterCommitMessage:
    """Pushes the rows of one task, in their order."""
    from .sinks import HttpSink, SqlSink  # noqa: PLC0415 - tasks that read should not pay for an HTTP client

    context = TaskContext.get()
    number = context.partitionId() if context else 0
    found = messages(rows, options, _Ids(f"{write_id}:{number}").of)
    # A call has a number of messages, and not much more than a number of bytes.
    weight = max(_BYTES_A_CALL // options.batch_size, 1)
    with HttpSink(options) if options.url else SqlSink(options) as sink:
        for some in batches(found, lambda each: max(len(each.payload), weight), _BYTES_A_CALL):
            sink.push(some)
    return WriterCommitMessage()


class QueenWriter(DataSourceArrowWriter):
    """Writes a table."""

    def __init__(self, options: WriteOptions) -> None:
        self._options, self._write_id = options, options.write_id or uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of one task."""
        return push(iterator, self._options, self._write_id)


class QueenStreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of one task of a batch; query and batch have the same names after a restart."""
        context = TaskContext.get()
        query, batch = (context.getLocalProperty(name) if context else None for name in (_QUERY, _BATCH))
        if not query or not batch:
            raise SourceError("Spark does not say of which query and batch a task is")
        return push(iterator, self._options, f"{self._options.write_id or query}:{batch}")
