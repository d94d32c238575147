"""The data source ``queen`` on a real server: what tables, streams and a restored archive write."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pyspark_queen import write
from pyspark_queen.errors import SourceError
from pyspark_queen.options import write_options
from spark_validation.archive import job
from spark_validation.archive.folder import locked, open_archive, open_filled
from spark_validation.archive.restore import Range, Restored, Target, restore
from spark_validation.errors import ArchiveError
from spark_validation.gateway import first_line
from spark_validation.log.snapshot import Snapshot
from tests.audit.place import Place, table
from tests.support.guides import code, request_of
from tests.support.processes import wait_until


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
        ({"url": "localhost"}, "payload", "url: not the address of a server, such as http://localhost:6632"),
        ({}, "payload", "give one of the options url (of a server, to push over HTTP) and dsn"),
        ({"url": "http://h", "startingOffsets": "latest"}, "payload", "the option startingOffsets is of a batch read"),
        ({"dsn": "postgresql://h/d", "token": "t"}, "payload", "the option token is for url, not for dsn"),
        ({"url": "http://h", "token": "hidden\n"}, "payload", "token: not a token: it is empty, or has a space"),
        ({"url": "http://h", "token": "ж"}, "payload", "token: not a token: it is empty, or has a space"),
        ({"url": "http://h", "batchSise": "3"}, "payload", "there is no option batchsise: is batchSize meant?"),
        ({"url": "http://h"}, "payload, 1 AS offset", "a message has no column offset. There are headers"),
        ({"url": "http://h"}, "queue", "the column payload is missing: the JSON of the messages"),
        ({"url": "http://h"}, "payload", "name the queue: the option queue, or a column queue"),
        ({"url": "http://127.0.0.1:1", "timeoutSeconds": "1"}, "payload, queue", "http://127.0.0.1:1 did not store"),
        ({"url": "http://u:p@127.0.0.1:1", "timeoutSeconds": "1"}, "payload, queue", "http://127.0.0.1:1 did not"),
        ({"url": "here", "queue": "bad"}, "'no json' AS payload", "a payload is not JSON"),
        ({"url": "here", "queue": ""}, "payload", "queue='': not a text"),
        ({"url": "here", "partition": "x" * 256}, "payload, queue", "http"),
        ({"dsn": "here", "queue": "nowhere"}, "payload", "PostgreSQL refuses messages of nowhere: unknown queue"),
    ],
)  # fmt: skip
def test_a_wrong_write_is_refused(spark, place, options, columns, text):
    there = {"url": str(place.http.base_url), "dsn": place.dsn}
    given = {name: there[name] if value == "here" else value for name, value in options.items()}
    rows = spark.sql("SELECT '{}' AS payload, 'q' AS queue").selectExpr(*columns.split(", "))
    with pytest.raises(PySparkException) as caught:
        rows.write.format("queen").mode("append").options(**given).save()
    assert first_line(caught.value).startswith(text)


def test_a_payload_that_is_nested_too_deeply_is_refused():
    rows = pa.RecordBatch.from_pylist([{"payload": "[" * 3000 + "]" * 3000, "queue": "q"}])
    with pytest.raises(SourceError, match="a payload is nested too deeply"):
        list(write.messages(iter([rows]), write_options({"url": "http://h"}), lambda *_: "id"))


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
