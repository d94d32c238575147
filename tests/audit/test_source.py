"""The data source ``queen`` on a real server: what tables, streams and sinks read and write, and what they refuse."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import asyncpg
import httpx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import MapType, StringType, StructType

from pyspark_queen import columns, write
from pyspark_queen.columns import Some
from pyspark_queen.errors import OptionError
from pyspark_queen.group import GroupReader, Runs
from pyspark_queen.options import BATCH, group_options, read_options, write_options
from pyspark_queen.stream import limited
from spark_validation.archive import job
from spark_validation.archive.folder import locked, open_archive, open_filled
from spark_validation.archive.restore import Range, Restored, Target, restore
from spark_validation.errors import ArchiveError
from spark_validation.log.snapshot import Snapshot
from spark_validation.session import first_line
from tests.support.guides import code, request_of
from tests.support.processes import wait_until
from tests.support.servers import create_database, database_url, drop_database, serving_database

KEY = "5f" * 32
PUSHES, A_PUSH = 6, 10
TRACE = "00000000-0000-0000-0000-{:012}"


class Place(NamedTuple):
    """A server and its database."""

    dsn: str
    http: httpx.Client

    def push(self, queue: str, partition: str, payloads: list[Any], **fields: Any) -> None:
        items = [{"queue": queue, "partition": partition, "payload": payload, **fields} for payload in payloads]
        answers = self.http.post("/api/v1/push", json={"items": items}).raise_for_status().json()
        assert {each["status"] for each in answers} == {"queued"}

    def ask(self, query: str, *arguments: object) -> list[Any]:
        async def fetch() -> list[Any]:
            connection = await asyncpg.connect(self.dsn)
            try:
                return await connection.fetch(query, *arguments)
            finally:
                await connection.close()

        return asyncio.run(fetch())


@pytest.fixture(scope="module")
def place(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Orders 0 to 59 of alice, ten per push, and ten of bob."""
    dsn = asyncio.run(create_database(postgres))
    folder = tmp_path_factory.mktemp("server")
    with (
        serving_database(dsn, folder, "--workers", "1", QUEEN_ENCRYPTION_KEY=KEY) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=60) as http,
    ):
        made = Place(dsn, http)
        for push in range(PUSHES):
            made.push("orders", "alice", [{"n": A_PUSH * push + n} for n in range(A_PUSH)])
        for n in range(10):
            made.push(
                "orders",
                "bob",
                [{"tea": "ü\u0000"}],
                transactionId=f"b-{n}",
                traceId=f"00000000-0000-0000-0000-{n:012}",
            )
        yield made
    asyncio.run(drop_database(postgres, dsn))


