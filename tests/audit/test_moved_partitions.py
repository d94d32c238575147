"""Audits and partitions that move between databases."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

from pyspark_queen import segments
from pyspark_queen.batch import QueenReader
from pyspark_queen.columns import Wanted
from pyspark_queen.options import STREAM, read_options
from pyspark_queen.stream import QueenStreamReader
from spark_validation.archive import job
from spark_validation.archive.folder import locked, open_archive
from spark_validation.archive.job import Done
from spark_validation.errors import DatabaseError
from spark_validation.live.sources import Segments
from spark_validation.live.windows import Segment
from spark_validation.log.several import snapshot_of
from spec import model
from spec.guarantees import Level, checks
from tests.property.test_moves import LANE, PARTITION, QUEUE, broker, made
from tests.support.moving_broker import MovingBroker
from tests.support.shards import urls

__all__ = ["broker", "made"]


@checks("G-SHARD-8", level=Level.MODEL)
def test_an_audit_waits_for_the_end_of_a_move(broker: MovingBroker) -> None:
    """Else a partition might be in two snapshots, or in none."""
    broker.begin_move(LANE)
    with pytest.raises(DatabaseError, match="are being moved"):
        snapshot_of(urls(broker.databases)).__enter__()
    broker.end_moves()
    with snapshot_of(urls(broker.databases)) as snapshots:
        heads = [head for head in snapshots.state().heads if head.partition == PARTITION]
        assert [head.database for head in heads] == [broker.home(LANE)]


class Reader:
    """A stream, and a table, of the queue whose partition moves."""

    def __init__(self, broker: MovingBroker) -> None:
        given = {"dsn": urls(broker.databases), "queue": QUEUE, "startingOffsets": "earliest"}
        options = read_options(given, STREAM)
        self._options, self._wanted = options, Wanted(("offset",), pa.schema([("offset", pa.int64())]))
        self.stream = QueenStreamReader(options, self._wanted)
        self.ends = self.stream.initialOffset()

    def next(self) -> list[int]:
        """The offsets of the next batch of the stream."""
        start, self.ends = self.ends, self.stream.latestOffset()
        return self._offsets(self.stream.partitions(start, self.ends))

    def all(self) -> list[int]:
        """The offsets of the table."""
        return self._offsets(QueenReader(self._options, self._wanted).partitions())

    def _offsets(self, tasks: Sequence[InputPartition]) -> list[int]:
        batches = (batch for task in tasks for batch in segments.read(self._options, self._wanted, task))
        return sorted(offset for batch in batches for offset in batch["offset"].to_pylist())


KEPT = [*range(8), *range(9, 12)]  # 8 was deleted


@checks("G-SHARD-8", level=Level.MODEL)
def test_a_stream_reads_a_moving_partition_once(broker: MovingBroker) -> None:
    reader = Reader(broker)
    assert reader.next() == KEPT
    broker.begin_move(LANE)
    assert reader.next() == []
    broker.end_moves()
    assert reader.next() == []
    broker.perform(model.Push((model.PushItem(QUEUE, 12, PARTITION, None),)))
    assert reader.next() == [12]


@checks("G-SHARD-8", level=Level.MODEL)
def test_what_a_stream_has_seen_is_read_after_its_partition_was_sealed(broker: MovingBroker) -> None:
    reader = Reader(broker)
    reader.stream.latestOffset()
    broker.begin_move(LANE)
    assert reader.next() == KEPT


@checks("G-SHARD-8", level=Level.MODEL)
def test_a_table_has_a_moving_partition_once(broker: MovingBroker) -> None:
    reader = Reader(broker)
    broker.begin_move(LANE)
    assert reader.all() == KEPT
    broker.end_moves()
    assert reader.all() == KEPT


@checks("G-SHARD-8", level=Level.MODEL)
def test_a_deleted_queue_does_not_come_back_from_where_its_partition_was(broker: MovingBroker) -> None:
    broker.begin_move(LANE)
    broker.end_moves()
    broker.perform(model.DeleteQueue(QUEUE))
    broker.perform(model.Push((model.PushItem(QUEUE, 0, PARTITION, None),)))
    assert Reader(broker).all() == [0]


@checks("G-SHARD-8", level=Level.MODEL)
def test_an_archive_goes_on_after_a_move(broker: MovingBroker, spark: Any, tmp_path: Path) -> None:
    def add() -> Done:
        with snapshot_of(urls(broker.databases)) as snapshot, locked(tmp_path):
            return job.add(spark, snapshot, open_archive(tmp_path))

    assert add().rows == 12
    broker.begin_move(LANE)
    with pytest.raises(DatabaseError, match="are being moved"):
        add()
    broker.end_moves()
    assert add().rows == 0
    broker.perform(model.Push((model.PushItem(QUEUE, 12, PARTITION, None),)))
    done = add()
    assert (done.rows, done.too_late) == (1, 0)
    assert open_archive(tmp_path).messages == 13


@checks("G-SHARD-8", level=Level.MODEL)
def test_a_watch_reads_a_moving_partition_once(broker: MovingBroker) -> None:
    log = Segments(urls(broker.databases), beside_journals=True)

    def read(start: dict[str, int]) -> list[tuple[int, int]]:
        rows = [row for task in log.tasks(start, log.end()) for row in log.read(task)]
        segments_ = [msgspec.msgpack.decode(row[3], type=Segment) for row in rows if row[3]]
        return sorted((each.first, each.last) for each in segments_)

    whole = read({})
    assert whole[-1][1] == 11
    ends = log.end()
    broker.begin_move(LANE)
    assert (log.end(), read(ends), read({})) == (ends, [], whole)
    broker.end_moves()
    assert (log.end(), read(ends), read({})) == (ends, [], whole)
    broker.perform(model.Push((model.PushItem(QUEUE, 12, PARTITION, None),)))
    assert read(ends) == [(12, 12)]
