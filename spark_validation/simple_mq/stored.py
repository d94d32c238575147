"""A snapshot of simple-mq's tables.

Pages of messages are read under the snapshot and written to a file for Spark. Queues are almost empty after a load
test, and millions of messages take some seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from ..columns import arrow_schema, arrow_table, spark_table
from ..dialect import read_parquet
from ..errors import DatabaseError
from ..log.several import AnySnapshot
from ..log.snapshot import Snapshot

_PAGE = 50_000
_NIL = "00000000-0000-0000-0000-000000000000"
_QUEUES = """
SELECT q.queue_id::text AS queue, q.queue_size AS size, q.visibility_timeout, q.max_deliveries,
    q.dlq_id::text AS dead_letter_queue, q.parent_id::text AS parent, simple_mq.message_count(q.queue_id) AS counted
FROM simple_mq.queues AS q
"""
# Messages of deleted queues no longer exist for clients, although their rows are removed step by step. Messages are
# hashed where they are: a page of them may be gigabytes.
_MESSAGES = """
SELECT m.queue_id::text AS queue, m.message_id::text AS message_id, m.delivery_count,
    left(encode(sha256(convert_to(m.data, 'UTF8')), 'hex'), 13) AS digits
FROM simple_mq.messages AS m
WHERE (m.queue_id, m.message_id) > ($1::uuid, $2::uuid)
    AND EXISTS (SELECT 1 FROM simple_mq.queues AS q WHERE q.queue_id = m.queue_id)
ORDER BY m.queue_id, m.message_id LIMIT $3
"""


class StoredQueue(Struct, frozen=True):
    """A queue; ``parent`` is the queue whose dead letters it holds, ``counted`` its message count."""

    queue: str
    size: int
    visibility_timeout: int
    max_deliveries: int
    counted: int
    dead_letter_queue: str | None = None
    parent: str | None = None


class StoredMessage(Struct, frozen=True):
    """A message in any state."""

    queue: str
    message_id: str
    delivery_count: int
    payload_hash: int


@dataclass(frozen=True)
class Stored:
    """The tables of one snapshot."""

    queues: DataFrame
    messages: DataFrame


def read(snapshot: AnySnapshot, spark: SparkSession, work: Path) -> Stored:
    """All queues and messages under a snapshot; files go to ``work``.

    Raises:
        DatabaseError: the database has no simple-mq.
    """
    if not snapshot.fetch("SELECT 1 WHERE to_regclass('simple_mq.messages') IS NOT NULL"):
        raise DatabaseError("there is no simple-mq in this database. Is it the server's database?")
    queues = [StoredQueue(**row) for row in snapshot.fetch(_QUEUES)]
    path = work / "simple_mq_messages.parquet"
    with pq.ParquetWriter(path, arrow_schema(StoredMessage), compression="zstd") as writer:
        for each in snapshot.each:
            for page in _pages(each):
                writer.write_table(arrow_table(StoredMessage, page))
    return Stored(spark_table(spark, StoredQueue, queues), read_parquet(spark, [str(path)]))


def _pages(snapshot: Snapshot) -> Iterator[list[StoredMessage]]:
    queue = message = _NIL
    while rows := snapshot.fetch(_MESSAGES, queue, message, _PAGE):
        yield [
            StoredMessage(row["queue"], row["message_id"], row["delivery_count"], int(row["digits"], 16))
            for row in rows
        ]
        queue, message = rows[-1]["queue"], rows[-1]["message_id"]
