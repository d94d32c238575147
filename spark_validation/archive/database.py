"""Archive and log as one database."""

from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ..columns import spark_schema, spark_table
from ..dialect import read_parquet
from ..inputs import Database, Head, LogRow, Offsets, as_database
from ..log.several import AnySnapshot
from .folder import Archive


def read(spark: SparkSession, archive: Archive, snapshot: AnySnapshot | None) -> Database:
    """Messages of the log are read from it, messages that retention has removed from the archive.

    Without a snapshot it is the database at the last run of the archive job. A partition begins after the last gap of
    the archive, which has one where messages were removed before they could be archived. Messages of deleted queues are
    omitted.

    Raises:
        ArchiveError: the archive is of another database.
    """
    state = archive.remembering(snapshot.state()) if snapshot else archive.state()
    archive.check_origin(state)
    till = {head.part_id: head.oldest_offset if snapshot else head.next_offset for head in state.heads}
    heads = [_reaching_back(head, archive.unbroken.get(head.part_id), till[head.part_id]) for head in state.heads]
    log = _archived(spark, archive, [(head.part_id, head.oldest_offset, till[head.part_id]) for head in heads])
    if snapshot:
        log = snapshot.log(spark, checked=True).unionByName(log)
    return as_database(
        spark, log, replace(state, heads=heads), *((snapshot.flaws(), snapshot.id_sums()) if snapshot else ())
    )


def _reaching_back(head: Head, archived: Offsets | None, till: int) -> Head:
    if archived is None or archived.last + 1 < till:
        return replace(head, live_oldest=head.oldest_offset)
    return replace(head, oldest_offset=min(archived.first, head.oldest_offset), live_oldest=head.oldest_offset)


def _archived(spark: SparkSession, archive: Archive, wanted: list[tuple[int, int, int]]) -> DataFrame:
    """The messages from an offset on, and before another, of each partition."""
    if not archive.files:
        return spark.createDataFrame([], spark_schema(LogRow))
    bounds = F.broadcast(spark.createDataFrame(wanted, "part_id bigint, since bigint, till bigint"))
    unread = [
        LogRow(each.part_id, offset, each.created_at, damage=each.damage)
        for each in archive.damaged
        for offset in range(each.first, each.last + 1)
    ]
    rows = read_parquet(spark, map(str, archive.files), spark_schema(LogRow))
    rows = rows.unionByName(spark_table(spark, LogRow, unread)).join(bounds, "part_id")
    return rows.where((F.col("offset") >= F.col("since")) & (F.col("offset") < F.col("till"))).drop("since", "till")
