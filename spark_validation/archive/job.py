"""The job that adds new messages of the log to an archive, and compares the written files with the log."""

import hashlib
from collections.abc import Mapping
from urllib.parse import quote

from msgspec import Struct
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ..columns import spark_schema
from ..errors import ArchiveError
from ..inputs import Head, State, WholeRow
from ..log.several import AnySnapshot
from ..log.snapshot import MESSAGES_A_TASK
from .folder import Archive, Damaged, File, Part, Run

_NAME_BYTES = 200
_CHECKSUMS = """
SELECT
    s.part_id, count(*) AS rows, min(o.off) AS first, max(o.off) AS last,
    bit_xor(('x' || left(md5(convert_to(o.off || ' ' || s.us || ' ' || h.hash || ' ', 'UTF8') || m.message), 15))
        ::bit(60)::bigint) AS checksum
FROM (
    -- Compressed or TOASTed values are fetched once per segment, and not once per message.
    SELECT
        g.part_id, g.last_off, g.n, (extract(epoch FROM g.created_at) * 1000000)::bigint AS us, g.ids,
        g.ends || ''::bytea AS ends, g.data || ''::bytea AS data
    FROM queen.segments AS g
    -- Data of deleted queues is removed step by step.
    JOIN queen.partitions AS p ON p.id = g.part_id
    LEFT JOIN unnest($1::bigint [], $2::bigint []) AS d (part_id, upto) ON d.part_id = g.part_id
    WHERE g.last_off > coalesce(d.upto, -1)
        AND (g.part_id, g.last_off) NOT IN (
            SELECT u.part_id, u.last_off FROM unnest($3::bigint [], $4::bigint []) AS u (part_id, last_off)
        )
    OFFSET 0
) AS s
CROSS JOIN LATERAL generate_series(0, s.n - 1) AS i (pos)
CROSS JOIN LATERAL (SELECT s.last_off - s.n + 1 + i.pos AS off) AS o
CROSS JOIN LATERAL (
    SELECT coalesce(nullif(left(encode(substr(s.ids, 16 * i.pos + 1, 8), 'hex'), 15), '000000000000000'), '') AS hash
) AS h
-- queen.message_at, which PostgreSQL does not inline: written out it takes 2 µs per message instead of 9.
CROSS JOIN LATERAL (
    SELECT queen.message_end(s.ends, i.pos - 1) AS since, queen.message_end(s.ends, i.pos) AS till OFFSET 0
) AS e
CROSS JOIN LATERAL (SELECT substr(s.data, e.since + 2, e.till - e.since - 1) AS message) AS m
GROUP BY s.part_id ORDER BY s.part_id
"""


class Done(Struct, frozen=True):
    """The result of a job: added messages and their partitions.

    And messages that had been removed before, and segments that cannot be read and were left out.
    """

    rows: int
    parts: int
    files: int
    too_late: int
    damaged: tuple[Damaged, ...] = ()


def add(spark: SparkSession, snapshot: AnySnapshot, archive: Archive, a_task: int = MESSAGES_A_TASK) -> Done:
    """Adds the missing messages; the caller holds the lock of the folder.

    Raises:
        ArchiveError: the written messages differ from the log, or the archive belongs to another database; it is
            unchanged.
    """
    state, upto = archive.remembering(snapshot.state()), archive.upto
    archive.check_origin(state)
    archive.clean()
    heads = {head.part_id: head for head in state.heads}
    log = snapshot.log(spark, a_task, since=_behind(upto, heads), whole=True)
    _write(spark, log, state, archive)
    rows, damaged = _written(spark, archive), _damaged(spark, archive, heads)
    left_out = [each.part_id for each in damaged], [each.last for each in damaged]
    wanted = [_part(heads, row) for row in snapshot.fetch(_CHECKSUMS, list(upto), list(upto.values()), *left_out)]
    wrote = [_part(heads, row.asDict()) for row in rows]
    _compare(wanted, wrote)
    staged = sorted(archive.readable.rglob("*.parquet"))
    placed = [archive.place(path, number) for number, path in enumerate(staged)]
    files = [File(str(path.relative_to(archive.folder)), path.stat().st_size) for path in placed]
    new = _unknown(archive, damaged)
    archive.add(Run(archive.next_number, snapshot.taken_at, wrote, files, damaged=new), state)
    too_late = sum(_missing(part, upto.get(part.part_id, -1) + 1, damaged) for part in wrote)
    return Done(sum(part.rows for part in wrote), len(wrote), len(files), too_late, tuple(new))


