"""Reads the segments of a task as Arrow batches. asyncpg reads them twice as fast as psycopg does (ADR 12)."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from .batches import batches
from .columns import Some, Wanted, keys_of
from .database import reading
from .options import ReadOptions
from .plan import Span, missing

_SEGMENTS_A_BATCH = 2_000
# With messages, bytes are limited: Arrow has at most 2 GiB of text per batch, and Java holds a batch in memory.
BYTES_A_BATCH = 32 << 20
_SEGMENTS_AT_FIRST = 20
_SELECT = """
SELECT w.ord - 1 AS place, s.last_off, s.n, s.created_at, s.ids, s.ends, s.data
FROM unnest($1::bigint [], $2::bigint [], $3::bigint []) WITH ORDINALITY AS w (part_id, since, last, ord)
CROSS JOIN LATERAL (
    SELECT
        g.last_off, g.n, (extract(epoch FROM g.created_at) * 1000000)::bigint AS created_at, {ids} AS ids,
        {ends} AS ends, {data} AS data
    FROM queen.segments AS g
    WHERE g.part_id = w.part_id AND g.last_off >= w.since AND g.last_off <= w.last AND g.n > 0
    ORDER BY g.last_off
) AS s
"""
_DELETED = """
SELECT w.ord - 1 AS place, lower(u.run) AS first, upper(u.run) AS after
FROM unnest($1::bigint []) WITH ORDINALITY AS w (part_id, ord)
JOIN queen.deleted_messages AS d ON d.part_id = w.part_id
CROSS JOIN LATERAL unnest(d.offsets) AS u (run)
"""


class Task(InputPartition):
    """The spans of one task."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = tuple(spans)


def read(options: ReadOptions, wanted: Wanted, task: InputPartition) -> Iterator[pa.RecordBatch]:
    """The messages of one task, by partition and offset.

    Raises:
        DataLossError: some were removed since the query was planned.
    """
    if not isinstance(task, Task):  # Spark's own, if there is nothing to read
        return
    with asyncio.Runner() as runner:
        found = _Reading(options, wanted, task.spans).batches()
        try:
            while (batch := runner.run(anext(found, None))) is not None:
                yield batch
        finally:
            runner.run(found.aclose())


class _Reading:
    """The reading of one task."""

    def __init__(self, options: ReadOptions, wanted: Wanted, spans: Sequence[Span]) -> None:
        self._options, self._wanted, self._spans = options, wanted, spans
        self._keys = keys_of(options.encryption_keys)
        self._since = np.array([span.since for span in spans])
        self._till = np.array([span.till for span in spans])
        self._deleted: dict[int, list[tuple[int, int]]] = {}
        self._count = 0

    async def batches(self) -> AsyncGenerator[pa.RecordBatch]:
        places = [span.place.number for span in self._spans]
        async with reading(self._options.dsn, self._options.snapshot) as connection:
            if not self._options.include_deleted:
                for place, first, after in await connection.fetch(_DELETED, places):
                    self._deleted.setdefault(place, []).append((first, after))
            query = _SELECT.format(
                ids="g.ids" if self._wanted.ids else "NULL",
                ends="g.ends" if self._wanted.data else "NULL",
                data="g.data" if self._wanted.data else "NULL",
            )
            last = [span.last for span in self._spans]
            cursor = await connection.cursor(query, places, self._since.tolist(), last)
            number = _SEGMENTS_AT_FIRST if self._wanted.data else _SEGMENTS_A_BATCH
            while rows := await cursor.fetch(number):
                for some in batches(rows, size_of, BYTES_A_BATCH) if self._wanted.data else [rows]:
                    yield self._batch(some)
                if self._wanted.data:
                    number = _segments_of_a_batch(rows)
        wanted = sum(span.n for span in self._spans)
        if self._count < wanted and self._options.fail_on_data_loss:
            raise missing(self._count, wanted)

    def _batch(self, rows: list[Any]) -> pa.RecordBatch:
        place, last, n, created = (np.array([row[column] for row in rows], np.int64) for column in range(4))
        ids, ends, data = ([row[column] for row in rows] for column in (4, 5, 6))
        places = [span.place for span in self._spans]
        some = Some(places, place, last - n + 1, n, created, ids, ends, data, self._keys)
        kept = self._kept(some, last)
        batch = self._wanted.batch(some)
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
    return len(row[6])


def _segments_of_a_batch(rows: list[Any]) -> int:
    """The number of such segments per batch."""
    mean = sum(map(size_of, rows)) // len(rows)
    return min(max(BYTES_A_BATCH // max(mean, 1), 1), _SEGMENTS_A_BATCH)
