"""Reads the segments of a task as Arrow batches. asyncpg reads them twice as fast as psycopg does (ADR 12)."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import suppress
from typing import Any

import asyncpg
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from .batches import batches
from .columns import Some, Wanted, flaw, keys_of
from .database import Connection, reading
from .errors import SourceError
from .options import Log, ReadOptions
from .plan import Span, missing

_SEGMENTS_A_BATCH = 2_000
# With messages, bytes are limited: Arrow has at most 2 GiB of text per batch, and Java holds a batch in memory.
BYTES_A_BATCH = 32 << 20
_SEGMENTS_AT_FIRST = 20
_SELECT = """
SELECT w.ord - 1 AS place, s.last_off, s.n, s.created_at, s.ids, s.ends, s.data, s.ends_bytes, NULL AS flaw
FROM unnest($1::bigint [], $2::bigint [], $3::bigint []) WITH ORDINALITY AS w (part_id, since, last, ord)
CROSS JOIN LATERAL (
    SELECT
        g.last_off, g.n, (extract(epoch FROM g.created_at) * 1000000)::bigint AS created_at, {ids} AS ids,
        {ends} AS ends, {data} AS data, octet_length(g.ends) AS ends_bytes
    FROM queen.segments AS g
    WHERE g.part_id = w.part_id AND g.last_off >= w.since AND g.last_off <= w.last AND g.n > 0
    ORDER BY g.last_off
) AS s
"""
_BEFORE = "SELECT max(last_off) FROM queen.segments WHERE part_id = $1 AND last_off < $2"
_DELETED = """
SELECT w.ord - 1 AS place, lower(u.run) AS first, upper(u.run) AS after
FROM unnest($1::bigint []) WITH ORDINALITY AS w (part_id, ord)
JOIN queen.deleted_messages AS d ON d.part_id = w.part_id
CROSS JOIN LATERAL unnest(d.offsets) AS u (run)
"""


_UNREADABLE = asyncpg.InternalServerError


class Task(InputPartition):
    """The spans of one task, which are in one database."""

    def __init__(self, spans: Sequence[Span], log: Log) -> None:
        self.spans, self.log = tuple(spans), log


def read(options: ReadOptions, wanted: Wanted, task: InputPartition) -> Iterator[pa.RecordBatch]:
    """The messages of one task, by partition and offset.

    Raises:
        DataLossError: some were removed since the query was planned.
    """
    if not isinstance(task, Task):  # Spark's own, if there is nothing to read
        return
    with asyncio.Runner() as runner:
        found = _Reading(options, wanted, task).batches()
        try:
            while (batch := runner.run(anext(found, None))) is not None:
                yield batch
        finally:
            # The end of a reader that is no longer asked, with a connection that is lost, is no error of its own.
            with suppress(SourceError):
                runner.run(found.aclose())


class _Reading:
    """The reading of one task."""

    def __init__(self, options: ReadOptions, wanted: Wanted, task: Task) -> None:
        self._options, self._wanted, self._spans, self._log = options, wanted, task.spans, task.log
        self._keys = keys_of(options.encryption_keys)
        self._since = np.array([span.since for span in task.spans])
        self._till = np.array([span.till for span in task.spans])
        self._deleted: dict[int, list[tuple[int, int]]] = {}
        self._count = 0

    async def batches(self) -> AsyncGenerator[pa.RecordBatch]:
        places = [span.place.number for span in self._spans]
        async with reading(self._log) as connection:
            if not self._options.include_deleted:
                for place, first, after in await connection.fetch(_DELETED, places):
                    self._deleted.setdefault(place, []).append((first, after))
            query = self._query()
            async for rows in self._rows(connection, query, places):
                for some in batches(rows, size_of, BYTES_A_BATCH) if self._wanted.data else [rows]:
                    async for batch in self._batches(connection, some):
                        yield batch
        wanted = sum(span.n for span in self._spans)
        if self._count < wanted and self._options.fail_on_data_loss:
            raise missing(self._count, wanted)

    def _query(self) -> str:
        ends = data = "NULL"
        if self._wanted.data:
            ends, data = "g.ends", "g.data"
        return _SELECT.format(ids="g.ids" if self._wanted.ids else "NULL", ends=ends, data=data)

    async def _rows(self, connection: Connection, query: str, places: list[int]) -> AsyncGenerator[list[Any]]:
        """The segments. Those that PostgreSQL itself cannot read have a text of it in the place of their data."""
        lasts = [span.last for span in self._spans]
        number, seen = _SEGMENTS_AT_FIRST if self._wanted.data else _SEGMENTS_A_BATCH, (-1, -1)
        try:
            async with connection.transaction():
                cursor = await connection.cursor(query, places, self._since.tolist(), lasts)
                while rows := await cursor.fetch(number):
                    yield rows
                    seen = (rows[-1][0], rows[-1][1])
                    if self._wanted.data:
                        number = _segments_of_a_batch(rows)
        except _UNREADABLE:
            plain = _SELECT.format(ids="NULL", ends="NULL", data="NULL")
            there = await connection.fetch(plain, places, self._since.tolist(), lasts)
            keys = [row for row in there if (row[0], row[1]) > seen]
        else:
            return
        for begin in range(0, len(keys), number):
            yield await self._halved(connection, query, keys[begin : begin + number])

    async def _halved(self, connection: Connection, query: str, keys: list[Any]) -> list[Any]:
        """These segments, found in ever smaller parts, and what PostgreSQL says of those that it cannot read."""
        parts = [self._spans[row[0]].place.number for row in keys]
        ends = [row[1] for row in keys]
        try:
            async with connection.transaction():
                return [
                    (key[0], *row[1:])
                    for key, row in zip(keys, await connection.fetch(query, parts, ends, ends), strict=True)
                ]
        except _UNREADABLE as problem:
            if len(keys) == 1:
                return [(*keys[0][:4], None, None, None, keys[0][7], f"PostgreSQL says: {problem}")]
        middle = len(keys) // 2
        halves = (keys[:middle], keys[middle:])
        return [row for half in halves for row in await self._halved(connection, query, half)]

    async def _batches(self, connection: Connection, rows: list[Any]) -> AsyncGenerator[pa.RecordBatch]:
        """One of the segments that can be read, and one of each other."""
        flaws = [row[8] or flaw(row[2], row[4], row[7], row[5], row[6]) for row in rows]
        if good := [row for row, why in zip(rows, flaws, strict=True) if why is None]:
            some = self._some(good)
            yield self._filtered(some, self._wanted.batch(some))
        for row, why in zip(rows, flaws, strict=True):
            if why is None:
                continue
            place = self._spans[row[0]].place
            # What it says of itself is not to be trusted: it begins behind the one before it.
            before = await connection.fetchval(_BEFORE, place.number, row[1])
            n = row[1] - before if before is not None else min(row[2], row[7] // 4 or 1)
            text = f"the segment with offsets {row[1] - n + 1} to {row[1]} is damaged: {why}"
            if self._wanted.damage:
                some = self._some([(*row[:2], n, *row[3:])])
                yield self._filtered(some, self._wanted.damaged(some, text))
            elif self._options.fail_on_data_loss:
                raise SourceError(f"{place.queue}/{place.partition}: {text}. To go on without it: failOnDataLoss=false")

    def _some(self, rows: Sequence[Any]) -> Some:
        place, last, n, created = (np.array([row[column] for row in rows], np.int64) for column in range(4))
        ids, ends, data = ([row[column] for row in rows] for column in (4, 5, 6))
        places = [span.place for span in self._spans]
        return Some(places, place, last - n + 1, n, created, ids, ends, data, self._keys)

    def _filtered(self, some: Some, batch: pa.RecordBatch) -> pa.RecordBatch:
        kept = self._kept(some, some.first + some.n - 1)
        return batch if kept is None else batch.filter(pa.array(kept))

    def _kept(self, some: Some, last: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_] | None:
        """Which messages are wanted; none if all are."""
        since, till = self._since[some.place], self._till[some.place]
        self._count += int((np.minimum(last + 1, till) - np.maximum(some.first, since)).sum())
        if not self._deleted and (some.first >= since).all() and (last < till).all():
            return None
        offsets = some.offsets()
        kept = (offsets >= some.each(since)) & (offsets < some.each(till))
        if self._deleted:
            places = some.each(some.place)
            for place in self._deleted.keys() & set(some.place.tolist()):
                for first, after in self._deleted[place]:
                    kept &= ~((places == place) & (offsets >= first) & (offsets < after))
        return kept


def size_of(row: Any) -> int:  # noqa: ANN401 - a record of asyncpg
    """The bytes of a segment with its messages."""
    return len(row[6] or b"")


def _segments_of_a_batch(rows: list[Any]) -> int:
    """The number of such segments per batch."""
    mean = sum(map(size_of, rows)) // len(rows)
    return min(max(BYTES_A_BATCH // max(mean, 1), 1), _SEGMENTS_A_BATCH)