def table(spark: SparkSession, place: Place, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("queen").options(**{"dsn": place.dsn, **options})
    return (reader.schema(schema) if schema else reader).load()


def offsets(rows: DataFrame, partition: str = "alice") -> list[int]:
    return sorted(row.offset for row in rows.where(F.col("partition") == partition).select("offset").collect())


def said(frame: DataFrame) -> str:
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    return first_line(caught.value)


def test_spark_finds_it_by_its_name_and_a_table_has_all_of_each_message(spark, place):
    assert "queen" not in spark.sql("SHOW TABLES").columns
    rows = {(row.partition, row.offset): row for row in table(spark, place, queue="orders").collect()}
    assert sorted(rows) == [("alice", n) for n in range(60)] + [("bob", n) for n in range(10)]
    assert [json.loads(rows["alice", n].payload) for n in range(60)] == [{"n": n} for n in range(60)]
    alice, bob = rows["alice", 7], rows["bob", 3]
    assert (bob.queue, bob.transactionId, bob.traceId) == ("orders", "b-3", TRACE.format(3))
    assert json.loads(bob.payload) == {"tea": "ü\u0000"}
    assert (alice.traceId, alice.producerSub, alice.headers) == (None, None, None)
    [stored] = place.ask(
        "SELECT m.created_at FROM queen.messages AS m JOIN queen.partitions AS p ON p.id = m.part_id"
        " WHERE p.name = 'bob' AND m.off = 3"
    )
    assert bob.createdAt.replace(tzinfo=UTC) == stored["created_at"]
    listed = place.http.get("/api/v1/messages", params={"queue": "orders", "partition": "alice", "limit": 200}).json()
    ids = {each["id"]: each["transactionId"] for each in listed["messages"]}
    assert ids[alice.transactionId] == alice.transactionId


def test_offsets_times_and_names_choose_what_is_read(spark, place):
    def read(**options: Any) -> list[int]:
        return offsets(table(spark, place, "partition string, offset bigint", queue="orders", **options))

    some = {"startingOffsets": '{"orders": {"alice": 13, "bob": -1}}', "endingOffsets": '{"orders": {"alice": 27}}'}
    assert read(**some) == [*range(13, 27)]
    assert table(spark, place, "offset bigint", **some).count() == 14
    assert read(partition='["bob"]') == []
    times = [
        row["created_at"]
        for row in place.ask(
            "SELECT s.created_at FROM queen.segments AS s JOIN queen.partitions AS p ON p.id = s.part_id"
            " WHERE p.name = 'alice' ORDER BY s.last_off"
        )
    ]
    assert read(startingTimestamp=times[2].isoformat(), endingTimestamp=times[4].isoformat()) == [*range(20, 40)]
    after = (times[2] + timedelta(microseconds=1)).isoformat()
    assert read(startingTimestamp=after, endingTimestamp="99999999999999") == [*range(30, 60)]
    assert read(endingTimestamp="0") == []


def test_filters_of_the_query_choose_what_is_read(spark, place):
    """The plan of a filtered query has fewer tasks, and the rows are those of the query without pushdown."""
    place.push("other", "alice", [{}])
    time = place.ask(
        "SELECT s.created_at FROM queen.segments AS s JOIN queen.partitions AS p ON p.id = s.part_id"
        " JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = 'orders' AND p.name = 'alice' AND s.last_off = 39"
    )[0]["created_at"]

    def read() -> tuple[list[Any], int]:
        rows = table(
            spark,
            place,
            "queue string, partition string, offset bigint, createdAt timestamp",
            maxRecordsPerPartition=10,
        )
        some = rows.where(
            (F.col("queue") == "orders")
            & F.col("partition").isin("alice", "eve")
            & (F.col("offset") > 14)
            & (F.col("offset") <= 45)
            & (F.col("createdAt") >= F.lit(time))
        ).select("offset")
        return sorted(row.offset for row in some.collect()), some.rdd.getNumPartitions()

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        pushed = read()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    plain = read()
    assert pushed[0] == plain[0] == [*range(30, 46)]
    assert pushed[1] == 2 < plain[1]


def test_a_hot_partition_is_read_by_many_tasks(spark, place):
    rows = table(spark, place, "partition string, offset bigint", queue="orders", partition="alice", minPartitions=6)
    assert rows.rdd.getNumPartitions() == 6
    assert rows.distinct().count() == 60


def test_deleted_messages_are_left_out_and_encrypted_ones_need_the_key(spark, place):
    place.http.post("/api/v1/configure", json={"queue": "secret", "options": {"encryptionEnabled": True}})
    place.push("secret", "a", [{"pin": n} for n in range(3)])
    [part] = place.ask(
        "SELECT queen.partition_uuid(p.id)::text AS id FROM queen.partitions AS p JOIN queen.queues AS q"
        " ON q.id = p.queue_id WHERE q.name = 'secret' AND p.name = 'a'"
    )
    plain = table(spark, place, "offset bigint, message string", queue="secret", includeDeleted=True)
    message = (
        table(spark, place, "transactionId string, offset bigint", queue="secret").where("offset = 1").collect()[0]
    )
    place.http.delete(f"/api/v1/messages/{part['id']}/{message.transactionId}").raise_for_status()
    rows = table(spark, place, queue="secret", encryptionKeys=f"{'00' * 32},{KEY}")
    assert [json.loads(row.payload) for row in rows.orderBy("offset").collect()] == [{"pin": 0}, {"pin": 2}]
    assert plain.count() == 3
    without = said(table(spark, place, "payload string", queue="secret"))
    assert without == "the payload of secret/a, offset 0, is encrypted: give its key, option encryptionKeys"
    wrong = said(table(spark, place, "payload string", queue="secret", encryptionKeys="11" * 32))
    assert wrong.startswith("the payload of secret/a, offset 0, is encrypted, and cannot be decrypted with")


def test_a_planned_read_has_what_was_there_and_tells_what_was_removed(spark, place):
    place.push("short", "a", [1, 2, 3])
    place.push("short", "a", [4])
    place.push("short", "a", [5])
    rows = table(spark, place, "offset bigint, partition string", queue="short")
    careless = table(spark, place, "offset bigint, partition string", queue="short", failOnDataLoss="false")
    before = rows.select("offset").rdd, careless.rdd  # planned
    place.push("short", "a", [6])
    number = (
        "(SELECT p.id FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = 'short')"
    )
    assert sorted(row.offset for row in before[0].collect()) == [0, 1, 2, 3, 4]
    place.ask(f"SELECT queen.remove_upto({number}, 2, now())")
    assert sorted(row.offset for row in before[1].collect()) == [3, 4]
    with pytest.raises(Exception, match="3 of 5 messages were removed before they were read, by retention"):
        before[0].collect()
    old = table(spark, place, queue="short", startingOffsets='{"short": {"a": 1}}')
    assert said(old).startswith("messages of short/a were removed before they were read: offset 1 is wanted, and 3 is")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOfsets": "earliest"}, "there is no option startingOfsets: is startingOffsets meant?"),
        (
            {"maxOffsetsPerTrigger": "5"},
            "the option maxOffsetsPerTrigger is of a stream, and has no effect here: omit it",
        ),
        ({"url": "http://h"}, "the option url is of a write, and has no effect here: omit it"),
        ({"queuePattern": "("}, "queuePattern='(': not a regular expression"),
        ({"startingOffsets": "{"}, "startingOffsets='{': not earliest, latest, or JSON such as"),
        (
            {"startingOffsets": '{"orders": {"alice": -3}}'},
            'startingOffsets=\'{"orders": {"alice": -3}}\': not earliest',
        ),
        ({"startingOffsets": "latest"}, "startingOffsets=latest: a batch read would find nothing"),
        ({"startingTimestamp": "noon"}, "startingTimestamp='noon': not milliseconds since 1970, or a time such as"),
        (
            {"startingTimestamp": "0", "startingOffsets": "earliest"},
            "give startingOffsets or startingTimestamp, not both",
        ),
        ({"minPartitions": "0"}, "minPartitions='0': not a whole number from 1 on"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss='no': not true or false"),
        (
            {"encryptionKeys": "abc"},
            "encryptionKeys='abc': not keys of 64 hexadecimal digits, with commas between them",
        ),
    ],
)
def test_a_wrong_option_is_named(options, text):
    given = {"dsn": "postgresql://h/d", **options}
    with pytest.raises(OptionError) as caught:
        read_options(given, BATCH)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queue": "ordres"}, "there is no queue ordres: is orders meant?"),
        ({"partition": "alcie"}, "there is no partition alcie: is alice meant?"),
        ({"queuePattern": "x.*"}, "queuePattern: no queue is named like x.*"),
        (
            {"startingOffsets": '{"order": {"alice": 3}}'},
            "startingOffsets: order is not among the queues that are read: is orders meant?",
        ),
        (
            {"startingOffsets": '{"orders": {"alic": 3}}'},
            "startingOffsets: orders has no partition alic that is read: is alice meant?",
        ),
        ({"endingOffsets": '{"orders": {"alice": 61}}'}, "endingOffsets: 61 is behind the end of orders/alice, 60"),
        ({"dsn": "postgresql://postgres@127.0.0.1:1/x"}, "PostgreSQL cannot be used: "),
    ],
)
def test_what_is_not_there_is_named(spark, place, options, text):
    given = options if "queuePattern" in options else {"queue": "orders", **options}
    assert said(table(spark, place, "offset bigint", **given)).startswith(text)


