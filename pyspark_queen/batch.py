"""Reads the log as a table."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from . import plan, segments
from .columns import Wanted
from .database import each, reading, run
from .options import ReadOptions, micros
from .plan import Bounds

_COLUMNS = {"queue": "queues", "partition": "partitions"}


class _Filters:
    """Spark refuses a reader that has ``pushFilters`` while its setting for it is off, which is the default.

    So to Spark's question it is the method that every reader has. Filters only choose what is read: Spark applies them
    itself, too.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: "QueenReader") -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        for wanted in filters:
            self._reader.bounds = narrowed(self._reader.bounds, wanted)
        return filters


class QueenReader(DataSourceReader):
    """All that was committed when the query was planned: the log grows at its ends only, so their offsets suffice."""

    def __init__(self, options: ReadOptions, wanted: Wanted) -> None:
        self._options, self._wanted = options, wanted
        self.bounds = Bounds()

    @property
    def pushFilters(self) -> _Filters:  # noqa: N802 - Spark's name
        """Takes the filters of the query."""
        return _Filters(self)

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks."""
        return run(self._tasks())

    async def _tasks(self) -> list[segments.Task]:
        async with each(self._options.logs, reading) as databases:
            chosen = await plan.ranges(databases, self._options, self.bounds)
            return [
                segments.Task(spans, log)
                for (log, connection), some in zip(databases, chosen, strict=True)
                for spans in await plan.tasks(connection, some, self._options, with_data=self._wanted.data)
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        return segments.read(self._options, self._wanted, partition)


def narrowed(bounds: Bounds, wanted: Filter) -> Bounds:
    """The bounds with one filter more, if it is about queue, partition, offset or time."""
    match wanted:
        case EqualTo((name,), value) | EqualNullSafe((name,), value) if name in _COLUMNS:
            bounds = bounds.names(_COLUMNS[name], [str(value)])
        case In((name,), values) if name in _COLUMNS:
            bounds = bounds.names(_COLUMNS[name], map(str, values))
        case EqualTo((name,), value) | EqualNullSafe((name,), value):
            bounds = _before(_from(bounds, name, value, 0), name, value, 1)
        case GreaterThanOrEqual((name,), value):
            bounds = _from(bounds, name, value, 0)
        case GreaterThan((name,), value):
            bounds = _from(bounds, name, value, 1)
        case LessThan((name,), value):
            bounds = _before(bounds, name, value, 0)
        case LessThanOrEqual((name,), value):
            bounds = _before(bounds, name, value, 1)
    return bounds


def _from(bounds: Bounds, name: str, value: object, more: int) -> Bounds:
    match name, value:
        case "offset", int(offset):
            return bounds.from_offset(offset + more)
        case "createdAt", datetime() as time:
            return bounds.from_time(micros(time) + more)
    return bounds


def _before(bounds: Bounds, name: str, value: object, more: int) -> Bounds:
    match name, value:
        case "offset", int(offset):
            return bounds.before_offset(offset + more)
        case "createdAt", datetime() as time:
            return bounds.before_time(micros(time) + more)
    return bounds
