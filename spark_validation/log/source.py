"""The segments as a Spark data source: each task reads one range under the snapshot of the driver.

Spark finds the class by its module, so executors need this package and asyncpg, and nothing else of the server.
asyncpg, because the server depends on it anyway and it reads segments twice as fast as psycopg does
(``docs/adr/0012-reading-the-log.md``).
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import asyncpg
import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ..batches import batches
from ..columns import arrow_schema, spark_schema
from ..inputs import LogRow, WholeRow

NAME = "queen_log"
SET_SNAPSHOT = "SET TRANSACTION SNAPSHOT '{}'"
_SEGMENTS_A_BATCH = 2_000
# With messages, bytes are limited: Arrow has at most 2 GiB of text per batch, and Java holds a batch in memory.
BYTES_A_BATCH = 32 << 20
_SEGMENTS_AT_FIRST = 20
_SELECT = """
SELECT part_id, last_off, n, (extract(epoch FROM created_at) * 1000000)::bigint AS created_at, ids{more}
FROM queen.segments
WHERE (part_id, last_off) > ($1::bigint, $2::bigint) AND (part_id, last_off) <= ($3::bigint, $4::bigint) AND n > 0
"""


class Span(Struct, frozen=True):
    """Segments after one key, up to and including another."""

    after_part: int
    after_off: int
    last_part: int
    last_off: int


class Task(InputPartition):
    """The range of one task."""

    def __init__(self, spans: list[Span]) -> None:
        self.spans = spans


class LogSource(DataSource):
    """Options: ``dsn``, ``snapshot`` (an exported one), ``tasks`` (lists of spans, JSON), ``whole``: with messages."""

    @property
    def _whole(self) -> bool:
        return self.options.get("whole") == "true"

    @classmethod
    def name(cls) -> str:
        """The name of the source in queries."""
        return NAME

    def schema(self) -> str:
        """One row per message."""
        return spark_schema(WholeRow if self._whole else LogRow)

    def reader(self, schema: object) -> "LogReader":  # noqa: ARG002 - Spark's signature
        """The reader for the tasks."""
        return LogReader(self.options["dsn"], self.options["snapshot"], self.options["tasks"], self._whole)


class LogReader(DataSourceReader):
    """Reads spans of segments, one row per message."""

    def __init__(self, dsn: str, snapshot: str, tasks: str, whole: bool) -> None:
        self._dsn, self._snapshot, self._whole = dsn, snapshot, whole
        self._tasks = msgspec.json.decode(tasks, type=list[list[Span]])

    def partitions(self) -> list[InputPartition]:
        """One partition per list of spans."""
        return [Task(spans) for spans in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        assert isinstance(partition, Task)
        with asyncio.Runner() as runner:
            batches = self._batches(partition.spans)
            try:
                while (batch := runner.run(anext(batches, None))) is not None:
                    yield batch
            finally:
                runner.run(batches.aclose())

    async def _batches(self, spans: list[Span]) -> AsyncGenerator[pa.RecordBatch]:
        query = _SELECT.format(more=", ends, data" if self._whole else "")
        connection = await asyncpg.connect(self._dsn, server_settings={"application_name": "queen audit"})
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                await connection.execute(SET_SNAPSHOT.format(self._snapshot))
                for span in spans:
                    cursor = await connection.cursor(query, *msgspec.structs.astuple(span))
                    count = _SEGMENTS_AT_FIRST if self._whole else _SEGMENTS_A_BATCH
                    while rows := await cursor.fetch(count):
                        if not self._whole:
                            yield explode(rows)
                            continue
                        for batch in batches(rows, size_of, BYTES_A_BATCH):
                            yield explode(batch, whole=True)
                        count = _segments_of_a_batch(rows)
        finally:
            await connection.close()


def size_of(row: Any) -> int:  # noqa: ANN401 - a record of asyncpg
    """The bytes of a segment with its messages."""
    return len(row[6])


def _segments_of_a_batch(rows: list[Any]) -> int:
    """The number of such messages per batch."""
    mean = sum(map(size_of, rows)) // len(rows)
    return min(max(BYTES_A_BATCH // max(mean, 1), 1), _SEGMENTS_A_BATCH)


def explode(rows: list[Any], *, whole: bool = False) -> pa.RecordBatch:
    """Segments as one row per message; the columns of the query in their order."""
    parts, last, n, created = (np.array([row[place] for row in rows], np.int64) for place in range(4))
    ends = np.cumsum(n)
    within = np.arange(ends[-1]) - np.repeat(ends - n, n)
    hashes = b"".join(row[4] if row[4] is not None else bytes(16 * row[2]) for row in rows)
    # The first 60 bits of each 16 bytes; zeros mean a server-assigned transaction id.
    first = np.frombuffer(hashes, ">u8")[::2].astype(np.uint64) >> np.uint64(4)
    columns = [
        pa.array(np.repeat(parts, n)),
        pa.array(np.repeat(last - n + 1, n) + within),
        pa.array(np.repeat(created, n)),
        pa.array(first.astype(np.int64), mask=first == 0),
    ]
    if whole:
        columns.append(pa.array([message for row in rows for message in _messages(row[5], row[6])], pa.string()))
    return pa.record_batch(columns, schema=arrow_schema(WholeRow if whole else LogRow))


def _messages(ends: bytes, data: bytes) -> Iterator[bytes]:
    """The JSON objects of a segment: its data is their array, and ``ends`` has the end of each."""
    begin = 0
    for end in np.frombuffer(ends, ">u4").tolist():
        yield data[begin + 1 : end]
        begin = end