def test_what_else_is_wrong_is_named(spark, place):
    with pytest.raises(PySparkException) as caught:
        spark.read.format("queen").load()
    assert "the option dsn is missing" in first_line(caught.value)
    assert said(table(spark, place, "ofset bigint")) == "the log has no column ofset: is offset meant?"
    assert said(table(spark, place, "offset string")) == "the column offset is of type bigint, not string"
    empty = place._replace(dsn=database_url(place.dsn, "postgres"))
    assert said(table(spark, empty, "offset bigint")).startswith("there is no log in this database")


def test_headers_are_a_map():
    stored = [b'{"headers":"{\\"type\\":\\"tea\\"}","payload":1}', b'{"payload":2}']
    data = b"[" + b",".join(stored) + b"]"
    ends = b"".join((len(stored[0]) + 1 + n * (len(stored[1]) + 1)).to_bytes(4, "big") for n in range(2))
    one, two = np.array([0]), np.array([2])
    some = Some([], one, one, two, one, [None], [ends], [data], None)
    schema = StructType().add("headers", MapType(StringType(), StringType())).add("payload", "string")
    assert columns.wanted(schema).batch(some).to_pylist() == [
        {"headers": [("type", "tea")], "payload": "1"},
        {"headers": None, "payload": "2"},
    ]