def _unknown(archive: Archive, damaged: list[Damaged]) -> list[Damaged]:
    """Without those of earlier runs: one at the end of a partition is read by every run."""
    known = {(each.part_id, each.last) for each in archive.damaged}
    return [each for each in damaged if (each.part_id, each.last) not in known]


def _missing(part: Part, since: int, damaged: list[Damaged]) -> int:
    """The number of offsets between the archived ones and the new part that no damaged segment has."""
    unread = [each for each in damaged if each.part_id == part.part_id and since <= each.last < part.first]
    return part.first - since - sum(each.last - each.first + 1 for each in unread)


def _behind(upto: Mapping[int, int], heads: Mapping[int, Head]) -> dict[str, dict[str, int]]:
    """By queue and partition: the offset after the last archived one."""
    since: dict[str, dict[str, int]] = {}
    for part_id in upto.keys() & heads.keys():
        head = heads[part_id]
        since.setdefault(head.queue, {})[head.partition] = upto[part_id] + 1
    return since


def _part(heads: Mapping[int, Head], row: Mapping[str, int]) -> Part:
    head = heads[row["part_id"]]
    return Part(queue=head.queue, partition=head.partition, **row)


def _write(spark: SparkSession, log: DataFrame, state: State, archive: Archive) -> None:
    """Writes the messages into files by queue and day, and beside them what cannot be read, with the reason for it."""
    queues = [(head.part_id, directory(head.queue)) for head in state.heads]
    names = spark.createDataFrame(queues, "part_id bigint, queue string")
    dated = log.join(F.broadcast(names), "part_id").withColumns(
        {
            "day": F.to_date(F.timestamp_micros("created_at")),
            "damaged": F.col("damage").isNotNull(),
            "message": F.coalesce("message", "damage"),
        }
    )
    rows = dated.drop("damage").write.partitionBy("damaged", "queue", "day")
    rows.option("compression", "zstd").parquet(str(archive.staging))


def _written(spark: SparkSession, archive: Archive) -> list[Row]:
    """The contents of the files by partition."""
    files = sorted(archive.readable.rglob("*.parquet"))
    if not files:
        return []
    back = spark.read.schema(spark_schema(WholeRow)).parquet(*map(str, files))
    of_part = (F.count("*").alias("rows"), F.min("offset").alias("first"), F.max("offset").alias("last"))
    return back.groupBy("part_id").agg(*of_part, F.bit_xor(checksum()).alias("checksum")).collect()


def _damaged(spark: SparkSession, archive: Archive, heads: Mapping[int, Head]) -> list[Damaged]:
    files = sorted(archive.unreadable.rglob("*.parquet"))
    if not files:
        return []
    segments = spark.read.schema(spark_schema(WholeRow)).parquet(*map(str, files)).groupBy("part_id", "message")
    rows = segments.agg(F.min("offset").alias("first"), F.max("offset").alias("last"), F.min("created_at").alias("at"))
    names = [(row, heads[row.part_id]) for row in rows.orderBy("part_id", "first").collect()]
    return [
        Damaged(row.part_id, head.queue, head.partition, row.first, row.last, row.at, row.message)
        for row, head in names
    ]


def directory(queue: str) -> str:
    """The folder name of a queue: its name, or its beginning and a hash if a file system could refuse it."""
    if len(quote(queue, safe="")) <= _NAME_BYTES:
        return queue
    return f"{queue[:32]}~{hashlib.sha256(queue.encode()).hexdigest()[:16]}"


def checksum() -> Column:
    """The checksum of a message: 60 bits of the MD5 of all its data; PostgreSQL computes those of the log."""
    hash_ = F.coalesce(F.lpad(F.lower(F.hex("hash")), 15, "0"), F.lit(""))
    text = F.concat_ws(" ", "offset", "created_at", hash_, "message")
    return F.conv(F.substring(F.md5(text), 1, 15), 16, 10).cast("bigint")


def _compare(wanted: list[Part], wrote: list[Part]) -> None:
    there = {part.part_id: part for part in wrote}
    wrong = [part for part in wanted if there.pop(part.part_id, None) != part] + list(there.values())
    if wrong:
        raise ArchiveError(
            f"The written messages differ from the log in {len(wrong)} partitions, the first is "
            f"{wrong[0].queue}/{wrong[0].partition}. Nothing was added: run it again, and check the disk"
        )
