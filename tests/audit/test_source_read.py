"""The data source ``queen`` on a real server: what tables read, and what they refuse."""

import json
from datetime import UTC, timedelta
from typing import Any

import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import MapType, StringType, StructType

from pyspark_queen import columns, segments
from pyspark_queen.columns import Some
from pyspark_queen.errors import OptionError, UnreachableError
from pyspark_queen.options import BATCH, read_options
from spark_validation.gateway import first_line
from tests.audit.place import KEY, TRACE, offsets, said, table
from tests.support.servers import database_url


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
    assert wrong.startswith("the payload of secret/a, offset 0, is encrypted, and cannot be decrypted: its key ")
    assert wrong.endswith("is not among encryptionKeys")


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
        ({"url": "http://h"}, "the option url is of a read with group, or of a write: give dsn to read the log, or"),
        ({"queuePattern": ""}, "queuePattern='': not a text"),
        ({"startingTimestamp": "20261128"}, "startingTimestamp='20261128': not clear, a day or milliseconds"),
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
        ({"queue": "[]"}, "queue='[]': not a name, or a JSON array of names such as"),
        ({"partition": '[""]'}, "partition='[\"\"]': not a name, or a JSON array of names such as"),
        ({"dsn": "postgresql://u:pa/ss@h/d"}, "dsn: not a URL such as postgresql://user@host:5432/database"),
        ({"dsn": "a=postgresql://u:secret@h/d a=postgresql://h/e"}, "dsn: not a URL, or NAME=URL of several"),
        ({"minPartitions": "0"}, "minPartitions='0': not a whole number from 1 on"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss='no': not true or false"),
        (
            {"encryptionKeys": "abc"},
            "encryptionKeys: not keys of 64 hexadecimal digits, with commas between them",
        ),
    ],
)
def test_a_wrong_option_is_named(options, text):
    given = {"dsn": "postgresql://h/d", **options}
    with pytest.raises(OptionError) as caught:
        read_options(given, BATCH)
    assert str(caught.value).startswith(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://h/d",
        "postgres://u:p%40@[::1]:5432,h.example:1/d?sslmode=require",
        "postgresql://postgres@/postgres?host=/run/pg",
        "postgresql:///d",
        "a=postgresql://h/d b=postgresql://h:5/e",
    ],
)
def test_addresses_of_databases_are_taken(dsn):
    assert read_options({"dsn": dsn}, BATCH).dsn


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


def test_rows_without_columns_are_counted(spark, place):
    assert spark.read.format("queen").options(dsn=place.dsn, queue="orders").schema(StructType([])).load().count() == 70


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


def test_a_reader_that_is_left_with_a_lost_connection_says_nothing(monkeypatch):
    """The engine closes the generator of a reader: no caller could catch an error of that."""

    async def batches(_reading):
        try:
            yield "a batch"
        finally:
            raise UnreachableError("the connection is lost")

    monkeypatch.setattr(segments._Reading, "__init__", lambda *_: None)
    monkeypatch.setattr(segments._Reading, "batches", batches)
    reader = segments.read(None, None, segments.Task([], None))
    assert next(reader) == "a batch"
    reader.close()