# ---------------------------------------------------------------- streams


class Run(NamedTuple):
    """A stream with a checkpoint, which each call continues."""

    spark: SparkSession
    place: Place
    folder: Path

    def read(self, **options: Any) -> list[list[tuple[str, int]]]:
        """The messages of each batch, until the end of the log."""
        found: dict[int, list[tuple[str, int]]] = {}

        def take(rows: DataFrame, number: int) -> None:
            found[number] = sorted((row.partition, row.offset) for row in rows.collect())

        schema = "partition string, offset bigint, payload string"
        stream = self.spark.readStream.format("queen").schema(schema).options(dsn=self.place.dsn, **options).load()
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(self.folder))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return [found[number] for number in sorted(found) if found[number]]


def test_a_stream_reads_each_message_once_across_restarts(spark, place, tmp_path):
    run = Run(spark, place, tmp_path)
    place.push("flow", "a", [*range(25)])
    place.push("flow", "b", [1])
    options = {"queue": "flow", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 10}
    batches = run.read(**options)
    assert [len(batch) for batch in batches] == [10, 10, 6]
    assert sorted(each for batch in batches for each in batch) == [("a", n) for n in range(25)] + [("b", 0)]
    place.push("flow", "a", ["more"])
    place.push("flow", "c", ["new partition"])
    assert run.read(**options) == [[("a", 25), ("c", 0)]]
    assert run.read(**options) == []
    # A batch that was planned and not finished is read again, exactly, whatever came meanwhile.
    place.push("flow", "a", ["planned"])
    assert run.read(**options) == [[("a", 26)]]
    last = max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (tmp_path / "commits" / f".{last.name}.crc").unlink()
    place.push("flow", "a", ["later"])
    assert run.read(**options) == [[("a", 26)], [("a", 27)]]
    # Without a starting offset, a new stream begins at the end.
    assert Run(spark, place, tmp_path / "new").read(queue="flow") == []


def grouped(spark: SparkSession, place: Place, folder: Path, then: Any = None, **options: Any) -> list[list[Any]]:
    """What each batch of a group's stream has, until it ends; ``then`` is called with each batch."""
    found: list[list[Any]] = []

    def take(rows: DataFrame, number: int) -> None:
        batch = sorted((row.partition, row.offset, row.payload, row.transactionId) for row in rows.collect())
        if then:
            then(number)
        found.append(batch)

    asked = {"url": str(place.http.base_url), "queue": "grouped", "group": "lake", "maxOffsetsPerTrigger": 10}
    stream = spark.readStream.format("queen").options(**asked | options).load()
    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(folder))
    running = query.trigger(availableNow=True).start()
    try:
        running.awaitTermination()
    finally:
        running.stop()
    return found


def undone(place: Place) -> int:
    [group] = place.http.get("/api/v1/consumer-groups/lake").raise_for_status().json().values()
    return sum(each["offsetLag"] for each in group["partitions"])


