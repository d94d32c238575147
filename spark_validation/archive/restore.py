"""Pushes a part of an archive back into a queue. A message that the queue still has is not stored again."""

from collections.abc import Iterator

import pyarrow as pa
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pyspark_queen.columns import headers_of, id_of, stored
from pyspark_queen.source import QueenSource

from ..columns import spark_schema
from ..errors import ArchiveError
from ..inputs import WholeRow
from .folder import Archive

_MADE = "partition string, part_id bigint, `offset` bigint, payload string, transactionId string, traceId string"
_HEADERS = "headers map<string, string>"


class Range(Struct, frozen=True):
    """What is pushed back: times are microseconds since 1970, the last one is not included; into another queue."""

    queue: str
    partition: str | None = None
    since: int | None = None
    until: int | None = None
    into: str | None = None


class Target(Struct, frozen=True):
    """A server, and the token for it."""

    url: str
    token: str | None = None


class Restored(Struct, frozen=True):
    """The number of pushed messages, and of their partitions."""

    rows: int
    parts: int


def restore(spark: SparkSession, archive: Archive, wanted: Range, target: Target) -> Restored:
    """Pushes the messages in their order, with their own transaction ids.

    Raises:
        ArchiveError: the archive has no such queue or partition, or a message is encrypted.
    """
    rows = _rows(spark, archive, wanted).persist()
    try:
        # What cannot be restored is found before anything is pushed.
        counted = rows.agg(F.count("*").alias("rows"), F.count_distinct("part_id").alias("parts")).collect()[0]
        options = {"url": target.url, "queue": wanted.into or wanted.queue}
        options |= {"token": target.token} if target.token else {}
        spark.dataSource.register(QueenSource)
        in_order = rows.repartition("part_id").sortWithinPartitions("part_id", "offset").drop("part_id", "offset")
        in_order.write.format(QueenSource.name()).mode("append").options(**options).save()
    finally:
        rows.unpersist()
    return Restored(counted.rows, counted.parts)


def _rows(spark: SparkSession, archive: Archive, wanted: Range) -> DataFrame:
    names = {(part.part_id, part.partition) for run in archive.runs for part in run.parts if part.queue == wanted.queue}
    if not names:
        raise ArchiveError(f"{archive.folder} has no messages of the queue {wanted.queue}")
    names = {each for each in names if wanted.partition in (None, each[1])}
    if not names:
        raise ArchiveError(f"{archive.folder} has no messages of the partition {wanted.queue}/{wanted.partition}")
    deleted = [(run.part_id, offset) for run in archive.state().deleted for offset in range(run.first, run.last + 1)]
    rows = spark.read.schema(spark_schema(WholeRow)).parquet(*map(str, archive.files))
    rows = rows.where(F.col("created_at") >= wanted.since) if wanted.since is not None else rows
    rows = rows.where(F.col("created_at") < wanted.until) if wanted.until is not None else rows
    rows = rows.join(F.broadcast(spark.createDataFrame(sorted(names), "part_id bigint, partition string")), "part_id")
    gone = F.broadcast(spark.createDataFrame(deleted, "part_id bigint, `offset` bigint"))
    rows = rows.join(gone, ["part_id", "offset"], "left_anti").select("partition", "part_id", "offset", "message")
    return rows.mapInArrow(_made, f"{_MADE}, {_HEADERS}")


def _made(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The messages as rows of a write."""
    for batch in batches:
        partition, part_id, offset, message = batch.columns
        found = [stored(each.encode()) for each in message.to_pylist()]
        places = zip(found, partition.to_pylist(), part_id.to_pylist(), offset.to_pylist(), strict=True)
        ids = []
        for each, name, part, at in places:
            if each.keyId is not None:
                raise ArchiveError(f"offset {at} of the partition {name} is encrypted, and cannot be restored")
            ids.append(each.transactionId or id_of(part, at))
        made = [
            partition,
            part_id,
            offset,
            pa.array([bytes(each.payload).decode() for each in found], pa.string()),
            pa.array(ids, pa.string()),
            pa.array([each.traceId for each in found], pa.string()),
            pa.array([headers_of(each) for each in found], pa.map_(pa.string(), pa.string())),
        ]
        names = ["partition", "part_id", "offset", "payload", "transactionId", "traceId", "headers"]
        yield pa.RecordBatch.from_arrays(made, names)