def test_a_group_reads_each_message_once_across_failures_and_restarts(spark, place, tmp_path):
    place.push("grouped", "a", [*range(25)])
    place.push("grouped", "b", [{"x": "ü"}], transactionId="mine")

    def fail(number: int) -> None:
        if number == 1:
            raise RuntimeError("a failure of a sink")

    with pytest.raises(PySparkException, match="a failure of a sink"):
        grouped(spark, place, tmp_path, fail, leaseSeconds=3)
    place.push("grouped", "a", ["later"])
    # The lease of the batch that failed ends, and it is read again.
    read = grouped(spark, place, tmp_path, leaseSeconds=3)
    assert max(len(batch) for batch in read) <= 10
    everything = [(partition, offset) for batch in read for partition, offset, *_ in batch]
    assert len(everything) == len(set(everything)) == 17
    assert {("b", 0), ("a", 25)} <= set(everything)
    [mine] = [row for batch in read for row in batch if row[0] == "b"]
    assert mine[2:] == ('{"x":"ü"}', "mine")
    assert undone(place) == 0
    assert grouped(spark, place, tmp_path) == []
    # Acks come too late for their lease: the messages come again, and are not read again.
    place.push("grouped", "a", ["slow"])
    read = grouped(spark, place, tmp_path, lambda _: time.sleep(1.5), leaseSeconds=1)
    assert [[row[1] for row in batch] for batch in read] == [[26]]
    wait_until(lambda: grouped(spark, place, tmp_path) == [] and undone(place) == 0, "the late ack", 30)


def test_a_group_is_read_as_a_stream_of_one_queue(spark, place):
    url = str(place.http.base_url)
    reader = spark.read.format("queen").options(url=url, queue="orders", group="g")
    assert "a consumer group is read as a stream" in said(reader.load())
    for options, text in (
        ({"url": url}, "the option queue is missing, which a consumer group needs"),
        ({"queue": "orders"}, "the option url is missing"),
        ({"url": url, "queue": "orders", "dsn": "x"}, "the option dsn is of a batch read, and has no effect here"),
        ({"url": url, "queue": "orders", "leaseSeconds": "0"}, "leaseSeconds='0': not a whole number"),
    ):
        with pytest.raises(OptionError, match=re.escape(text)):
            group_options({"group": "g", **options})
    with pytest.raises(OptionError, match="a message of a group has no column message"):
        GroupReader(group_options({"group": "g", "url": url, "queue": "q"}), StructType().add("message", "string"))


@given(st.lists(st.integers(0, 40)), st.lists(st.integers(0, 40)))
def test_runs_are_sets_of_offsets(one, other):
    ours, theirs = Runs(), Runs()
    ours.add(one)
    theirs.add(other)
    again = Runs(str(ours))
    assert {offset for offset in range(42) if offset in again} == set(one)
    assert list(again.beside(theirs)) == sorted(set(one) - set(other))
    assert len(again.each()) == len({n for n in one if n - 1 not in one})


def test_a_stream_fails_when_messages_are_gone(spark, place, tmp_path):
    run = Run(spark, place, tmp_path)
    place.push("fading", "a", [1])
    options = {"queue": "fading", "startingOffsets": "earliest"}
    assert run.read(**options) == [[("a", 0)]]
    place.push("fading", "a", [2, 3])
    place.push("fading", "a", [4])
    place.ask(
        "SELECT queen.remove_upto(p.id, 1, now()) FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = queue_id"
        " WHERE q.name = 'fading'"
    )
    with pytest.raises(PySparkException, match="1 of 3 messages were removed before they were read"):
        run.read(**options)
    assert run.read(**options, failOnDataLoss=False) == [[("a", 2), ("a", 3)]]
    place.http.delete("/api/v1/resources/queues/fading").raise_for_status()
    with pytest.raises(PySparkException, match="there is no queue fading"):
        run.read(**options)


@given(st.dictionaries(st.sampled_from("abcde"), st.tuples(st.integers(0, 50), st.integers(0, 50))), st.integers(1, 99))
def test_a_limited_batch_is_full_and_every_partition_has_its_turn(lanes, most):
    ends = {part: since + there for part, (since, there) in lanes.items()}
    start, batches = {part: since for part, (since, _) in lanes.items()}, 0
    while start != ends:
        end = limited(start, ends, most)
        took = {part: end[part] - start[part] for part in ends}
        assert all(number >= 0 for number in took.values())
        assert all(end[part] <= ends[part] for part in ends)
        assert sum(took.values()) == min(most, sum(ends.values()) - sum(start.values()))
        start, batches = end, batches + 1
    assert batches == -(-sum(there for _, there in lanes.values()) // most)


# ---------------------------------------------------------------- writes


def written(place: Place, queue: str) -> dict[str, list[Any]]:
    """By partition: the payloads in the log, in their order, without Spark."""
    rows = place.ask(
        "SELECT p.name, m.payload::text AS payload FROM queen.messages AS m"
        " JOIN queen.partitions AS p ON p.id = m.part_id JOIN queen.queues AS q ON q.id = p.queue_id"
        " WHERE q.name = $1 ORDER BY m.part_id, m.off",
        queue,
    )
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row["name"], []).append(json.loads(row["payload"]))
    return found


def rows_of(spark: SparkSession, number: int, tasks: int = 1) -> DataFrame:
    """Rows for two partitions, in their order."""
    rows = spark.range(0, number, 1, tasks)
    payload = F.to_json(F.struct(F.col("id").alias("n"))).alias("payload")
    return rows.select(F.concat(F.lit("p"), F.col("id") % 2).alias("partition"), payload)


def test_a_table_is_written_over_http_and_the_same_write_again_writes_nothing(spark, place):
    rows = rows_of(spark, 30, tasks=2)
    url = str(place.http.base_url)
    write = rows.write.format("queen").mode("append").options(url=url, queue="http", batchSize=7, writeId="day 1")
    write.save()
    wanted = {"p0": [{"n": n} for n in range(0, 30, 2)], "p1": [{"n": n} for n in range(1, 30, 2)]}
    assert {name: sorted(found, key=str) for name, found in written(place, "http").items()} == {
        name: sorted(found, key=str) for name, found in wanted.items()
    }
    write.save()
    assert sum(map(len, written(place, "http").values())) == 30
    # Equal rows of one write are different messages; ids of their own make them one.
    same = spark.range(3).select(F.lit("{}").alias("payload"), F.lit("twice").alias("queue"))
    same.write.format("queen").mode("append").options(url=url).save()
    same.withColumn("transactionId", F.lit("x")).write.format("queen").mode("append").options(url=url).save()
    assert len(written(place, "twice")["Default"]) == 4


def test_headers_are_written_and_tell_rows_apart(spark, place):
    def rows(kinds: list[str | None]) -> DataFrame:
        given = [("p", "1", {"kind": kind} if kind else None) for kind in kinds]
        return spark.createDataFrame(given, "partition string, payload string, headers map<string, string>").coalesce(1)

    write = {"url": str(place.http.base_url), "queue": "headed", "writeId": "w"}
    # A task that is repeated, with its rows in another order: what is there is not written again, the rest is.
    rows(["a"]).write.format("queen").mode("append").options(**write).save()
    rows(["b", None, "a"]).write.format("queen").mode("append").options(**write).save()
    read = table(spark, place, "offset bigint, payload string, headers map<string, string>", queue="headed")
    assert [row.headers for row in read.orderBy("offset").collect()] == [{"kind": "a"}, {"kind": "b"}, None]
    without = spark.sql("SELECT '1' AS payload, map('kind', CAST(NULL AS string)) AS headers")
    with pytest.raises(PySparkException, match="a row has a header without a value"):
        without.write.format("queen").mode("append").options(**write).save()
    with pytest.raises(PySparkException, match="takes no headers"):
        rows(["a"]).write.format("queen").mode("append").options(dsn=place.dsn, queue="headed").save()


def test_a_table_is_written_with_sql(spark, place):
    place.http.post("/api/v1/configure", json={"queue": "sql"}).raise_for_status()
    write = rows_of(spark, 20).write.format("queen").mode("append")
    for _ in range(2):
        write.options(dsn=place.dsn, queue="sql", writeId="once").save()
    wait_until(lambda: not place.ask("SELECT FROM queen.outbox LIMIT 1"), "an empty outbox", 60)
    assert written(place, "sql") == {
        "p0": [{"n": n} for n in range(0, 20, 2)],
        "p1": [{"n": n} for n in range(1, 20, 2)],
    }


def test_a_task_that_is_run_again_writes_nothing_twice(spark, place, tmp_path):
    """The first attempt fails after it has written some of its rows."""
    mark, url = tmp_path / "failed", str(place.http.base_url)

    def fail_once(batches: Any) -> Any:
        yield from batches
        if not mark.exists():
            mark.touch()
            ends = time.monotonic() + 240
            while not httpx.get(f"{url}/api/v1/resources/queues/again").is_success and time.monotonic() < ends:
                time.sleep(0.05)
            raise RuntimeError("the first attempt ends here")

    rows = rows_of(spark, 25_000).mapInArrow(fail_once, "partition string, payload string")
    options = {"url": str(place.http.base_url), "queue": "again", "writeId": "w", "batchSize": 5_000}
    write = rows.write.format("queen").mode("append").options(**options)
    with pytest.raises(PySparkException, match="the first attempt ends here"):
        write.save()
    assert 0 < sum(map(len, written(place, "again").values())) < 25_000
    write.save()
    assert written(place, "again") == {
        "p0": [{"n": n} for n in range(0, 25_000, 2)],
        "p1": [{"n": n} for n in range(1, 25_000, 2)],
    }


def test_a_range_of_an_archive_is_pushed_back_once(spark, place, tmp_path):
    for n in range(5):
        place.push("kept", "a", [{"n": n}], transactionId=f"t{n}", headers={"k": "v"})
    place.push("kept", "b", [1.50, "ü"])
    with Snapshot(place.dsn) as snapshot, locked(tmp_path):
        job.add(spark, snapshot, open_archive(tmp_path))
    archive, target = open_filled(tmp_path), Target(str(place.http.base_url))

    def stored(queue: str) -> list[tuple[Any, ...]]:
        rows = table(spark, place, queue=queue).orderBy("partition", "offset").collect()
        return [(row.partition, row.transactionId, row.payload, row.headers) for row in rows]

    before = stored("kept")
    for _ in range(2):
        assert restore(spark, archive, Range("kept", into="kept-again"), target) == Restored(len(before), 2)
        assert stored("kept-again") == before
    assert restore(spark, archive, Range("kept", "a"), target).parts == 1
    assert stored("kept") == before, "what the queue still has"
    [middle] = place.ask(
        "SELECT (extract(epoch FROM s.created_at) * 1000000)::bigint AS at FROM queen.segments AS s "
        "JOIN queen.partitions AS p ON p.id = s.part_id JOIN queen.queues AS q ON q.id = p.queue_id "
        "WHERE q.name = 'kept' AND p.name = 'a' AND s.last_off = 2"
    )
    restore(spark, archive, Range("kept", "a", since=middle["at"], into="later"), target)
    assert [row[1] for row in stored("later")] == ["t2", "t3", "t4"]
    restore(spark, archive, Range("kept", "a", until=middle["at"], into="sooner"), target)
    assert [row[1] for row in stored("sooner")] == ["t0", "t1"]
    with pytest.raises(ArchiveError, match="no messages of the queue nothing"):
        restore(spark, archive, Range("nothing"), target)
    with pytest.raises(ArchiveError, match="no messages of the partition kept/z"):
        restore(spark, archive, Range("kept", "z"), target)


def test_a_stream_from_queue_to_queue_moves_each_message_once_whatever_is_repeated(spark, place, tmp_path):
    place.push("from", "a", [*range(20)])

    def run() -> None:
        stream = spark.readStream.format("queen").schema("partition string, payload string")
        stream = stream.options(dsn=place.dsn, queue="from", startingOffsets="earliest", maxOffsetsPerTrigger=8).load()
        sink = stream.writeStream.format("queen").options(url=str(place.http.base_url), queue="to")
        query = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    run()
    assert written(place, "to") == {"a": [*range(20)]}
    # As after a kill between the writes of a batch and its commit.
    for path in (tmp_path / "commits").iterdir():
        path.unlink()
    place.push("from", "a", [*range(20, 25)])
    run()
    assert written(place, "to") == {"a": [*range(25)]}


@pytest.mark.parametrize(
    ("options", "columns", "text"),
    [
        ({"url": "localhost"}, "payload", "url='localhost': not the address of a server, such as http://localhost:6632"),
        ({}, "payload", "give one of the options url (of a server, to push over HTTP) and dsn"),
        ({"url": "http://h", "startingOffsets": "latest"}, "payload", "the option startingOffsets is of a batch read"),
        ({"dsn": "postgresql://h/d", "token": "t"}, "payload", "the option token is for url, not for dsn"),
        ({"url": "http://h", "batchSise": "3"}, "payload", "there is no option batchsise: is batchSize meant?"),
        ({"url": "http://h"}, "payload, 1 AS offset", "a message has no column offset. There are headers"),
        ({"url": "http://h"}, "queue", "the column payload is missing: the JSON of the messages"),
        ({"url": "http://h"}, "payload", "name the queue: the option queue, or a column queue"),
        ({"url": "http://127.0.0.1:1", "timeoutSeconds": "1"}, "payload, queue", "http://127.0.0.1:1 did not store"),
        ({"url": "here", "queue": "bad"}, "'no json' AS payload", "a payload is not JSON"),
        ({"url": "here", "queue": ""}, "payload", "queue='': not a text"),
        ({"url": "here", "partition": "x" * 256}, "payload, queue", "http"),
        ({"dsn": "here", "queue": "nowhere"}, "payload", "PostgreSQL cannot be used: unknown queue: 'nowhere'"),
    ],
)  # fmt: skip
def test_a_wrong_write_is_refused(spark, place, options, columns, text):
    there = {"url": str(place.http.base_url), "dsn": place.dsn}
    given = {name: there[name] if value == "here" else value for name, value in options.items()}
    rows = spark.sql("SELECT '{}' AS payload, 'q' AS queue").selectExpr(*columns.split(", "))
    with pytest.raises(PySparkException) as caught:
        rows.write.format("queen").mode("append").options(**given).save()
    assert first_line(caught.value).startswith(text)


def test_the_tutorial_works(spark, place, tmp_path):
    """As a reader does who types what stands there."""
    page = Path(__file__).parents[2] / "docs" / "spark-tutorial.md"
    [line] = code(page, "sh")
    method, path, body = request_of(line)
    place.http.request(method, path, content=body).raise_for_status()
    start, lake, look, replay = code(page, "python")
    names: dict[str, Any] = {"__name__": "tutorial"}
    assert {"DSN", "URL", "LAKE"} <= {each.partition(" = ")[0] for each in start.splitlines()}
    names |= {"spark": spark, "DSN": place.dsn, "URL": str(place.http.base_url), "LAKE": str(tmp_path)}
    exec(lake, names)
    place.push("sales", "paris", [{"item": "tea", "price": 4.5}])
    names["copy_to_lake"]()
    exec(look, names)
    rows = spark.read.parquet(str(tmp_path / "sales")).select("partition", "offset", "item", "price").collect()
    assert sorted(map(tuple, rows)) == [("berlin", 0, "tea", 4.5), ("paris", 0, "cake", 6.0), ("paris", 1, "tea", 4.5)]
    place.ask(
        "UPDATE queen.segments AS s SET created_at = s.created_at - interval '1 day' FROM queen.partitions AS p"
        " JOIN queen.queues AS q ON q.id = p.queue_id WHERE p.id = s.part_id AND q.name = 'sales' AND s.last_off = 0"
    )
    exec(replay, names)
    names["replay_yesterday"]()
    again = {"berlin": [{"item": "tea", "price": 4.5}], "paris": [{"item": "cake", "price": 6}]}
    assert written(place, "sales-again") == again


class _Busy(BaseHTTPRequestHandler):
    """Answers the first push as a server that is busy, and loses the answer to the second."""

    seen: ClassVar[list[tuple[str, bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.headers["Authorization"], body))
        if len(self.seen) == 2:
            self.close_connection = True
            return
        answer = b'[{"status": "buffered"}]' if len(self.seen) > 2 else b'{"error": "busy"}'
        self.send_response(201 if len(self.seen) > 2 else 503)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


def test_a_push_is_repeated_as_it_was_with_its_token():
    rows = pa.RecordBatch.from_pylist([{"payload": "1", "queue": "q"}])
    with ThreadingHTTPServer(("127.0.0.1", 0), _Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = write_options({"url": f"http://127.0.0.1:{server.server_port}", "token": "t"})
        write.push(iter([rows]), options, "w")
        server.shutdown()
    assert [authorization for authorization, _ in _Busy.seen] == ["Bearer t"] * 3
    assert len({body for _, body in _Busy.seen}) == 1
    [item] = json.loads(_Busy.seen[0][1])["items"]
    assert item["transactionId"].startswith("w:0:")
